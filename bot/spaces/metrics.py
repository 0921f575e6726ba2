"""Read what a space optimizes, and where its training writes the metrics. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from bot.config.yaml_reader import Node
from bot.core.request import SweepRequest
from bot.core.space import STRATEGIES, Goal, MetricSource, SearchSpace
from bot.spaces.space_keys import FILE_PATH, METRIC_NAME, METRICS_KEYS, OBJECTIVE_KEYS, TAG
from bot.text.wording import listed, shortened
from k8s.katib.training import LOG, Collector

MAX_ADDITIONAL = 8  # columns of a table in Slack
TAG_RULE = "a TensorBoard tag of letters, digits, dashes, and underscores, without a slash"
NAME_RULE = "a name of up to 100 letters, digits, and _./- characters"
NUMBER_IN_LINE = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?"


@dataclass(frozen=True, kw_only=True)
class Objective:
    metric: str
    goal: Goal
    target: float | None
    additional: tuple[str, ...] = ()
    strategy: dict[str, str] = field(default_factory=dict)


def read_source(node: Node | None, request: SweepRequest) -> tuple[MetricSource, str]:
    """Return the source of the metrics, and the path of a file."""
    if request.metrics:
        is_path = request.metrics.startswith("/")
        return (MetricSource.FILE, request.metrics) if is_path else (MetricSource(request.metrics), "")
    if node is None:
        return MetricSource.TENSORBOARD, ""
    keys = node.mapping(METRICS_KEYS) if isinstance(node.value, dict) else {"from": node}
    source = choice(keys.get("from"), tuple(MetricSource))
    path = keys["path"].text() if "path" in keys else ""
    if source == MetricSource.FILE and not path and not node.errors:
        node.error("from: file needs the path of the file, for example {from: file, path: /logs/metrics.txt}")
    elif path and source != MetricSource.FILE:
        keys["path"].error(f"only from: file has a path; got from: {source}")
    elif path and (why := path_objection(path)):
        keys["path"].error(why)
    return MetricSource(source), path


def path_objection(path: str) -> str:
    """Return why Katib can't read metrics from this file; "" if it can."""
    if not FILE_PATH.fullmatch(path) or ".." in path or "//" in path:
        return f'must be an absolute path of letters, digits, and _./-; got "{shortened(path)}"'
    if PurePosixPath(path).parent in map(PurePosixPath, ("/", "/tmp", "/dev/shm", "/dev")):  # noqa: S108
        return (
            "must be a file in a directory of its own, such as /logs/metrics.txt: Katib mounts an empty "
            f'volume over the directory; got "{shortened(path)}"'
        )
    return ""


def read_objective(node: Node | None, request: SweepRequest, source: MetricSource) -> Objective:
    """Read the objective. The target and the strategy of a metric that the request replaces don't apply."""
    given = [key for key in ("metric", "goal") if getattr(request, key)]
    keys = node.mapping(OBJECTIVE_KEYS, given=given) if node else {}
    metric = keys["metric"].text() if "metric" in keys else ""
    if metric and not request.metric:
        _check_name(keys["metric"], metric, source)
    target = keys["target"].number() if "target" in keys else None
    goal = Goal(request.goal or choice(keys.get("goal"), tuple(Goal)))
    additional = _additional(keys.get("additional"), request.metric or metric, source)
    strategy = _strategy(keys.get("strategy"), request.metric or metric, additional)
    if request.metric and request.metric != metric:
        return Objective(metric=request.metric, goal=goal, target=None, additional=additional)
    return Objective(metric=metric, goal=goal, target=target, additional=additional, strategy=strategy)


def _check_name(node: Node, name: str, source: MetricSource) -> None:
    # Katib reads a/b as tags that start with b in a directory a.
    rule, pattern = (TAG_RULE, TAG) if source is MetricSource.TENSORBOARD else (NAME_RULE, METRIC_NAME)
    if not pattern.fullmatch(name):
        node.error(f'must be {rule}; got "{shortened(name)}"')


def metric_objection(name: str, source: MetricSource) -> str:
    """Return why the source can't have a metric of this name; "" if it can."""
    if source is MetricSource.TENSORBOARD and not TAG.fullmatch(name):
        return f'metric= must be {TAG_RULE}; got "{shortened(name)}".'
    return ""


def _additional(node: Node | None, metric: str, source: MetricSource) -> tuple[str, ...]:
    found: list[str] = []
    for item in node.items() if node else ():
        name = item.text()
        if name == metric:
            item.error("is the objective's metric, which is always shown; remove it here")
        elif name in found:
            item.error(f'duplicate metric "{shortened(name)}"')
        elif name:
            _check_name(item, name, source)
        found.append(name)
    if node and len(found) > MAX_ADDITIONAL:
        node.error(f"can have at most {MAX_ADDITIONAL} metrics; got {len(found)}")
    return tuple(found)


def _strategy(node: Node | None, metric: str, additional: Iterable[str]) -> dict[str, str]:
    """Return the strategies by metric; a word is that of the objective's metric."""
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        return {metric: choice(node, STRATEGIES)}
    names = [metric, *additional]
    for name, each in node.value.items():
        if name not in names:
            each.error(f"must be the objective's metric or one of additional: {listed(names, 'or')}")
    return {name: choice(each, STRATEGIES) for name, each in node.value.items()}


def choice(node: Node | None, known: tuple[str, ...]) -> str:
    """Return one of the known words; the first one if the key is missing or invalid."""
    word = node.text() if node else ""
    if node and word and word not in known:
        node.error(f'must be {listed(known, "or")}; got "{shortened(word)}"')
    return word if word in known else known[0]


def collector(space: SearchSpace) -> Collector:
    """Return how Katib collects the metrics of this space."""
    match space.source:
        case MetricSource.TENSORBOARD:
            return Collector()
        case MetricSource.PUSH:
            return Collector(kind="Push")
        case MetricSource.STDOUT:
            return Collector(kind="File", path=LOG, filter=line_filter(space.strategies), tee=True)
        case MetricSource.FILE:
            return Collector(kind="File", path=space.metrics_path, filter=line_filter(space.strategies))


def line_filter(names: Iterable[str]) -> str:
    """Return the regular expression for `loss=0.1`, `loss: 0.1`, and `{"loss": 0.1}` in Go's syntax.

    Katib's default reads `val/loss=0.1` as `loss`, `loss: 0.1` not at all, and `loss=nan` as an empty value.
    """
    known = "|".join(re.sub(r"([.])", r"\\\1", name) for name in names)
    return rf'(?:^|[^\w/.-])"?({known})"?\s*[:=]\s*"?({NUMBER_IN_LINE})'
