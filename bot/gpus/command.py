"""Parse `/gpus` and answer it from a snapshot of current use. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.config.teams import Team
from bot.core.errors import UserError
from bot.core.plan import HOME_CLUSTER
from bot.gpus.models import BUSY, HALF_HOUR, HOUR, ClusterGpus, NodeUse, PodUse, Snapshot
from bot.slack.mrkdwn import code, mention, quoted
from bot.text.number_format import hours, percent
from bot.text.wording import counted, did_you_mean, fitting, listed

SNAPSHOT_MAX_AGE = timedelta(seconds=60)  # a younger snapshot needs no new measurement
MAX_ANSWER = 2900  # characters
VIEWS = {
    "free": "free GPUs by model, and the largest block",
    "mine": "your pods with GPUs, and how busy they are",
    "team": "allocated and idle GPUs by team",
    "nodes": "free GPUs by node",
    "now": "all pods with GPUs, idle ones first",
}
LOADING = "Loading GPU data… If nothing appears in a few seconds, no worker is running."
RESERVATION_VIEWS = ("reserve", "reservations", "release")  # bot.reservations parses what follows
OTHER_VIEWS = ("bill", "digest", *RESERVATION_VIEWS, "help")
ALIASES = {
    "by team": "team",
    "by node": "nodes",
    "teams": "team",
    "node": "nodes",
    "by nodes": "nodes",
    "": "free",
}
GPUS_HELP = "\n".join(
    [
        "*GPUs*",
        *(f"• `/gpus {view}`: {text}" for view, text in VIEWS.items()),
        "• `/gpus bill [TEAM] [MONTH]`: GPU-hours and cost of this month, or of `2026-11` or `last`",
        "• `/gpus reservations`: GPUs that are reserved for teams",
        "• `/gpus reserve team=vision gpus=16 until=Fri`, `/gpus release NAME`: reserve GPUs (admins only)",
        "• `/gpus digest`: post yesterday's digest in this channel (admins only)",
    ]
)


@dataclass(frozen=True, kw_only=True)
class ParsedCommand:
    view: str
    team: str = ""
    rest: str = ""  # what follows the word, of a view about reservations
    month: str = ""  # "2026-11", "last", or "" for the current one


def parse_command(text: str, teams: tuple[Team, ...]) -> ParsedCommand:
    """Raises UserError, with a suggestion, for an unknown view, team, or month."""
    words = " ".join(text.lower().split())
    word, _, rest = words.partition(" ")
    if word in RESERVATION_VIEWS:
        return ParsedCommand(view=word, rest=rest)
    if word == "bill":
        return _bill(rest, [team.name for team in teams])
    view = ALIASES.get(words, words)
    if view in (*VIEWS, *OTHER_VIEWS):
        return ParsedCommand(view=view)
    raise UserError(f'Unknown view "{quoted(words, 60)}".{did_you_mean(word, [*VIEWS, *OTHER_VIEWS])}')


def _bill(rest: str, teams: list[str]) -> ParsedCommand:
    team = month = ""
    for word in rest.split():
        if re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])|last", word):
            month = word
        elif word in teams:
            team = word
        else:
            known = f" {did_you_mean(word, teams).strip()}" if teams else ""
            raise UserError(f'Unknown team or month "{quoted(word, 60)}". Months: 2026-11 or last.{known}')
    return ParsedCommand(view="bill", team=team, month=month)


def answer(view: str, known: Snapshot, user: str, now: datetime) -> str:
    last = f"_Measured {_ago(now - known.at)}._"
    return "\n".join([*fitting(ANSWERS[view](known, user), MAX_ANSWER - len(last)), last])


def _ago(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    if seconds < 5:
        return "just now"
    if seconds < 120:
        return f"{seconds} s ago"
    return f"{_span(age)} ago"


def _span(time: timedelta) -> str:
    return f"{time // timedelta(minutes=1)} min" if time < 2 * HOUR else f"{hours(time / HOUR)} h"


def _free(known: Snapshot, _: str) -> Iterator[str]:
    free, total = sum(node.free for node in known.nodes), sum(node.allocatable for node in known.nodes)
    if known.others:
        yield from _by_cluster(ClusterGpus(cluster=HOME_CLUSTER, free=free, total=total), *known.others)
    if not known.nodes:
        yield "No GPU nodes found." if not known.others else f"No GPU nodes found in {code(HOME_CLUSTER)}."
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
    yield from _unhealthy(known.nodes)
    if known.reserved:
        yield known.reserved


def _by_cluster(*clusters: ClusterGpus) -> Iterator[str]:
    """Yield the free GPUs of all clusters that answered, and then of each cluster."""
    free, total = sum(each.free for each in clusters), sum(each.total for each in clusters)
    yield f"*{free} of {counted(total, 'GPU')} free in all clusters*"
    for each in clusters:
        yield f"• {code(each.cluster)}: {each.failure or f'{each.free} of {each.total} free'}"


def _unhealthy(nodes: Iterable[NodeUse]) -> Iterator[str]:
    lost = [f"{node.unavailable} on {code(node.node)}" for node in nodes if node.unavailable]
    shut = [code(node.node) for node in nodes if node.cordoned or not node.ready]
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
    for pod in known.pods:
        groups[pod.team].append(pod)
    if not groups:
        yield "No GPUs allocated."
    for team, pods in sorted(groups.items(), key=lambda each: -_allocated(each[1])):
        people = {mention(pod.owner) for pod in pods if pod.owner}
        who = f" ({listed(sorted(people))})" if people else ""
        yield f"• *{quoted(team) or 'no team'}*: {summary(pods, known.at)}{who}"


def _nodes(known: Snapshot, _: str) -> Iterator[str]:
    if not known.nodes:
        yield "No GPU nodes found."
    for node in sorted(known.nodes, key=lambda each: (-each.free, each.node)):
        state = [f"{node.unavailable} unavailable"] if node.unavailable else []
        state += ["cordoned"] if node.cordoned else []
        state += [] if node.ready else ["not ready"]
        more = f", :warning: {', '.join(state)}" if state else ""
        model = f" {quoted(node.model)}" if node.model else ""
        yield f"• {code(node.node)}{model}: {node.free} of {node.allocatable} free{more}"


def _now(known: Snapshot, _: str) -> Iterator[str]:
    yield f"*{summary(known.pods, known.at)}.*" if known.pods else "No GPUs allocated."
    for pod in _idle_first(known.pods, known.at):
        yield _pod(pod, known.at, who=True)


def _idle_first(pods: Iterable[PodUse], at: datetime) -> list[PodUse]:
    return sorted(pods, key=lambda pod: (-_idle(pod, at), -pod.allocated, pod.namespace, pod.pod))


def _allocated(pods: Iterable[PodUse]) -> int:
    return sum(pod.allocated for pod in pods)


def _idle(pod: PodUse, at: datetime) -> int:
    """Return the pod's GPUs without activity in the last 30 minutes; 0 for a younger pod."""
    if pod.started is None or at - pod.started < HALF_HOUR:
        return 0
    return sum(gpu.peak is not None and gpu.peak < BUSY for gpu in pod.gpus)


def summary(pods: Iterable[PodUse], at: datetime) -> str:
    known = list(pods)
    unknown = sum(pod.allocated - sum(gpu.peak is not None for gpu in pod.gpus) for pod in known)
    parts = [
        f"{counted(_allocated(known), 'GPU')} allocated",
        f"{sum(_idle(pod, at) for pod in known)} idle for 30 min",
    ]
    return ", ".join([*parts, *([f"{unknown} not measured"] if unknown > 0 else [])])


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
    busy = f"{percent(sum(means), len(means))} busy"
    idle = _idle(pod, at)
    if idle and idle == pod.allocated:
        return ":zzz: idle"
    return f"{busy}, :zzz: {idle} of {pod.allocated} idle" if idle else busy


ANSWERS: dict[str, Callable[[Snapshot, str], Iterator[str]]] = {
    "free": _free,
    "mine": _mine,
    "team": _team,
    "nodes": _nodes,
    "now": _now,
}
