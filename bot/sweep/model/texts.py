"""Parts of texts that the plain sweep and its features share: mentions of the owner (`notify=`), names as
links, best results, and the buttons Cancel sweep and Continue. Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bot.core.commands import Command
from bot.core.events import Event, Result
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.request import Notify
from bot.core.sweep_summary import SweepSummary
from bot.platform.slack.blocks import button, plain_text
from bot.platform.slack.mrkdwn import code, link, mention, quoted
from bot.text.number_format import short
from bot.text.wording import shortened

FIRST_HEALTHY = "✓ First trial healthy"  # the step `first` of a record
CANCEL = "cancel_sweep"  # the button's action_id
CODED = re.compile("`([a-z0-9-]{1,100})`")  # perhaps a sweep's name
CONTINUE = "continue_where"  # likewise; its value is the sweep, a space, and the constraint
# In `sent_keys`: the owner has the failure's cause by a direct message, so the end need not repeat it.
TOLD_DIRECTLY = "first_failed/directly"
TOLD_IN_CHANNEL = "first_failed/loud"  # likewise, by the message about the trial


def display_name(sweep: SweepRecord, user: str) -> str:
    """Name the owner without a mention; only the id of other users is known."""
    owner = sweep.requester
    return f"*{quoted(owner.user_name, 80)}*" if user == owner.user and owner.user_name else mention(user)


def name_link(sweep: SweepRecord | SweepSummary) -> str:
    """Return the sweep's name, as a link to its thread once it has one."""
    return f"*{link(sweep.permalink, sweep.id)}*" if sweep.permalink else f"*{sweep.id}*"


def linked(text: str, sweeps: Iterable[SweepRecord | SweepSummary]) -> str:
    """Link the names of sweeps in a text that isn't in their thread, where each stands as code."""
    links = {each.id: name_link(each) for each in sweeps if each.permalink}
    return CODED.sub(lambda found: links.get(found[1], found[0]), text)


def devices(plan: SweepPlan | None) -> str:
    """Name what its trials hold."""
    return "CPUs" if plan and not plan.gpus else "GPUs"


def result_text(sweep: SweepRecord, result: Result) -> str:
    metric = sweep.plan.space.metric if sweep.plan else ""
    return f"{code(metric)} *{result.value:.6g}* with {flags(result.parameters)}"


def flags(parameters: dict[str, str]) -> str:
    return code(" ".join(f"{name}={short(value)}" for name, value in parameters.items()))


def loud(sweep: SweepRecord, event: Event) -> Event:
    """Return the event for the whole channel, with the owner mentioned, unless the owner chose otherwise."""
    if sweep.request.notify is not Notify.CHANNEL or event.to_user:
        return event
    shown = with_owner(sweep, event.shown) if event.shown else ""
    return replace(event, text=with_owner(sweep, event.text), shown=shown, loud=True)


def with_owner(sweep: SweepRecord, text: str) -> str:
    """Mention the owner after the emoji that `text` begins with."""
    emoji, _, rest = text.partition(" ")
    return f"{emoji} {mention(sweep.requester.user)} {rest}"


def to_owner(sweep: SweepRecord, event: Event) -> Event:
    """Address the event to the owner as an ephemeral message while there is no thread."""
    if sweep.thread:
        return event
    return replace(event, to_user=sweep.requester.user, response_url=sweep.requester.response_url)


def private(command: Command, text: str) -> Event:
    """Return an answer to the user who gave the command."""
    return Event(
        kind="not_allowed",
        text=text,
        to_user=command.user,
        response_url=command.response_url,
        in_thread=command.in_thread,
    )


def confirmation(title: str, effect: str, confirm: str, deny: str) -> dict[str, Any]:
    """Return the dialog that a button opens first."""
    words = {"title": title, "text": effect, "confirm": confirm, "deny": deny}
    return {key: plain_text(text) for key, text in words.items()}


def continue_button(sweep: str, words: str, where: str) -> dict[str, Any]:
    """Return the button that starts the sweep again within bounds."""
    effect = f"Starts a new sweep like {sweep} with where={shortened(where)}. {sweep} itself isn't changed."
    confirm = confirmation("Continue within these bounds?", effect, "Start", "Don't start")
    return button(CONTINUE, words[:75], f"{sweep} {where}", confirm=confirm)


def cancel_button(sweep: str, *, is_running: bool = True) -> dict[str, Any]:
    """Return the button. A sweep on hold or paused has no running trials to stop."""
    effect = f"Ends {sweep}: no more trials can start. Results so far are kept."
    if is_running:
        effect = f"Stops all running trials of {sweep} and frees their GPUs. Results so far are kept."
    deny = "Keep running" if is_running else "Keep sweep"
    confirm = confirmation("Cancel this sweep?", effect, "Cancel sweep", deny)
    return button(CANCEL, "Cancel sweep", sweep, style="danger", confirm={**confirm, "style": "danger"})
