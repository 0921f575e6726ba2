"""The options of a new sweep: how each is written (`max_hours=2h`), limits, help, fields of the form, and the
words that mean it in a sentence. Pure.
"""

import re
from collections.abc import Callable
from typing import Any

from bot.core.budget import read_budget
from bot.core.commands import Action
from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.core.ids import SWEEP_ID
from bot.core.request import Notify
from bot.core.seeds import parse_seeds, seeds_option
from bot.core.space import ALGORITHMS, MetricSource
from bot.platform.commands.grammar import Command, Option
from bot.platform.commands.option_types import IN_HOURS, PERIODS, Choice, Matching, Number, Type, invalid
from bot.platform.config.limits import A_MINUTE, MAX_HOURS
from bot.platform.config.policy import GOALS, Config, prebuilt_image, repository
from bot.platform.config.queues import PRIORITIES
from bot.sweep.spaces.algorithms import REJECTED_ALGORITHMS
from bot.sweep.spaces.bounds import read_where
from bot.sweep.spaces.metrics import METRIC_NAME, NAME_RULE, path_objection
from bot.sweep.spaces.space_keys import RESOURCES, SpaceFile
from bot.text.wording import did_you_mean

ARGUMENTS = "branch=main gpus=1 space=lr"
EXAMPLE = f"`/sweep {ARGUMENTS}`"
AUTO = "auto"  # of parallel=
MAX_NAME = 30  # characters
MAX_BRANCHES = 4  # of one sweep
PREFIX_MIN = 3  # letters that abbreviate an algorithm's name
TIMES = {**IN_HOURS, **dict.fromkeys(("minute", "minutes", "min", "mins", "m"), 1 / 60)}  # of max_hours=
MEANT_HOURS = {"hour": "1", "half hour": "0.5", "hour and half": "1.5", "quarter hour": "0.25"}
MEANT_HOURS |= {"quarter of hour": "0.25", "three quarters of hour": "0.75"}
SPACE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
SPACE_RULE = (
    "a file name from sweeps/ without .yaml (lowercase letters, digits, dashes, underscores), for example "
    "space=lr"
)
# What git check-ref-format rejects; a leading dash, which git would read as an option; #, which ends the
# branch in the URL that Kaniko gets; and $(, which Kubernetes expands.
INVALID_REF = r"^[-/.]|\$\(|[\x00-\x20\x7f~^:?*#\[\\]|\.\.|//|/\.|@\{|\.lock(/|$)|[/.]$|^@$"


def _checked(check: Callable[[str, Config], object]) -> Type:
    """Return the type of a text that `check` accepts."""

    def read(_key: str, text: str, config: Config) -> str:
        check(text, config)
        return text

    return read


def space_name(key: str, text: str, _: Any = None) -> str:
    """Read the name of a space, also pasted from its file's path. Raises UserError."""
    name = re.sub(r"^sweeps/|\.ya?ml$", "", text.lower())
    if not SPACE_NAME.fullmatch(name):
        raise invalid(key, SPACE_RULE, text)
    return name


def _name(key: str, text: str, _: Config) -> str:
    if not 1 <= len(text) <= MAX_NAME or not text.isprintable() or not text.strip():
        raise invalid(key, f"1 to {MAX_NAME} characters on one line", text)
    return text


def _seeds(_key: str, text: str, config: Config) -> str:
    return seeds_option(parse_seeds(text, config.limits.trials))


class _Source(Choice):
    """A source of metrics, or the path of a file."""

    def __call__(self, key: str, text: str, context: Config) -> str:
        if not text.startswith("/"):
            return str(super().__call__(key, text, context))
        if why := path_objection(text):
            raise UserError(f"{key}= {why}.")
        return text


def is_auto(value: str) -> bool:
    """Return whether Sweepbot chooses the number of parallel trials."""
    return value.lower().partition(":")[0] == AUTO


def _parallel(key: str, text: str, config: Config) -> int:
    """Return the number, or for `auto` and `auto:8` the maximum."""
    if text.lower() == AUTO:
        return config.limits.parallel
    return Number(1, "parallel")(key, text.partition(":")[2] if is_auto(text) else text, config)


def _branch(key: str, text: str, config: Config) -> str:
    """Return the branch, or several to compare, with commas between."""
    named = (re.sub(r"^(?:refs/heads|origin)/", "", name.strip()) for name in text.split(","))
    names = [_one_branch(key, name, config) for name in named]
    if len(names) > MAX_BRANCHES or len({*names}) < len(names):
        raise invalid(key, f"a branch, or up to {MAX_BRANCHES} different ones to compare", text)
    return ",".join(names)


class _Algorithm(Choice):
    """A search algorithm, or the first letters of one."""

    def __call__(self, key: str, text: str, _: Config) -> str:
        name = text.lower()
        matches = [each for each in ALGORITHMS if len(name) >= PREFIX_MIN and each.startswith(name)]
        if name in ALGORITHMS or len(matches) == 1:
            return name if name in ALGORITHMS else matches[0]
        if why := REJECTED_ALGORITHMS.get(name):
            raise UserError(f"{key}={why}.")
        raise invalid(key, "a search algorithm", text, did_you_mean(name, ALGORITHMS))


def _max_hours(key: str, text: str, _: Config) -> float:
    """Read hours from one minute on; the upper bound only keeps the deadline a valid date."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?|\.[0-9]{1,6}) ?([a-z]*)", text.lower())
    hours = float(found[1]) * TIMES.get(found[2] or "h", 0) if found else 0
    if not A_MINUTE <= hours <= MAX_HOURS:
        raise invalid(key, f"a number of hours from 0.02 (one minute) to {MAX_HOURS}", text)
    return hours


def _budget(key: str, text: str, config: Config) -> str:
    try:
        read_budget(text, config.currency)
    except ValueError as error:
        raise invalid(key, str(error), text) from None
    return text


def _elsewhere(key: str) -> str:
    """Return where a value that isn't an option is set; "" if nowhere."""
    if key in SpaceFile.known():
        return f"Set `{key}:` in the space file."
    return "CPU and memory come with `gpus=` or `profile=` (a machine type)." if key in RESOURCES else ""


def queue_names(config: Config) -> list[str]:
    """Return the names of all queues, also of the teams'."""
    of_teams = [team.queue for team in config.teams if team.queue]
    return [each.name for each in config.queueing.queues] + of_teams


CODE, MACHINES, SEARCH, METRIC, QUEUE, MESSAGES = "Code", "Machines", "Search", "Metric", "Queue", "Messages"
OF_SPACE, DEFAULT = "Use the space's value", "Use the default"
SOURCES = {
    MetricSource.TENSORBOARD.value: "TensorBoard",
    MetricSource.STDOUT.value: "Output (stdout)",
    MetricSource.PUSH.value: "Katib's report_metrics (push)",
}
NOTIFY = {
    Notify.CHANNEL.value: "Mention me in the channel",
    Notify.DM.value: "Send me a direct message",
    Notify.NONE.value: "Thread only",
}
START = {"on": "One trial first, the others once it is healthy", "off": "All parallel trials at once"}
PARALLEL = (
    "in parallel",
    "at a time",
    "at once",
    "at same time",
    "trial at time",
    "trial at once",
    "trials in parallel",
    "trials at time",
    "trials at once",
    "parallel trials",
    "concurrent",
    "simultaneously",
)
# What a sentence says instead of a value.
AUTOMATIC = dict.fromkeys(
    ("whatever gpus are free", "all free gpus", "whatever is free", "any free gpus"), AUTO
)
FRESH = dict.fromkeys(("from scratch", "start fresh", "starting fresh", "fresh start"), "none")
WITHOUT_GPUS = {"without gpu": "0", "no gpu": "0", "on cpu": "0", "cpu only": "0"}
SEARCHES = {f"{name} search": name for name in ("random", "grid")} | dict.fromkeys(
    ("bayesian", "bayes", "bayesian optimization", "bayesian search"), "bayesianoptimization"
)
GOAL_WORDS = {"minimise": "minimize", "maximise": "maximize", "lowest": "minimize", "highest": "maximize"}
GOAL_WORDS |= {f"{word[:-1]}ing": word for word in GOALS}
GATE_WORDS = dict.fromkeys(("without gate", "no gate", "skip gate", "all at once"), "off")
PRIVATE = (
    *(
        "dm me",
        "message me",
        "ping me",
        "privately",
        "in private",
        "dms",
        "my dms",
        "only dm",
        "private message",
    ),
    *("let me know", "direct message", "direct messages"),
    *(f"{word} dm" for word in ("by", "in", "via", "through", "as")),
    *(f"tell me {word}" for word in ("when", "once", "if", "in")),
)
PUBLIC = ("post here", "post in here", "in this channel", "tell everyone", "in public")
SILENT = (
    *("quiet", "quietly", "silently"),
    *(f"don't {verb}" for verb in ("notify", "ping", "dm", "message", "tell", "mention", "tag")),
    *(
        f"{word} {verb}ing"
        for word in ("stop", "quit", "without")
        for verb in ("notify", "ping", "messag", "dm", "mention", "tagg")
    ),
    *(f"don't want to be {verb}" for verb in ("notified", "pinged", "messaged", "mentioned", "tagged")),
    *(
        f"{word} {kind}{noun}"
        for word in ("no", "no more", "stop", "stop all", "turn off", "disable", "without", "mute")
        for kind in ("", "channel ")
        for noun in ("notifications", "pings", "dms", "messages", "mentions")
    ),
)
NOTIFY_WORDS = dict.fromkeys(PRIVATE, "dm") | dict.fromkeys(PUBLIC, "channel") | dict.fromkeys(SILENT, "none")

URGENT = dict.fromkeys(("urgent", "urgently", "asap", "high priority", "high prio"), "high")
URGENT |= dict.fromkeys(("low priority", "low prio", "no rush", "no hurry", "not urgent"), "low")
SWITCH = {"true": "on", "yes": "on", "false": "off", "no": "off"}

_one_branch = Matching(f"(?s)(?!.*(?:{INVALID_REF})).+", "a branch or tag name")
_bounds = _checked(lambda text, _: read_where(text))
_cmd = Matching(r"(?s).*\S.*", 'a command, for example cmd="python train.py"')
_flags = Choice(tuple(FlagStyle), aliases={"hydra": FlagStyle.HYDRA.value})
_from = Matching(SWEEP_ID.pattern, "`auto`, `none`, or a sweep, for example from=lr-brave-otter")
_gate = Choice({"on": True, "off": False}, aliases=SWITCH, labels=START)
_goal = Choice(GOALS, labels={word: word.capitalize() for word in GOALS})
_metric = Matching(METRIC_NAME.pattern, NAME_RULE)
_metrics = _Source(tuple(SOURCES), labels=SOURCES)
_notify = Choice({each.value: each for each in Notify}, labels=NOTIFY)
_priority = Choice("queueing.priorities", "priority", labels={word: word.capitalize() for word in PRIORITIES})
_nodes, _numbers = Number(1, "nodes_per_trial"), "a number, or `auto` to follow free GPUs"
PARALLEL_HINT = "1 to {0}, auto, or auto:{0}"
NODES_HINT, HOURS_HINT = "Default: the space's or profile's", "For the whole sweep, for example: 12"
BUDGET_HINT = "GPU-hours, or money, such as $100"
SEEDS_HINT = "Instead of a space: 5, or 0-4,7"
FROM_HINT = "Best points of a sweep, or auto"
METRIC_HINT = CMD_HINT = "Default: the space's"
CMD = '`cmd="python train.py --epochs=3"`'

OPTIONS = (
    Option("space", space_name, CODE, after=("try", "tune", "sweep", "over", "run", "train")),
    Option(
        "branch",
        _branch,
        CODE,
        "or several to compare: `a,b`",
        said=("tag",),
        after=("on", "from", "off", "@"),
        commas=True,
    ),
    Option("repo", _checked(repository), CODE, "name or URL", said=("repository",)),
    Option("image", _checked(prebuilt_image), CODE, "prebuilt; skips the build"),
    Option("seeds", _seeds, SEARCH, "instead of a space", "Seeds", SEEDS_HINT, said=("random seeds",)),
    Option(
        "profile",
        Choice("profiles", "profile"),
        MACHINES,
        "machine type",
        "Profile",
        said=("machine type", "gpu type"),
    ),
    Option(
        "gpus",
        Number(0, "gpus_per_trial"),
        MACHINES,
        "",
        "GPUs per trial",
        "The profile's",
        said=("cards", "gpu each", "them"),
        means=WITHOUT_GPUS,
    ),
    Option(
        "nodes",
        _nodes,
        MACHINES,
        "machines per trial",
        "Nodes per trial",
        NODES_HINT,
        said=("machines", "hosts", "servers"),
    ),
    Option(
        "parallel",
        _parallel,
        SEARCH,
        _numbers,
        "Parallel trials",
        PARALLEL_HINT,
        said=PARALLEL,
        means=AUTOMATIC,
    ),
    Option(
        "trials",
        Number(1, "trials"),
        SEARCH,
        "",
        "Max trials",
        OF_SPACE,
        said=("runs", "points", "configurations"),
    ),
    Option(
        "algorithm",
        _Algorithm(ALGORITHMS),
        SEARCH,
        ", ".join(ALGORITHMS),
        "Algorithm",
        OF_SPACE,
        means=SEARCHES,
    ),
    Option(
        "from",
        _from,
        SEARCH,
        "a sweep, or `auto`: try its best points first",
        "Start from",
        FROM_HINT,
        after=("from",),
        means=FRESH,
    ),
    Option("where", _bounds, SEARCH, '`where="batch_size<512"` bounds parameters', free=True),
    Option(
        "metric",
        _metric,
        METRIC,
        "",
        "Metric",
        METRIC_HINT,
        after=(*GOALS, *GOAL_WORDS, "optimize", "optimizing", "optimise"),
    ),
    Option("goal", _goal, METRIC, "", "Goal", OF_SPACE, means=GOAL_WORDS),
    Option("metrics", _metrics, METRIC, "`stdout`, `push`, or a file", "Metrics from", OF_SPACE),
    Option("flags", _flags, CODE, "`a.b=1` for Hydra, `env`", "Pass parameters as", OF_SPACE),
    Option("cmd", _cmd, CODE, CMD, "Command", CMD_HINT, free=True, said=("command",)),
    Option("gate", _gate, SEARCH, "`off`: don't run one trial first", "Start", DEFAULT, means=GATE_WORDS),
    Option(
        "max_hours",
        _max_hours,
        SEARCH,
        "for the whole sweep",
        "Max hours",
        HOURS_HINT,
        said=("hours", "hour", "h", "hr", "hrs"),
        means=PERIODS | MEANT_HOURS,
        units=TIMES,
    ),
    Option(
        "budget",
        _budget,
        SEARCH,
        "GPU-hours, or money (`$100`)",
        "Budget",
        BUDGET_HINT,
        said=("gpu hours", "gpu-hours", "gpuh", "spend", "spend more than"),
    ),
    Option("cluster", Choice("clusters", "cluster"), MACHINES, "", "Cluster", "Where most GPUs are free"),
    Option("queue", Choice(queue_names, "queue"), QUEUE, "", "Queue", DEFAULT),
    Option("priority", _priority, QUEUE, "`low`, `normal`, or `high`", "Priority", DEFAULT, means=URGENT),
    Option("name", _name, MESSAGES, free=True, said=("called", "call it", "name it", "named")),
    Option(
        "notify",
        _notify,
        MESSAGES,
        "`channel`, `dm`, or `none`",
        "Notify on first failure and at the end",
        means=NOTIFY_WORDS,
    ),
)
STARTERS = ("run", "start", "launch", "new", "sweep", "form")  # optional first word
STARTS = (
    "try tune train kick-off need what-space which-space list-space show-space what-branch which-branch "
    "what-profile which-profile list-profile what-repo which-repo which-cluster what-cluster list-branch "
    "open-form show-form fill-form form spin-up fire-up fire-off give-spin give-go give-whirl queue-up "
    "submit schedule-sweep "
    "(start new run launch sweep want)"
)
LAUNCH = Command("", None, OPTIONS, usage=ARGUMENTS, aliases=STARTERS, said=STARTS, elsewhere=_elsewhere)
GOOD = Option("good", Matching("[0-9a-f]{7,40}", "a commit's hash"), example="COMMIT")
BISECT = Command("bisect", Action.BISECT, (GOOD,))
