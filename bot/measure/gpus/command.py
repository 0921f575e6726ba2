"""Parse `/gpus`, with its help and the words that mean its commands, and answer `free`, `mine`, `team`,
`nodes`, and `now` from a snapshot; the button that asks owners. Pure.
"""

import re
from calendar import month_name
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.models import BUSY, HALF_HOUR, HOUR, ClusterGpus, NodeUse, PodUse, Snapshot, mean_load
from bot.platform.commands.grammar import Command, Option, Table
from bot.platform.commands.option_types import Choice, invalid
from bot.platform.config.policy import Config
from bot.platform.slack.blocks import MAX_BUTTON_VALUE, Block, actions, button, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, local_time, mention, quoted
from bot.text.number_format import hours, percent
from bot.text.wording import IF_NOTHING_APPEARS, counted, fitting, listed
from k8s.nodes.dcgm import Load
from k8s.nodes.gpu_pods import is_placeholder

SNAPSHOT_MAX_AGE = timedelta(seconds=60)  # a younger snapshot needs no new measurement
MAX_ANSWER = 2900  # characters
VIEWS = {
    "free": "free GPUs by model, and the largest block",
    "mine": "your pods with GPUs, and how busy they are",
    "team": "allocated and idle GPUs by team",
    "nodes": "free GPUs by node",
    "now": "all pods with GPUs, idle ones first",
}
LOADING = f"Loading GPU data… {IF_NOTHING_APPEARS}"
GROUP = "GPUs"
ALIASES = {"free": ("",), "team": ("by team", "teams"), "nodes": ("by node", "by nodes", "node")}


SAID = {
    "free": "how-many-gpu-idle available capacity room full left sinfo slot headroom vacant unoccupied "
    "busy-cluster cluster-busy "
    "(any out many get cluster busy anything what can there how-many how-busy now today tonight load)",
    "mine": "my-gpu i-use-any i-use-gpu i-hold (my i mine use have busy hold)",
    "team": "by-team each-team per-team (by use how-much)",
    "nodes": "(by which per node machine free show busy)",
    "now": "who whose idle doing-nothing hog utilization utilisation nvidia-smi nvtop gpustat sit-on waste "
    "(use has have all busy cluster which now student user people person colleague anyone someone "
    "everyone take)",
}
OF_BILL = (
    "cost price money invoice how-much how-expensive gpu-hour dollar euro consume charge usage-month "
    "usage-week "
    "budget-left my-budget budget-use cost-per-team spend-per-team our-budget over-budget under-budget "
    "team-budget "
    "(what month this-month team week quarter year much many total spend consume bill)"
)


MONTHS = [name.lower() for name in month_name[1:]]


class _Month(Choice):
    def __call__(self, key: str, text: str, _context: Any) -> str:
        number = next((at for at, name in enumerate(MONTHS, 1) if text.lower() in {name, name[:3]}), 0)
        if number or text.lower() == "last":
            return f"{number:02}" if number else "last"
        if written := re.fullmatch(r"(20\d\d)-(0?[1-9]|1[0-2])", text):
            return f"{written[1]}-{written[2]:0>2}"
        raise invalid(key, "2026-11 or last", text)


TEAM = Option("team", Choice("teams", "team"), word=True)
MONTH = Option("month", _Month(()), word=True, means={"last month": "last", "previous month": "last"})
BILLED = "GPU-hours and cost of this month, or of `2026-11` or `last`"
DIGEST = "post yesterday's digest in this channel (admins only)"
BILL_ACK = "Calculating the bill… It appears here in a moment."
DIGEST_ACK = "Posting yesterday's digest here. If nothing appears, run `/invite @sweepbot` in this channel."


@dataclass(frozen=True, kw_only=True)
class Later:
    """A command that a worker answers, because it is about more than a snapshot of current use.

    `answer`: of a workspace's command, given its name, the values of its options, and `user`, `channel`,
    `asked_at`, and `clients`.
    """

    ack: str
    admins_only: bool = False
    answer: Callable[..., Awaitable[str]] | None = None


COMMANDS = (
    *(
        Command(view, None, (), GROUP, text, aliases=ALIASES.get(view, ()), said=SAID[view], answers=True)
        for view, text in VIEWS.items()
    ),
    Command("bill", Later(ack=BILL_ACK), (TEAM, MONTH), GROUP, BILLED, said=OF_BILL, answers=True),
    Command(
        "digest",
        Later(ack=DIGEST_ACK, admins_only=True),
        (),
        GROUP,
        DIGEST,
        said="daily-summary yesterday-summary",
    ),
)


def table_of(more: Iterable[Command] = ()) -> Table:
    """Return the table of `/gpus`. `more`: commands of workspaces, each with a `Later`."""
    return Table(prefix="/gpus", commands=(*COMMANDS, *more), about="gpu")


ASK_OWNER = "gpus_ask_owner"  # action id


def ask_button(pods: Iterable[str]) -> Block:
    """Build the button that asks the owners of pods outside sweeps, as namespace/pod, about idle GPUs."""
    value = " ".join(pods)
    while len(value) > MAX_BUTTON_VALUE:
        value = value.rpartition(" ")[0]
    return button(ASK_OWNER, "Ask owners" if " " in value else "Ask owner", value)


@dataclass(frozen=True, kw_only=True)
class ParsedCommand:
    view: str
    team: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)  # of a workspace's command
    month: str = ""  # "2026-11", "11", "last", or "" for the current one
    later: Later | None = field(default=None, compare=False)  # None: a snapshot answers it


def parse_command(text: str, config: Config, table: Table) -> ParsedCommand:
    """Raises UserError, with a suggestion, for an unknown view, team, or month."""
    typed = table.parse(text, config)
    later, values = typed.command.does, typed.values(config)
    own = {"values": values} if later and later.answer else values
    return ParsedCommand(view=typed.command.name, later=later, **own)


def answer(view: str, known: Snapshot, user: str) -> str:
    last = f"Measured {local_time(known.at)}."
    return "\n".join([*fitting(ANSWERS[view](known, user), MAX_ANSWER - len(last)), last])


def shown(parts: Sequence[str], view: str, known: Snapshot, user: str) -> Message | str:
    """Return an answer, with a button if it lists idle GPUs of other people outside sweeps.

    Args:
        parts: texts, each of which fits a section.
        known: of the main cluster.
    """
    listed_pods = _idle_first(_working(known.pods), known.at) if view == "now" else []
    others = (pod for pod in listed_pods if not pod.sweep and pod.owner not in {"", user})
    pods = [f"{pod.namespace}/{pod.pod}" for pod in others if _idle(pod, known.at)]
    text = "\n".join(parts)
    return Message(text=text, blocks=(*map(section, parts), actions(ask_button(pods)))) if pods else text


def _span(time: timedelta) -> str:
    if time < timedelta(minutes=1):
        return "less than 1 min"
    return f"{time // timedelta(minutes=1)} min" if time < 2 * HOUR else f"{hours(time / HOUR)} h"


def _free(known: Snapshot, _: str) -> Iterator[str]:
    free, total = sum(node.free for node in known.nodes), sum(node.allocatable for node in known.nodes)
    if known.others:
        yield from _by_cluster(ClusterGpus(cluster=HOME_CLUSTER, free=free, total=total), *known.others)
    if not known.nodes:
        yield _no_nodes(known)
        return
    yield f"*{code(HOME_CLUSTER)}*" if known.others else f"*{free} of {counted(total, 'GPU')} free*"
    models: dict[str, list[NodeUse]] = defaultdict(list)
    for node in known.nodes:
        models[node.model].append(node)
    for model, nodes in sorted(models.items()):
        left, largest = sum(node.free for node in nodes), max(nodes, key=lambda node: node.free)
        block = f", largest block {largest.free} on {code(largest.node)}" if left else ""
        total = sum(node.allocatable for node in nodes)
        yield f"• {quoted(model) or 'unknown model'}: {left} of {total} free{block}"
    yield from unhealthy(known.nodes)
    if known.reserved:
        yield known.reserved


def _no_nodes(known: Snapshot) -> str:
    where = f" in {code(HOME_CLUSTER)}" if known.others else ""
    if known.pods:  # their nodes are there, but the workers can't list them
        return f"GPU nodes{where}: no data. *Fix:* an admin must apply `deploy/usage`."
    return f"No GPU nodes found{where}."


def _by_cluster(*clusters: ClusterGpus) -> Iterator[str]:
    """Yield the free GPUs of all clusters that answered, and then of each cluster."""
    free, total = sum(each.free for each in clusters), sum(each.total for each in clusters)
    yield f"*{free} of {counted(total, 'GPU')} free in all clusters*"
    for each in clusters:
        yield f"• {code(each.cluster)}: {each.failure or f'{each.free} of {each.total} free'}"


def unhealthy(nodes: Iterable[NodeUse]) -> Iterator[str]:
    """Yield lines about GPUs that no pod can get."""
    lost = [f"{node.unavailable} on {code(node.node)}" for node in nodes if node.unavailable]
    shut = list(dict.fromkeys(code(node.node) for node in nodes if node.cordoned or not node.ready))
    if lost:
        yield f":warning: GPUs unavailable: {listed(lost)}."
    if shut:
        yield f":warning: Cordoned or not ready: {listed(shut)}."


def _mine(known: Snapshot, user: str) -> Iterator[str]:
    mine = [pod for pod in known.pods if pod.owner == user]
    yield f"*You have {counted(_allocated(mine), 'GPU')}.*" if mine else "You have no GPUs."
    for pod in _idle_first(mine, known.at):
        yield _pod(pod, known.at)


def _team(known: Snapshot, _: str) -> Iterator[str]:
    groups: dict[str, list[PodUse]] = defaultdict(list)
    for pod in _working(known.pods):
        groups[pod.team].append(pod)
    if not known.pods:
        yield "No GPUs allocated."
    for team, pods in sorted(groups.items(), key=lambda each: -_allocated(each[1])):
        people = {mention(pod.owner) for pod in pods if pod.owner}
        who = f" ({listed(sorted(people))})" if people else ""
        yield f"• *{quoted(team) or 'no team'}*: {summary(pods, known.at)}{who}"
    yield from _reserved(known.pods)


def _nodes(known: Snapshot, _: str) -> Iterator[str]:
    if not known.nodes:
        yield _no_nodes(known)
    for node in sorted(known.nodes, key=lambda each: (-each.free, each.node)):
        state = [f"{node.unavailable} unavailable"] if node.unavailable else []
        state += ["cordoned"] if node.cordoned else []
        state += [] if node.ready else ["not ready"]
        more = f", :warning: {', '.join(state)}" if state else ""
        model = f" {quoted(node.model)}" if node.model else ""
        yield f"• {code(node.node)}{model}: {node.free} of {node.allocatable} free{more}"


def _now(known: Snapshot, _: str) -> Iterator[str]:
    yield f"*{summary(known.pods, known.at)}.*" if known.pods else "No GPUs allocated."
    yield from _reserved(known.pods)
    for pod in _idle_first(_working(known.pods), known.at):
        yield _pod(pod, known.at, who=True)


def _working(pods: Iterable[PodUse]) -> list[PodUse]:
    """Return the pods without placeholders of reservations, which are idle on purpose."""
    return [pod for pod in pods if not is_placeholder(pod.pod)]


def _reserved(pods: Iterable[PodUse]) -> Iterator[str]:
    held = Counter[str]()
    for pod in pods:
        if is_placeholder(pod.pod):
            held[pod.team] += pod.allocated
    if held:
        teams = [f"{number} for {quoted(team) or 'no team'}" for team, number in sorted(held.items())]
        yield f"• *Reserved, unused*: {counted(held.total(), 'GPU')} ({', '.join(teams)})"


def _idle_first(pods: Iterable[PodUse], at: datetime) -> list[PodUse]:
    def order(pod: PodUse) -> tuple[object, ...]:
        return -_idle(pod, at), -_waiting([pod]), -pod.allocated, pod.namespace, pod.pod

    return sorted(pods, key=order)


def _allocated(pods: Iterable[PodUse]) -> int:
    return sum(pod.allocated for pod in pods)


def _idle(pod: PodUse, at: datetime) -> int:
    """Return the pod's GPUs without activity in the last 30 minutes; 0 for a younger pod."""
    if pod.started is None or at - pod.started < HALF_HOUR:
        return 0
    return sum(gpu.peak is not None and gpu.peak < BUSY for gpu in pod.gpus)


def _waiting(pods: Iterable[PodUse]) -> int:
    return sum(gpu.waits for pod in pods for gpu in pod.gpus)


def summary(pods: Iterable[PodUse], at: datetime) -> str:
    every = list(pods)
    known = _working(every)
    held = _allocated(every) - _allocated(known)
    unknown = sum(pod.allocated - sum(gpu.peak is not None for gpu in pod.gpus) for pod in known)
    parts = [
        f"{counted(_allocated(known), 'GPU')} allocated",
        f"{sum(_idle(pod, at) for pod in known)} idle for 30 min",
    ]
    parts += [f"{waiting} busy but hardly computing"] if (waiting := _waiting(known)) else []
    parts += [f"{unknown} not measured"] if unknown > 0 else []
    return ", ".join([*parts, *([f"{held} reserved and unused"] if held else [])])


def _pod(pod: PodUse, at: datetime, *, who: bool = False) -> str:
    name = code(pod.trial or pod.pod) + (
        f" of {code(pod.sweep)}" if pod.sweep else f" in {code(pod.namespace)}"
    )
    since = f", for {_span(at - pod.started)}" if pod.started else ", not running yet"
    owner = f" ({mention(pod.owner)})" if who and pod.owner else ""
    return (
        f"• {name}{owner}: {counted(pod.allocated, 'GPU')} on {code(pod.node)}{since}, {_activity(pod, at)}"
    )


def _activity(pod: PodUse, at: datetime) -> str:
    means = [gpu.mean for gpu in pod.gpus if gpu.mean is not None]
    if not means:
        return "not measured"
    measured = load_text(mean_load(pod.gpus), len(pod.gpus))
    more = f" ({measured})" if measured else ""
    busy = f"{percent(sum(means), len(means))} busy"
    idle, waiting = _idle(pod, at), _waiting([pod])
    if idle and idle == pod.allocated:
        return f":zzz: idle{more}"
    if waiting:
        part = "" if waiting == pod.allocated else f"{waiting} of {pod.allocated} "
        return f"{busy}, :zzz: {part}hardly computing{more}"
    return f"{busy}{more}, :zzz: {idle} of {pod.allocated} idle" if idle else f"{busy}{more}"


def load_text(load: Load, gpus: int) -> str:
    """Return what is known beside utilization, as a mean of this many GPUs; "" if nothing is."""
    parts = [f"SM activity {percent(load.sm, 1)}"] if load.sm is not None else []
    parts += [f"{load.watts:.0f} W"] if load.watts is not None else []
    parts += [f"{load.memory:.0f} GiB memory used"] if load.memory is not None else []
    return ("mean per GPU: " if gpus > 1 and parts else "") + ", ".join(parts)


ANSWERS: dict[str, Callable[[Snapshot, str], Iterator[str]]] = {
    "free": _free,
    "mine": _mine,
    "team": _team,
    "nodes": _nodes,
    "now": _now,
}
