"""/gpus: what was asked, and the answers about the present. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.config.teams import Team
from bot.core.errors import UserError
from bot.core.numbers import hours
from bot.core.wording import counted, did_you_mean, fitting, listed
from bot.gpus.models import BUSY, HALF_HOUR, HOUR, NodeUse, PodUse, Snapshot
from bot.slack.mrkdwn import code, mention, quoted

FRESH = timedelta(seconds=60)  # what is younger need not be measured again
LONGEST = 2900  # characters
VIEWS = {
    "free": "how many GPUs are free, by model, and the largest block",
    "mine": "what you hold, and what it does",
    "team": "who holds how many, by team",
    "nodes": "node by node",
    "now": "every pod that holds GPUs, the idle first",
}
OTHERS = ("bill", "digest", "help")
SAME = {
    "by team": "team",
    "by node": "nodes",
    "teams": "team",
    "node": "nodes",
    "by nodes": "nodes",
    "": "free",
}
HELP = "\n".join(
    [
        "*GPUs*",
        *(f"• `/gpus {view}`: {what}" for view, what in VIEWS.items()),
        "• `/gpus bill [TEAM] [MONTH]`: GPU-hours and money of a month, such as `2026-11`, or of `last`",
        "• `/gpus digest`: yesterday's digest here and now, for administrators",
    ]
)


@dataclass(frozen=True, kw_only=True)
class ParsedCommand:
    view: str
    team: str = ""
    month: str = ""  # "2026-11", "last", or "" for the present one


def parse_command(text: str, teams: tuple[Team, ...]) -> ParsedCommand:
    """Raises UserError with what may have been meant."""
    said = " ".join(text.lower().split())
    word, _, rest = said.partition(" ")
    if word == "bill":
        return _bill(rest, [team.name for team in teams])
    view = SAME.get(said, said)
    if view in (*VIEWS, *OTHERS):
        return ParsedCommand(view=view)
    raise UserError(f"`/gpus` does not know “{quoted(said, 60)}”.{did_you_mean(word, [*VIEWS, *OTHERS])}")


def _bill(rest: str, teams: list[str]) -> ParsedCommand:
    team = month = ""
    for word in rest.split():
        if re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])|last", word):
            month = word
        elif word in teams:
            team = word
        else:
            known = f" {did_you_mean(word, teams).strip()}" if teams else ""
            raise UserError(f"“{quoted(word, 60)}” is no team and no month such as 2026-11 or last.{known}")
    return ParsedCommand(view="bill", team=team, month=month)


def answer(view: str, known: Snapshot, user: str, now: datetime) -> str:
    last = f"_Measured {_ago(now - known.at)}._"
    return "\n".join([*fitting(ANSWERS[view](known, user), LONGEST - len(last)), last])


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
    free, there = sum(node.free for node in known.nodes), sum(node.allocatable for node in known.nodes)
    if not known.nodes:
        yield "No node with GPUs is seen."
        return
    yield f"*{free} of {counted(there, 'GPU')} {'is' if free == 1 else 'are'} free.*"
    models: dict[str, list[NodeUse]] = defaultdict(list)
    for node in known.nodes:
        models[node.model].append(node)
    for model, nodes in sorted(models.items()):
        left, largest = sum(node.free for node in nodes), max(nodes, key=lambda node: node.free)
        block = f", the largest block {largest.free} on {code(largest.node)}" if left else ""
        all_ = sum(node.allocatable for node in nodes)
        yield f"• {quoted(model) or 'unknown model'}: {left} of {all_} free{block}"
    yield from _broken(known.nodes)


def _broken(nodes: Iterable[NodeUse]) -> Iterator[str]:
    lost = [f"{node.lost} on {code(node.node)}" for node in nodes if node.lost]
    shut = [code(node.node) for node in nodes if node.cordoned or not node.ready]
    if lost:
        yield f":warning: GPUs lost: {listed(lost)}."
    if shut:
        yield f":warning: Nobody is let onto {listed(shut)}."


def _mine(known: Snapshot, user: str) -> Iterator[str]:
    mine = [pod for pod in known.pods if pod.owner == user]
    held = sum(pod.allocated for pod in mine)
    yield f"*You hold {counted(held, 'GPU')}.*" if mine else "You hold no GPUs."
    for pod in _idle_first(mine, known.at):
        yield _pod(pod, known.at)


def _team(known: Snapshot, _: str) -> Iterator[str]:
    groups: dict[str, list[PodUse]] = defaultdict(list)
    for pod in known.pods:
        groups[pod.team].append(pod)
    if not groups:
        yield "Nobody holds any GPU."
    for team, pods in sorted(groups.items(), key=lambda each: -_held(each[1])):
        people = {mention(pod.owner) for pod in pods if pod.owner}
        who = f" ({listed(sorted(people))})" if people else ""
        yield f"• *{quoted(team) or 'no team'}*: {_held_and_idle(pods, known.at)}{who}"


def _nodes(known: Snapshot, _: str) -> Iterator[str]:
    if not known.nodes:
        yield "No node with GPUs is seen."
    for node in sorted(known.nodes, key=lambda each: (-each.free, each.node)):
        state = [f"{node.lost} lost"] if node.lost else []
        state += ["cordoned"] if node.cordoned else []
        state += [] if node.ready else ["not ready"]
        more = f", :warning: {', '.join(state)}" if state else ""
        model = f" {quoted(node.model)}" if node.model else ""
        yield f"• {code(node.node)}{model}: {node.free} of {node.allocatable} free{more}"


def _now(known: Snapshot, _: str) -> Iterator[str]:
    yield f"*{_held_and_idle(known.pods, known.at)}.*" if known.pods else "Nobody holds any GPU."
    for pod in _idle_first(known.pods, known.at):
        yield _pod(pod, known.at, who=True)


def _idle_first(pods: Iterable[PodUse], at: datetime) -> list[PodUse]:
    return sorted(pods, key=lambda pod: (-_idle(pod, at), -pod.allocated, pod.namespace, pod.pod))


def _held(pods: Iterable[PodUse]) -> int:
    return sum(pod.allocated for pod in pods)


def _idle(pod: PodUse, at: datetime) -> int:
    """GPUs that are known to have done nothing in the last half hour, which the pod has run."""
    if pod.started is None or at - pod.started < HALF_HOUR:
        return 0
    return sum(gpu.peak is not None and gpu.peak < BUSY for gpu in pod.gpus)


def _held_and_idle(pods: Iterable[PodUse], at: datetime) -> str:
    known = list(pods)
    unknown = sum(pod.allocated - sum(gpu.peak is not None for gpu in pod.gpus) for pod in known)
    parts = [
        f"{counted(_held(known), 'GPU')} held",
        f"{sum(_idle(pod, at) for pod in known)} idle for half an hour",
    ]
    return ", ".join([*parts, *([f"{unknown} unknown"] if unknown > 0 else [])])


def _pod(pod: PodUse, at: datetime, *, who: bool = False) -> str:
    name = code(pod.trial or pod.pod) + (
        f" of {code(pod.sweep)}" if pod.sweep else f" in {code(pod.namespace)}"
    )
    since = f", for {_span(at - pod.started)}" if pod.started else ", not running yet"
    owner = f" ({mention(pod.owner)})" if who and pod.owner else ""
    return f"• {name}{owner}: {counted(pod.allocated, 'GPU')} on {code(pod.node)}{since}, {_doing(pod, at)}"


def _doing(pod: PodUse, at: datetime) -> str:
    means = [gpu.mean for gpu in pod.gpus if gpu.mean is not None]
    if not means:
        return "not measured"
    busy = f"{100 * sum(means) / len(means):.0f} % busy"
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
