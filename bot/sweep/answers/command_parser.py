"""Commands on existing sweeps, from /sweep or a mention in a thread: their table, and their sweeps. Pure.

A command and an optional sweep: `cancel`, `cancel otter`, `cancel lr-brave-otter k3x9z`. A partial or missing
name is resolved among the sweeps in Redis.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.core.budget import AMOUNT
from bot.core.commands import Action
from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID, is_meant
from bot.core.record import Phase
from bot.core.sweep_summary import SweepSummary
from bot.platform.commands.grammar import Command, Option, Parsed, Table, option_help
from bot.platform.commands.option_types import Choice, Matching, Number
from bot.platform.config.permissions import controls
from bot.platform.config.policy import Config
from bot.platform.config.teams import team_of
from bot.platform.slack.mrkdwn import plain
from bot.sweep.launch.options import BISECT, EXAMPLE, LAUNCH, OPTIONS, space_name
from bot.sweep.launch.promote import PROMOTE
from bot.text.wording import did_you_mean, shortened

MAX_SWEEPS = 6  # sweeps in one comparison; more lines in a chart are hard to tell apart
SEE, CHANGE, ADMINS = "See results", "Change a sweep", "Admins"
TYPED_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")  # of a sweep or a trial
BUDGET_RULE = "GPU-hours, for example 60, or money"
MAX_TOTAL = 999_999  # trials; the limit of the configuration is checked later


def _sweep(_key: str, text: str, _context: Any) -> str:
    if not TYPED_NAME.fullmatch(text.lower()):
        shown = shortened(text).replace("`", "")
        raise UserError(f"`{shown}` isn't a sweep name. Names look like `lr-brave-otter`.")
    return text.lower()


def _trial(_key: str, text: str, _context: Any) -> str:
    """Read a trial's name or its end; Katib's ends have no vowel, so a word of a sentence is none."""
    if not re.search(r"[0-9-]|^[^aeiou]+$", text.lower()):
        raise UserError(f"`{shortened(text).replace('`', '')}` isn't a trial.")
    return text.lower()


def _target(key: str, text: str, _context: Any) -> str:
    return Matching("[a-z0-9.-]{1,63}", "a queue's name")(key, text.lower(), None)


SWEEP = Option(
    "sweep",
    _sweep,
    word=True,
    hint="SWEEP is a sweep's name, or a part of it; omit it if only one of your sweeps matches.",
)
SWEEPS = Option("sweep", _sweep, word=True, many=True, hint="SWEEP is a sweep's name, or a part of it.")
TRIAL = Option("trial", _trial, word=True)
LIST = Option(
    "list",
    Choice(("mine", "running", "team")),
    word=True,
    means={"my": "mine", "i": "mine", "my team": "team", "anyone": "running", "anything": "running"},
)
MODE = Option(
    "mode",
    Choice({"now": Action.PAUSE_NOW, "after-trials": Action.PAUSE}),
    word=True,
    means={"immediately": "now", "right now": "now", "for now": "after-trials"},
)
TOTAL = Option("trials", Number(1, MAX_TOTAL), example="20", required=True, said=("total", "points"))
TO_QUEUE = Option("queue", _target, example="NAME", required=True, after=("to", "in", "into"))
TO_BUDGET = Option("budget", Matching(AMOUNT.pattern, BUDGET_RULE), example="60", required=True)
REASON = Option(
    "reason", Matching(r"[^\n]{1,200}", "one line of up to 200 characters"), example="WHY", free=True
)
METRIC = Option("metric", Matching(r"[\w./ :%()-]{1,100}", "a metric's name"), example="NAME", free=True)
SPACE = Option("space", space_name, word=True, required=True)


def _see(name: str, does: Action | None, options: tuple[Option, ...], meaning: str, said: str) -> Command:
    return Command(name, does, options, SEE, meaning, answers=True, said=said)


def _change(name: str, does: Action, options: tuple[Option, ...], meaning: str, said: str = "") -> Command:
    return Command(name, does, options, CHANGE, meaning, said=said)


OF_LIST = (
    "what are my sweep, list my sweep, sweep running, what running, anyone running, anything running, "
    "sweep team, sweep my team, show sweep, active sweep, who running, everyone running, all sweep, "
    "which sweep, what sweep have, what run, list run, my run, current sweep, squeue me, ls, ps, top, "
    "show all, overview"
)
OF_STATUS = (
    "progress, how, how sweep doing, how sweep going, doing, going, state, what about, eta, done, "
    "why wait, why start, when start, when sweep start, why not run, when done, when finish, when end, "
    "how long, so long, happen, news my sweep, still running, finish, stuck, time left, "
    "what happen my sweep, update, news, remaining, who start, who own, alive, slow, percent, "
    "trial left, trial done, how many trial done, where at, where sweep, wait, still wait, what up, "
    "sweep ok, how sweep, how my sweep"
)
OF_LOGS = (
    "log, show log, output, show output, print, stdout, stderr, console, traceback, trace, stack trace, "
    "exception, error, what error, why fail, why crash, last line, tail"
)
OF_RESULTS = (
    "result, best, best trial, best run, my best run, best result, best so far, best parameter, "
    "best value, table, csv, download, export, winner, won, top trial, leaderboard, score, outcome, "
    "how did do, what get, number, final metric"
)
OF_CURVES = (
    "curve, plot, loss plot, loss curve, training curve, learning curve, chart, graph, picture, draw, "
    "visualize"
)
OF_CANCEL = (
    "stop, kill, delete, abort, terminate, end, quit, stop sweep, cancel sweep, cancelled, scancel, "
    "shut down, dont need, no longer need, get rid, pull plug"
)
OF_DRAIN = (
    "no new trial, no more trial, dont start trial, dont start new, no new, finish running, "
    "start no more, wind down, stop after trial, stop after current, stop after running"
)
OF_OPEN = "start all trial, all trial now, run all anyway, start other trial, skip gate"
OF_HISTORY = (
    "best week, best since, best anyone, "
    "best result week, best result month, over time, how did over time, over week, best last, "
    "last week, best month, trend, best ever, best far, our best, our best result, record, improve, "
    "all time best"
)
OF_QUEUE = (
    "in queue, who queue, who wait, how many wait, wait gpu, where queue, position, show queue, "
    "what queue, how long queue, queue position, queue length, squeue, backlog, line, ahead me, in front"
)
STATUS = _see("status", Action.STATUS, (SWEEP,), "phase and progress", OF_STATUS)
COMPARE = _see(
    "compare",
    Action.COMPARE,
    (SWEEPS,),
    f"2 to {MAX_SWEEPS} ended sweeps",
    "better, which better, difference, versus, vs, differ, diff, against",
)
RERUN = replace(
    _change("rerun", Action.RERUN, (SWEEP, *OPTIONS), "repeat it with any option changed"),
    usage="[SWEEP] [trials=20]",
    said="again, once more, repeat, same, redo, like, run again, restart, relaunch, resubmit, requeue",
)
LISTING = replace(
    _see("list", None, (LIST,), "your sweeps and all running ones", OF_LIST), aliases=("my sweeps",)
)
COMMANDS = (
    LISTING,
    STATUS,
    _see("logs", Action.LOGS, (SWEEP, TRIAL), "the log of a trial or the build", OF_LOGS),
    _see("results", Action.RESULTS, (SWEEP,), "all trials, the best first", OF_RESULTS),
    _see("curves", Action.CURVES, (SWEEP, METRIC), "learning curves, including running trials", OF_CURVES),
    _see(
        "show",
        Action.SHOW,
        (SWEEP, TRIAL),
        "the last pictures that a trial logged",
        "show picture, show image, logged picture, sample, image, sample picture, video",
    ),
    COMPARE,
    _change("cancel", Action.CANCEL, (SWEEP, TRIAL), "cancel it, or one trial", OF_CANCEL),
    _change("drain", Action.DRAIN, (SWEEP,), "start no new trials", OF_DRAIN),
    _change(
        "pause",
        Action.PAUSE,
        (SWEEP, MODE),
        "hold until `resume`; `now` stops running trials",
        "suspend, hold, on hold, put hold, put pause, interrupt, pause sweep, freeze, halt",
    ),
    _change(
        "resume",
        Action.RESUME,
        (SWEEP,),
        "continue a paused sweep",
        "continue, unpause, go on, proceed, carry on, unfreeze, unsuspend, keep going",
    ),
    _change("open", Action.OPEN, (SWEEP,), "start all trials now", OF_OPEN),
    _change(
        "retry",
        Action.RETRY,
        (SWEEP,),
        "run the first trial on hold again",
        "try again, first trial again",
    ),
    _change(
        "extend",
        Action.EXTEND,
        (SWEEP, TOTAL),
        "run more trials, up to this total",
        "more trial, add trial, up to trial, raise total, continue to trial",
    ),
    _change(
        "raise",
        Action.BUDGET,
        (SWEEP, TO_BUDGET),
        "set a higher budget",
        "raise budget, increase budget, more budget, higher budget, set budget",
    ),
    _change("approve", Action.APPROVE, (SWEEP,), "start it above a budget", "allow"),
    _change("decline", Action.DECLINE, (SWEEP, REASON), "don't start it", "deny, reject"),
    RERUN,
    replace(
        PROMOTE,
        options=(SWEEP, *PROMOTE.options),
        group=CHANGE,
        meaning="repeat the best trial with seeds",
        said="best with seed, best parameter seed, best seed, repeat best, confirm best, run best seed",
    ),
    replace(
        BISECT,
        options=(SWEEP, *BISECT.options),
        group=CHANGE,
        meaning="find the commit that broke its first failed trial",
        said="which commit, which commit broke, what commit broke, commit that broke, find commit, culprit",
    ),
    replace(_see("queue", Action.QUEUE, (), "who waits for what", OF_QUEUE), group=CHANGE),
    _change(
        "queue raise",
        Action.RAISE,
        (SWEEP,),
        "the next higher priority",
        "raise priority, higher priority, increase priority, more priority, prioritize, bump, "
        "more important, high priority, urgent",
    ),
    _change(
        "queue lower",
        Action.LOWER,
        (SWEEP,),
        "the next lower priority",
        "lower priority, reduce priority, decrease priority, deprioritize, less important, low priority",
    ),
    _change(
        "queue move",
        Action.MOVE,
        (SWEEP, TO_QUEUE),
        "to another queue",
        "move queue, other queue, switch queue, change queue",
    ),
    _change("queue hold", Action.HOLD, (SWEEP,), "keep waiting trials out of the queue"),
    _change("queue release", Action.UNHOLD, (SWEEP,), "put held trials back"),
)
CHANNEL_COMMANDS = (  # about no single sweep
    replace(
        _see("history", Action.HISTORY, (SPACE,), "a space's best results by week", OF_HISTORY),
        usage="space=lr",
    ),
    Command("setup", None, (), ADMINS, "a channel's repository and daily digest", said="set up, configure"),
)
TABLE = Table(prefix="/sweep", commands=(LAUNCH, *COMMANDS))
QUEUED = {Action.RAISE, Action.LOWER, Action.MOVE, Action.HOLD, Action.UNHOLD}
PAUSES = {Action.PAUSE, Action.PAUSE_NOW}
APPROVALS = {Action.APPROVE, Action.DECLINE}
OF_ENDED = {Action.EXTEND, Action.PROMOTE, Action.BISECT}
FOR_ACTIVE = {Action.CANCEL, Action.KILL, Action.DRAIN, Action.RESUME, Action.OPEN, Action.RETRY, *PAUSES}
FOR_ACTIVE |= QUEUED | APPROVALS | {Action.BUDGET}
NONE_FITS = {
    Action.OPEN: "sweeps that wait for their first trial",
    Action.RETRY: "sweeps on hold",
    **dict.fromkeys(QUEUED, "sweeps in a Kueue queue"),
    **dict.fromkeys(OF_ENDED, "finished sweeps"),
    **dict.fromkeys(APPROVALS, "sweeps that wait for approval"),
}
MAX_CHOICES = 8  # sweeps in an error
# The end of a trial's name: Katib appends eight characters of k8s.io/apimachinery's rand.String; users can
# type the last few of them.
TRIAL_SUFFIX = re.compile(r"(?=.*[2-9])[a-z0-9]{3,8}|[bcdfghjklmnpqrstvwxz]{8}")


@dataclass(frozen=True, kw_only=True)
class ParsedCommand:
    action: Action
    sweep: str = ""  # as typed; "" if omitted
    trial: str = ""
    others: tuple[str, ...] = ()  # compare: the other sweeps
    options: Mapping[str, Any] = field(default_factory=dict)  # the others that a `Command` has, by its fields


def parse_command(text: str, here: str = "") -> ParsedCommand:
    """Parse a command on an existing sweep. Raises UserError with the usage.

    `here` is the sweep in whose thread the command was written; "" elsewhere.
    """
    parsed = TABLE.parse(text, given={"sweep": here} if here else {})
    action, command = parsed.command.does, parsed.command
    if action and action.starts_sweep:
        return _new_sweep(parsed)
    values = parsed.values()
    action = values.pop("mode", action)
    if action is Action.COMPARE:
        names = [*dict.fromkeys(values.get("sweep", ()))]
        if not 2 <= len(names) <= MAX_SWEEPS:
            raise UserError(f"Usage: {TABLE.usage(command)}. {SWEEPS.hint}")
        return ParsedCommand(action=action, sweep=names[0], others=(*names[1:],))
    action = Action.KILL if action is Action.CANCEL and "trial" in values else action
    subject = {key: values.pop(key) for key in ("sweep", "trial") if key in values}
    return ParsedCommand(action=action, **subject, options=values)


def _new_sweep(parsed: Parsed) -> ParsedCommand:
    """Return the command with its changes as typed: a worker checks them by the configuration."""
    named = {key: value for key, value in parsed.options.items() if key == "sweep"}
    sweep = replace(parsed, options=named).values().get("sweep", "")
    changes = replace(parsed, options={k: v for k, v in parsed.options.items() if k not in named})
    typed = {"changes": plain(changes.typed)} if changes.options else {}
    return ParsedCommand(action=parsed.command.does, sweep=sweep, options=typed)


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
        return sweep.first_only
    if action is Action.RETRY:
        return sweep.phase is Phase.HELD
    if action in QUEUED:
        return sweep.queued and sweep.phase is not Phase.STOPPING
    return action not in PAUSES or sweep.phase is not Phase.PAUSED


def _of_trial(parsed: ParsedCommand, user: str, there: Sequence[SweepSummary]) -> ParsedCommand | None:
    """Read the name as a trial's: all of it, or the end that Katib generated."""
    if parsed.trial or parsed.action not in {Action.CANCEL, Action.LOGS, Action.SHOW}:
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
    word = {Action.CANCEL: "cancel", Action.SHOW: "show"}.get(parsed.action, "logs")
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
    if which == "running":
        return [s for s in there if s.live]
    if which != "team":
        return [s for s in there if s.user == user or (not which and s.live)]
    if not team:
        raise UserError("You aren't in a team. Ask an admin to add you under `teams:`.")
    return [s for s in there if team_of(config.teams, "", s.user) == team]


def help_text(table: Table) -> str:
    """Return the answer to `/sweep help`, with all commands of a table."""
    return f"""*Start a sweep*
• `/sweep` opens a form.
• {EXAMPLE} builds the branch and runs the search in its `sweeps/lr.yaml`, one GPU per trial.
• `/sweep branch=main seeds=5 cmd="python train.py"` runs a command once with each seed, and reports mean \
and deviation.
*Options*
{option_help(OPTIONS)}
{table.help_of(SEE)}
{table.help_of(CHANGE)}
Name a sweep by its full name, or by a part of it: `/sweep logs otter`.
*More*
• In your own words: `lr on main with 4 GPUs`, `who has the GPUs?`, `stop my sweep`. You see what \
was understood; nothing starts before you click.
• In a sweep's thread, mention me: `@sweepbot logs`. Elsewhere, mention me or send me a direct message.
• `/gpus` shows free GPUs; `/gpus help` lists all views.
• `/env help`: research environments, where an admin has configured them
{table.help_of(ADMINS)}"""
