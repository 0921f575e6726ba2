"""Commands on existing sweeps: their table with its help, the words that mean them, which sweep a partial or
missing name means, or why none does, and what `list` shows. Pure.

A command and an optional sweep: `cancel`, `cancel otter`, `cancel lr-brave-otter k3x9z`. A partial or missing
name is resolved among the sweeps in Redis.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.core.budget import AMOUNT, RULE
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
MAX_TOTAL = 999_999  # trials; the limit of the configuration is checked later


def _sweep(_key: str, text: str, _context: Any) -> str:
    if not TYPED_NAME.fullmatch(text.lower()):
        shown = shortened(text).replace("`", "")
        raise UserError(f"`{shown}` isn't a sweep name. Names look like `lr-brave-otter`.")
    return text.lower()


def _trial(_key: str, text: str, _context: Any) -> str:
    """Read a trial's name or its end; Katib's ends have no vowel, so a word of a sentence is none."""
    if not re.fullmatch(r"(?=.*[0-9-]|[^aeiou]+$)[a-z0-9-]+", text.lower()):
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
    Choice(("mine", "running", "team", "failed")),
    word=True,
    means={"my": "mine", "i": "mine", "my team": "team"}
    | dict.fromkeys(("fail", "died", "crashed", "broken", "my failed", "my crashed", "failing"), "failed"),
)
MODE = Option(
    "mode",
    Choice({"now": Action.PAUSE_NOW, "after-trials": Action.PAUSE}),
    word=True,
    means={"immediately": "now", "right now": "now", "for now": "after-trials"},
)
TOTAL = Option("trials", Number(1, MAX_TOTAL), example="20", required=True, said=("total", "points"))
TO_QUEUE = Option("queue", _target, example="NAME", required=True, after=("to", "in", "into"))
TO_BUDGET = Option("budget", Matching(AMOUNT.pattern, RULE.format("$100")), example="60", required=True)
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
    "overview each-sweep summary-each summary-my summary-sweep status-all squeue ls ps i-run we-run "
    "did-i-run did-we-run mine running team everything-run everyone-sweep anything-finish anything-run "
    "anything-done "
    "what-finish how-many-sweep "
    "(my i what which show all every everyone anyone anything everything who run active current sweep "
    "recent past "
    "lately have fail finish team today)"
)
OF_STATUS = (
    "progress how how-long going doing eta done finish update any-news stuck happen alive remaining percent "
    "state slow wait info so-long what-up still-running sweep-ok time-left what-about where-we-with "
    "why-isn why-hasn "
    "any-new catch-up health healthy whats-up check-on look-ok still-go still-alive far-along getting-on "
    "how-far doing-ok in-trouble hows howz behave "
    "(why when where not running own who start left trial end ok take looking sweep up at did still yet "
    "reason think expect hour until cost price)"
)
OF_LOGS = (
    "log output print stdout stderr console traceback trace exception error tail last-line stack-trace "
    "error-message what-say "
    "(why fail crash what show reason message)"
)
OF_RESULTS = (
    "result produce usable best beat baseline good-enough table csv download export leaderboard score "
    "outcome number "
    "metric how-did what-get "
    "top-trial top promising anything-good learn-from find ranking champion highest lowest "
    "best-configuration best-parameter which-parameter any-good go-with optimum optimal "
    "(trial run parameter value what get show how did do which accuracy final loss yet)"
)
OF_CURVES = (
    "curve plot chart graph draw visualize trajectory loss-look how-loss loss-go converge overfit diverge "
    "(loss train learning show accuracy over epoch step)"
)
OF_CANCEL = (
    "stop kill delete abort terminate end quit can-cancelled shut-down get-rid pull-plug dont-need "
    "no-longer-need scrap ditch withdraw retract nuke drop axe trash discard shut-off call-off take-down "
    "bin-it get-off take-off "
    "put-out-misery remove (sweep everything)"
)
OF_DRAIN = (
    "wind-down let-finish nothing-new no-new-trial no-more-trial dont-start-new dont-start-trial "
    "dont-start-any start-no-more run-out without-start without-new wrap-up-trial ramp-down phase-out "
    "no-further-trial finish-current finish-run stop-new stop-launch-new stop-start-new stop-schedule "
    "(dont-start no new more trial finish after current running stop)"
)
OF_OPEN = (
    "gate start-all run-all launch-all open-all skip-gate release-rest start-rest "
    "(start run trial all now anyway skip rest)"
)
OF_HISTORY = (
    "best trend record improve ever our-best over-time all-time best-week best-month "
    "best-result-week ever-tried we-tried tried-before last-time-we we-get historically so-far-this history "
    "earlier-sweep past-sweep previous-sweep swept since-monday past-week past-month "
    "(month week since last ever our anyone over time better far before tried time result)"
)
OF_QUEUE = (
    "squeue backlog position line ahead wait who-wait how-long-queue queue-look in-queue queue-like "
    "stuck-queue "
    "ahead-me ahead-us in-front front-me front-us before-me before-us my-turn how-long-line whats-next "
    "(who how-many where long front gpu anything stuck which next look)"
)
STATUS = _see("status", Action.STATUS, (SWEEP,), "phase and progress", OF_STATUS)
COMPARE = _see(
    "compare",
    Action.COMPARE,
    (SWEEPS,),
    f"2 to {MAX_SWEEPS} ended sweeps",
    "better difference versus vs differ diff against (which between)",
)
RERUN = replace(
    _change("rerun", Action.RERUN, (SWEEP, *OPTIONS), "repeat it with any option changed"),
    usage="[SWEEP] [trials=20]",
    said="again run-it-back run-back once-more usual repeat same redo like restart relaunch resubmit requeue "
    "re-run rerunning "
    "another-round one-more-time do-over copy-of clone duplicate encore reproduce (run start another round)",
)
LISTING = replace(
    _see("list", None, (LIST,), "your sweeps and all running ones", OF_LIST), aliases=("my sweeps",)
)
OPEN = _change("open", Action.OPEN, (SWEEP,), "start all trials now", OF_OPEN)
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
        "picture sample video (show logged)",
    ),
    COMPARE,
    _change("cancel", Action.CANCEL, (SWEEP, TRIAL), "cancel it, or one trial", OF_CANCEL),
    _change("drain", Action.DRAIN, (SWEEP,), "start no new trials", OF_DRAIN),
    _change(
        "pause",
        Action.PAUSE,
        (SWEEP, MODE),
        "hold until `resume`; `now` stops running trials",
        "suspend hold interrupt freeze halt put-on-hold on-hold put-on-ice take-break park (put on sweep)",
    ),
    _change(
        "resume",
        Action.RESUME,
        (SWEEP,),
        "continue a paused sweep",
        "continue unpause go-on proceed carry-on unfreeze unsuspend keep-going pick-up pick-back-up wake-up "
        "let-go let-continue restart-pause (let keep going back)",
    ),
    OPEN,
    _change(
        "retry",
        Action.RETRY,
        (SWEEP,),
        "run the first trial on hold again",
        "try-again (try first trial again)",
    ),
    _change(
        "extend",
        Action.EXTEND,
        (SWEEP, TOTAL),
        "run more trials, up to this total",
        "more-trial extra-trial additional-trial bump-trial raise-trial increase-trial longer-run run-longer "
        "(more trial add up to total raise continue until extra additional further longer give)",
    ),
    _change(
        "raise",
        Action.BUDGET,
        (SWEEP, TO_BUDGET),
        "set a higher budget",
        "more-budget bigger-budget more-gpu-hour more-hour raise-budget increase-budget (raise increase "
        "more higher budget set double money bump allow)",
    ),
    _change("approve", Action.APPROVE, (SWEEP,), "start it above a budget", "allow"),
    _change("decline", Action.DECLINE, (SWEEP, REASON), "don't start it", "deny reject"),
    RERUN,
    replace(
        PROMOTE,
        options=(SWEEP, *PROMOTE.options),
        group=CHANGE,
        meaning="repeat the best trial with seeds",
        said="seed promote ship ship-best use-best take-best finalize finalise productionize winner-seed "
        "(best repeat confirm run winner verify reproduce check)",
    ),
    replace(
        BISECT,
        options=(SWEEP, *BISECT.options),
        group=CHANGE,
        meaning="find the commit that broke its first failed trial",
        said="commit culprit regression which-change what-change who-break (which find fail change break "
        "introduce since git)",
    ),
    replace(_see("queue", Action.QUEUE, (), "who waits for what", OF_QUEUE), group=CHANGE),
    _change(
        "queue raise",
        Action.RAISE,
        (SWEEP,),
        "the next higher priority",
        "priority urgent push-up up-queue asap prioritize prioritise bump important ahead-other run-ahead "
        "jump-ahead move-ahead jump-queue jump-line front-queue "
        "top-queue move-up move-front run-first go-first expedite speed-up boost hurry "
        "(raise higher increase more high first before ahead front top up faster sooner)",
    ),
    _change(
        "queue lower",
        Action.LOWER,
        (SWEEP,),
        "the next lower priority",
        "lower priority isn-urgent not-urgent less-urgent deprioritize deprioritise can-wait no-rush "
        "back-queue end-queue let-other yield "
        "(reduce decrease less important low other down)",
    ),
    _change(
        "queue move",
        Action.MOVE,
        (SWEEP, TO_QUEUE),
        "to another queue",
        "move switch transfer reassign (queue other change put to into)",
    ),
    _change("queue hold", Action.HOLD, (SWEEP,), "keep waiting trials out of the queue"),
    _change("queue release", Action.UNHOLD, (SWEEP,), "put held trials back"),
)
HISTORY = replace(
    _see("history", Action.HISTORY, (SPACE,), "a space's best results by week", OF_HISTORY), usage="space=lr"
)
CHANNEL_COMMANDS = (  # about no single sweep
    HISTORY,
    Command("setup", None, (), ADMINS, "a channel's repository and daily digest", said="set-up configure"),
)
TABLE = Table(prefix="/sweep", commands=(LAUNCH, *COMMANDS))
QUEUED = {Action.RAISE, Action.LOWER, Action.MOVE, Action.HOLD, Action.UNHOLD}
PAUSES = {Action.PAUSE, Action.PAUSE_NOW}
APPROVALS = {Action.APPROVE, Action.DECLINE}
OF_ENDED = {Action.EXTEND, Action.PROMOTE, Action.BISECT}
NEEDS_END = {Action.PROMOTE, Action.COMPARE}
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
    found = replace(_chosen(parsed, user, sweeps, config), others=others)
    if twice := [each for each in others if each == found.sweep or others.count(each) > 1]:
        raise UserError(f"Two of the names mean `{twice[0]}`. Name each sweep once, by more of its name.")
    if found.action is Action.RETRY and any(s.id == found.sweep and not s.live for s in sweeps):
        raise UserError(f"`{found.sweep}` has ended. Run it again: `/sweep rerun {found.sweep}`.")
    return found


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
    if action in NEEDS_END:
        return [s for s in mine if not s.live] or mine or ended or found
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
    if which == "failed":
        return [s for s in there if s.user == user and s.phase is Phase.FAILED]
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
