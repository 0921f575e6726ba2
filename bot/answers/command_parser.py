"""Parse commands on existing sweeps, from /sweep or a mention in a thread. Pure.

A command and an optional sweep: `cancel`, `cancel otter`, `cancel lr-brave-otter k3x9z`. A partial or missing
name is resolved among the sweeps in Redis.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bot.answers.queue_parser import QUEUE_COMMANDS, QUEUE_USAGE, parse_queue
from bot.config.permissions import controls
from bot.config.policy import Config
from bot.config.teams import team_of
from bot.core.commands import Action
from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID, is_meant
from bot.core.record import Phase
from bot.core.sweep_summary import SweepSummary
from bot.launch.command_line import STARTERS, unescape
from bot.slack.mrkdwn import code
from bot.text.wording import did_you_mean, listed, shortened

COMMANDS = {
    "status": Action.STATUS,
    "cancel": Action.CANCEL,
    "drain": Action.DRAIN,
    "pause": Action.PAUSE,
    "resume": Action.RESUME,
    "open": Action.OPEN,
    "retry": Action.RETRY,
    "extend": Action.EXTEND,
    "logs": Action.LOGS,
    "results": Action.RESULTS,
    "curves": Action.CURVES,
    "rerun": Action.RERUN,
    "promote": Action.PROMOTE,
    "compare": Action.COMPARE,
    "queue": Action.QUEUE,
}
COMMAND_USAGE = {
    "list": "`/sweep list`, or `list mine`, `list running`, `list team`",
    "status": "`/sweep status [SWEEP]`",
    "cancel": "`/sweep cancel [SWEEP]`, or `/sweep cancel [SWEEP] TRIAL` for one trial",
    "drain": "`/sweep drain [SWEEP]`",
    "pause": "`/sweep pause [SWEEP]` (running trials finish), or `pause [SWEEP] now` (they are stopped)",
    "resume": "`/sweep resume [SWEEP]`",
    "open": "`/sweep open [SWEEP]` (start all trials without waiting for the first one)",
    "retry": "`/sweep retry [SWEEP]` (run the first trial of a sweep on hold again)",
    "extend": "`/sweep extend [SWEEP] trials=20` (the new total)",
    "logs": "`/sweep logs [SWEEP]`, or `/sweep logs [SWEEP] TRIAL`",
    "results": "`/sweep results [SWEEP]`",
    "curves": "`/sweep curves [SWEEP]` (learning curves, also of running trials)",
    "rerun": "`/sweep rerun [SWEEP] trials=20` (any option to change)",
    "promote": "`/sweep promote [SWEEP] seeds=5` (the best parameters with several seeds)",
    "compare": "`/sweep compare SWEEP SWEEP …`",
    "queue": QUEUE_USAGE,
}
SWEEP_USAGE = "SWEEP is a sweep's name, or a part of it; omit it if only one of your sweeps matches"
PAUSE_MODES = {"now": Action.PAUSE_NOW, "after-trials": Action.PAUSE}
PAUSES = {Action.PAUSE, Action.PAUSE_NOW}
OF_ENDED = {Action.EXTEND, Action.PROMOTE}
MAX_SWEEPS = 6  # sweeps in one comparison; more lines in a chart are hard to tell apart
FOR_ACTIVE = {Action.CANCEL, Action.KILL, Action.DRAIN, Action.RESUME, Action.OPEN, Action.RETRY, *PAUSES}
FOR_ACTIVE |= {*QUEUE_COMMANDS.values()}
NONE_FITS = {
    Action.OPEN: "sweeps that wait for their first trial",
    Action.RETRY: "sweeps on hold",
    **dict.fromkeys(QUEUE_COMMANDS.values(), "sweeps in a Kueue queue"),
    **dict.fromkeys(OF_ENDED, "finished sweeps"),
}
MAX_CHOICES = 8  # sweeps in an error
# The end of a trial's name: Katib appends eight characters of k8s.io/apimachinery's rand.String; users can
# type the last few of them.
TRIAL_SUFFIX = re.compile(r"(?=.*[2-9])[a-z0-9]{3,8}|[bcdfghjklmnpqrstvwxz]{8}")
TYPED_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")  # of a sweep or a trial
SYNONYMS = {
    **dict.fromkeys(("stop", "kill", "delete", "abort", "terminate"), "cancel"),
    **dict.fromkeys(("show", "info", "describe"), "status"),
    **dict.fromkeys(("ls", "ps"), "list"),
    "continue": "resume",
    "suspend": "pause",
    "plot": "curves",
    "-h": "help",
}
SIMILARITY = 0.7  # 0 to 1, for suggestions: `cancle` is cancel, but `main` isn't drain


@dataclass(frozen=True, kw_only=True)
class ParsedCommand:
    action: Action
    sweep: str = ""  # as typed; "" if omitted
    trial: str = ""
    trials: int = 0
    changes: str = ""
    others: tuple[str, ...] = ()  # compare: the other sweeps
    queue: str = ""  # move: the new one


def first_word(text: str) -> tuple[str, str]:
    """Return the lowercase first word and the rest; phones capitalize it, and pastes contain other spaces."""
    parts = text.split(maxsplit=1)
    return (parts[0].lower() if parts else "", parts[1].strip() if parts[1:] else "")


def suggest_command(text: str, *others: str) -> str:
    """Return an error if the first word is a misspelled command, else ""."""
    word, rest = first_word(unescape(text))
    known = [*COMMAND_USAGE, *others]
    if word in {*known, *STARTERS} or "=" in word or rest.startswith("="):
        return ""
    same = [SYNONYMS[word]] if SYNONYMS.get(word) in known else []
    if not (near := same or get_close_matches(word, known, cutoff=SIMILARITY)):
        return ""
    return f"Unknown command {code(word)}. Did you mean {listed(near, 'or')}?"


def parse_command(text: str, here: str = "") -> ParsedCommand:
    """Parse a command on an existing sweep. Raises UserError with the usage.

    `here` is the sweep in whose thread the command was written; "" elsewhere.
    """
    word, rest = first_word(text)
    action = COMMANDS[word]
    if action in {Action.RERUN, Action.PROMOTE}:
        return _new_sweep(action, rest, here)
    if action is Action.COMPARE:
        return _compare(rest, here)
    if action is Action.QUEUE:
        found = parse_queue(rest, here)
        return ParsedCommand(action=found.action, sweep=_checked(found.sweep), queue=found.queue)
    words = unescape(rest).replace("`", "").split()
    total = ""
    if action is Action.EXTEND and words:
        total = words.pop()
    if action is Action.PAUSE and words and words[-1].lower() in PAUSE_MODES:
        action = PAUSE_MODES[words.pop().lower()]
    sweep = here or (words.pop(0).lower() if words else "")
    if here and words[:1] == [here]:
        words.pop(0)
    trial = words.pop(0).lower() if words and action in {Action.CANCEL, Action.LOGS} else ""
    if words or (action is Action.EXTEND and not re.fullmatch(r"trials=[1-9]\d{0,5}", total)):
        raise UserError(f"Usage: {COMMAND_USAGE[word]}. {SWEEP_USAGE}.")
    _checked(sweep)
    action = Action.KILL if action is Action.CANCEL and trial else action
    return ParsedCommand(action=action, sweep=sweep, trial=trial, trials=int(total.partition("=")[2] or 0))


def _checked(name: str) -> str:
    if name and not TYPED_NAME.fullmatch(name):
        shown = shortened(name).replace("`", "")
        raise UserError(f"`{shown}` isn't a sweep name. Names look like `lr-brave-otter`.")
    return name


def _compare(rest: str, here: str) -> ParsedCommand:
    typed = [_checked(each.lower()) for each in unescape(rest).replace("`", "").replace(",", " ").split()]
    names = list(dict.fromkeys([*([here] if here else []), *typed]))
    if not 2 <= len(names) <= MAX_SWEEPS:
        usage = f"Usage: {COMMAND_USAGE['compare']}, 2 to {MAX_SWEEPS} of them."
        raise UserError(f"{usage} SWEEP is a sweep's name, or a part of it.")
    return ParsedCommand(action=Action.COMPARE, sweep=names[0], others=tuple(names[1:]))


def _new_sweep(action: Action, rest: str, here: str) -> ParsedCommand:
    first, *others = rest.split(maxsplit=1)[:2] or [""]
    named = _checked(first.replace("`", "").lower()) if "=" not in first else ""
    return ParsedCommand(action=action, sweep=here or named, changes="".join(others) if named else rest)


def choose(parsed: ParsedCommand, user: str, sweeps: Sequence[SweepSummary], config: Config) -> ParsedCommand:
    """Complete the sweeps' ids. Raises UserError with the matching sweeps."""
    each = (replace(parsed, sweep=other, others=()) for other in parsed.others)
    others = tuple(_chosen(other, user, sweeps, config).sweep for other in each)
    return replace(_chosen(parsed, user, sweeps, config), others=others)


def _chosen(
    parsed: ParsedCommand, user: str, sweeps: Sequence[SweepSummary], config: Config
) -> ParsedCommand:
    """Complete the id of one sweep."""
    if not parsed.sweep:
        return replace(parsed, sweep=_only_one(parsed.action, [s for s in sweeps if s.user == user]))
    if any(sweep.id == parsed.sweep for sweep in sweeps):
        return parsed
    there = [sweep for sweep in sweeps if sweep.phase is not Phase.REFUSED]
    found = [s for s in there if is_meant(s.id, parsed.sweep)]
    fits = [sweep.id for sweep in _fitting(parsed.action, user, found, config)]
    if len(fits) == 1:
        return replace(parsed, sweep=fits[0])
    if fits:
        raise UserError(f"`{parsed.sweep}` matches several sweeps. Name one: {_listed(fits)}.")
    if by_trial := _of_trial(parsed, user, there):
        return by_trial
    if parsed.sweep.count("-") >= 2 and SWEEP_ID.fullmatch(parsed.sweep):  # perhaps only in the cluster
        return parsed
    known = [sweep.id for sweep in there if sweep.live or sweep.user == user]
    raise UserError(f"No sweep named `{parsed.sweep}`.{did_you_mean(parsed.sweep, known)}")


def _fitting(
    action: Action, user: str, found: Sequence[SweepSummary], config: Config
) -> Sequence[SweepSummary]:
    """Return the matches that the action applies to: other users' final sweeps make no name ambiguous.

    A command that changes a sweep never prefers one of several that the user controls.
    """
    live, ended = _active(action, found), [s for s in found if not s.live]
    if action in FOR_ACTIVE or action is Action.EXTEND:
        fits = live if action in FOR_ACTIVE else ended
        return [s for s in fits if controls(user, s.user, config)] or fits or found
    mine = [s for s in found if s.user == user]
    return [s for s in mine if s.live] or mine or live or found


def _active(action: Action, sweeps: Iterable[SweepSummary]) -> list[SweepSummary]:
    """Return the live sweeps in whose state the action is allowed."""
    live = [sweep for sweep in sweeps if sweep.live]
    if action is Action.RESUME:  # a sweep can also be resumed before its last trials have finished
        return [sweep for sweep in live if sweep.phase is Phase.PAUSED] or live
    return [sweep for sweep in live if _applies(action, sweep)]


def _applies(action: Action, sweep: SweepSummary) -> bool:
    if action is Action.OPEN:
        return sweep.gated
    if action is Action.RETRY:
        return sweep.phase is Phase.HELD
    if action in QUEUE_COMMANDS.values():
        return sweep.queued and sweep.phase is not Phase.STOPPING
    return action not in PAUSES or sweep.phase is not Phase.PAUSED


def _of_trial(parsed: ParsedCommand, user: str, there: Sequence[SweepSummary]) -> ParsedCommand | None:
    """Read the name as a trial's: all of it, or the end that Katib generated."""
    if parsed.trial or parsed.action not in {Action.CANCEL, Action.LOGS}:
        return None
    action = Action.KILL if parsed.action is Action.CANCEL else parsed.action
    whole = [sweep.id for sweep in there if parsed.sweep.startswith(f"{sweep.id}-")]
    if whole:
        return replace(parsed, action=action, sweep=max(whole, key=len), trial=parsed.sweep)
    if not TRIAL_SUFFIX.fullmatch(parsed.sweep):
        return None
    live = [sweep.id for sweep in there if sweep.live and sweep.user == user]
    if len(live) == 1:
        return replace(parsed, action=action, sweep=live[0], trial=parsed.sweep)
    word = "cancel" if parsed.action is Action.CANCEL else "logs"
    raise UserError(
        f"No sweep named `{parsed.sweep}`. If this is a trial, name its sweep too: "
        f"`/sweep {word} SWEEP {parsed.sweep}`."
    )


def _only_one(action: Action, mine: list[SweepSummary]) -> str:
    live = [sweep.id for sweep in _active(action, mine)]
    ended = [sweep.id for sweep in mine if not sweep.live and sweep.phase is not Phase.REFUSED]
    fits = live if action in FOR_ACTIVE else ended if action in OF_ENDED else live or ended
    if len(fits) == 1:
        return fits[0]
    if not fits:
        kind = NONE_FITS.get(action, "running sweeps" if action in FOR_ACTIVE else "sweeps")
        raise UserError(f"You have no {kind}. Name another sweep; see `/sweep list`.")
    raise UserError(f"Several of your sweeps match. Name one: {_listed(fits)}.")


def _listed(ids: list[str]) -> str:
    names = ", ".join(f"`{i}`" for i in ids[:MAX_CHOICES])
    return names + (f" and {len(ids) - MAX_CHOICES} more" if len(ids) > MAX_CHOICES else "")


def selected(which: str, user: str, sweeps: Iterable[SweepSummary], config: Config) -> list[SweepSummary]:
    """Return the sweeps that `list` shows; without a word, the user's own and all active ones."""
    team = team_of(config.teams, "", user)
    there = [s for s in sweeps if s.phase is not Phase.REFUSED]
    match which:
        case "" | "mine":
            return [s for s in there if s.user == user or (not which and s.live)]
        case "running":
            return [s for s in there if s.live]
        case "team" if team:
            return [s for s in there if team_of(config.teams, "", s.user) == team]
        case "team":
            raise UserError("You aren't in a team. Ask an admin to add you under `teams:`.")
    raise UserError(f"Unknown list “{shortened(unescape(which))}”. Usage: {COMMAND_USAGE['list']}.")
