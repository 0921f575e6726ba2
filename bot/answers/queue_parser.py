"""Parse `/sweep queue` and its commands: raise, lower, move, hold, release. Pure."""

import re
from dataclasses import dataclass

from bot.core.commands import Action
from bot.core.errors import UserError
from bot.launch.command_line import unescape
from bot.text.wording import did_you_mean, shortened

QUEUE_COMMANDS = {
    "raise": Action.RAISE,
    "lower": Action.LOWER,
    "move": Action.MOVE,
    "hold": Action.HOLD,
    "release": Action.UNHOLD,
}
QUEUE_USAGE = (
    "`/sweep queue`, `queue raise [SWEEP]`, `queue lower [SWEEP]`, `queue move [SWEEP] queue=NAME`, "
    "`queue hold [SWEEP]`, or `queue release [SWEEP]`"
)
TARGET = re.compile(r"queue=([A-Za-z0-9.-]{1,63})")


@dataclass(frozen=True, kw_only=True)
class QueueCommand:
    action: Action
    sweep: str = ""  # as typed
    queue: str = ""  # move: the new one


def parse_queue(rest: str, here: str = "") -> QueueCommand:
    """Parse what follows `queue`. Raises UserError with the usage."""
    words = unescape(rest).replace("`", "").split()
    if not words:
        return QueueCommand(action=Action.QUEUE)
    word = words.pop(0).lower()
    if word not in QUEUE_COMMANDS:
        hint = did_you_mean(word, QUEUE_COMMANDS)
        raise UserError(f'Unknown command "queue {shortened(word)}".{hint} Usage: {QUEUE_USAGE}.')
    action, target = QUEUE_COMMANDS[word], ""
    if action is Action.MOVE and words and (found := TARGET.fullmatch(words[-1])):
        target = found[1].lower()
        words.pop()
    sweep = here or (words.pop(0).lower() if words else "")
    if here and words[:1] == [here]:
        words.pop(0)
    if words or (action is Action.MOVE and not target):
        raise UserError(f"Usage: {QUEUE_USAGE}.")
    return QueueCommand(action=action, sweep=sweep, queue=target)
