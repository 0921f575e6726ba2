"""Read `objective:` and `metrics:` of a space: names, goals, strategies, target, sources, paths; and which
lines of an output Katib reads as metrics. Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Annotated, ClassVar

from pydantic import WithJsonSchema

from bot.core.request import SweepRequest
from bot.core.space import STRATEGIES, Goal, MetricSource, SearchSpace
from bot.platform.config.policy import TENSORBOARD_TAG as TAG
from bot.platform.config.rules import Key, OneOf, Reads, Schema, Several, Via
from bot.platform.config.section import Section, json_schema, read_each, read_node
from bot.platform.config.value_types import AsNumber, Text, string
from bot.platform.config.yaml_reader import Node
from bot.text.wording import listed, shortened
from k8s.katib.reader import Reader
from k8s.katib.training import LOG, Collector

METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}")
FILE_PATH = re.compile(r"/[A-Za-z0-9_./-]{1,200}")
MAX_ADDITIONAL = 8  # columns of a table in Slack
MAX_OBJECTIVES = 3  # of more, hardly a trial is worse than another in all
TAG_RULE = "a TensorBoard tag of letters, digits, dashes, and underscores, without a slash"
OTHER_WAY = "Log it by such a tag, or print it and set metrics: stdout."  # most frameworks' tags have slashes
NAME_RULE = "a name of up to 100 letters, digits, and _./- characters"
QUOTE = """["']?"""
WRAPPER = r"(?:(?:np\.float\d{2,3}|tensor|Array)\()?"  # as dicts print numpy's, PyTorch's, and JAX's numbers
NUMBER_IN_LINE = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?"

Strategy = Annotated[Text, OneOf(STRATEGIES)]
MetricName = Annotated[Text, WithJsonSchema(string("name", METRIC_NAME.pattern))]  # or a tag: `_check_name`


def _strategies(node: Node) -> dict[str, str]:
    """Return the strategies by metric; a word is that of the objective's metric, which is "" here."""
    pairs = node.value if isinstance(node.value, dict) else {"": node}
    return {name: read_node(Strategy, each) or STRATEGIES[0] for name, each in pairs.items()}


STRATEGY: Schema = {"enum": [*STRATEGIES]}
Strategies = Annotated[
    dict[str, str],
    Reads(_strategies),
    WithJsonSchema(
        {
            "title": "`min`, `max`, `latest`, or mapping",
            "anyOf": [STRATEGY, {"type": "object", "additionalProperties": STRATEGY}],
        }
    ),
]


def metrics_schema() -> Schema:
    one = {"enum": [*MetricSource]}
    return {"title": "source, or mapping", "anyOf": [one, json_schema(Metrics)]}


@dataclass(frozen=True, kw_only=True)
class Metrics(Section):
    from_: Annotated[
        MetricSource,
        Via(Annotated[Text, OneOf((*MetricSource,))], MetricSource),
        Key("stdout", required=True),
    ] = MetricSource.TENSORBOARD
    """Where the training writes the metrics ([details](search.md#metrics))."""
    path: Annotated[Text, WithJsonSchema(string("path", FILE_PATH.pattern)), Key("/logs/metrics.txt")] = ""
    """Absolute path of the file, in a directory of its own. Only for `file`."""


@dataclass(frozen=True, kw_only=True)
class Goals(Section):
    metric: Annotated[MetricName, Key("val_loss", required=True)] = ""
    """Metric to optimize. In TensorBoard, no other tag can start with this name."""
    goal: Annotated[Goal, Via(Annotated[Text, OneOf((*Goal,))], Goal), Key("minimize", required=True)] = (
        Goal.MINIMIZE
    )
    """Direction of the optimization."""


@dataclass(frozen=True, kw_only=True)
class OneOfSeveral(Goals):
    elsewhere: ClassVar = dict.fromkeys(("additional", "target"), "Only a single objective has it.")

    strategy: Annotated[Strategy, Key("latest", "`min` to minimize, `max` to maximize")] = ""
    """Which of a trial's values counts."""


@dataclass(frozen=True, kw_only=True)
class Objective(Goals):
    additional: Annotated[Several[MetricName], Key("[accuracy]")] = ()
    """More metrics to show in the results."""
    strategy: Annotated[Strategies, Key("latest", "`min` to minimize, `max` to maximize")] = field(
        default_factory=dict
    )
    """Which of a trial's values counts, for the objective's metric, or by metric."""
    target: Annotated[AsNumber | None, Key("0.02")] = None
    """Value at which the sweep stops."""


def objective_schema() -> Schema:
    several = {"items": json_schema(OneOfSeveral), "minItems": 2, "maxItems": MAX_OBJECTIVES}
    return json_schema(Objective) | {
        "type": ["object", "array"],
        "title": "mapping, or list of mappings",
        **several,
    }


def read_source(node: Node | None, request: SweepRequest) -> tuple[MetricSource, str]:
    """Return the source of the metrics, and the path of a file."""
    if request.metrics:
        is_path = request.metrics.startswith("/")
        return (MetricSource.FILE, request.metrics) if is_path else (MetricSource(request.metrics), "")
    if node is None:
        return MetricSource.TENSORBOARD, ""
    before = len(node.errors)
    metrics, keys = read_each(Metrics, node, short="from")
    source, path = metrics.from_, metrics.path
    if source == MetricSource.FILE and not path and len(node.errors) == before:
        node.error("from: file needs the path of the file, for example {from: file, path: /logs/metrics.txt}")
    elif path and source != MetricSource.FILE:
        keys["path"].error(f"only from: file has a path; got from: {source}")
    elif path and (why := path_objection(path)):
        keys["path"].error(why)
    return source, path


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


def read_objective(
    node: Node | None, request: SweepRequest, source: MetricSource
) -> tuple[Objective, dict[str, Goal]]:
    """Read the objective, and the goals of the others of a list, which are additional metrics.

    The target, the strategy, and the other objectives of a metric that the request replaces don't apply. A
    metric of the list keeps its goal and strategy.
    """
    if node and isinstance(node.value, list):
        found = _read_several(node, source)
        asked = request.metric or found[0].metric
        named = next((each for each in found if each.metric == asked), found[0])
        goal = Goal(request.goal or named.goal)
        strategy = {each.metric: each.strategy for each in found if each.strategy}
        if request.metric:
            own = {name: each for name, each in strategy.items() if name == asked}
            return Objective(metric=asked, goal=goal, strategy=own), {}
        others = {each.metric: each.goal for each in found[1:]}
        return Objective(metric=asked, goal=goal, additional=(*others,), strategy=strategy), others
    return _read_one(node, request, source), {}


def _read_several(node: Node, source: MetricSource) -> list[OneOfSeveral]:
    items, found = node.items(), list[OneOfSeveral]()
    if not 2 <= len(items) <= MAX_OBJECTIVES:
        node.error(f"a list must have 2 to {MAX_OBJECTIVES} objectives; got {len(items)}")
    for item in items[:MAX_OBJECTIVES]:
        one, keys = read_each(OneOfSeveral, item)
        if one.metric in [each.metric for each in found if each.metric]:
            keys["metric"].error(f'duplicate metric "{shortened(one.metric)}"')
        elif one.metric:
            _check_name(keys["metric"], one.metric, source)
        found.append(one)
    return found or [OneOfSeveral()]


def _read_one(node: Node | None, request: SweepRequest, source: MetricSource) -> Objective:
    given = [key for key in ("metric", "goal") if getattr(request, key)]
    file, keys = read_each(Objective, node, given=given) if node else (Objective(), {})
    metric = request.metric or file.metric
    if file.metric and not request.metric:
        _check_name(keys["metric"], file.metric, source)
    if "additional" in keys:
        _check_additional(keys["additional"], file.additional, file.metric, source)
    more = tuple(name for name in file.additional if name != metric)
    found = replace(file, metric=metric, goal=Goal(request.goal or file.goal), additional=more)
    if request.metric and request.metric != file.metric:
        return replace(found, target=None, strategy={})
    if list(file.strategy) == [""]:
        return replace(found, strategy={metric: file.strategy[""]})
    names = [metric, *file.additional]
    for name in file.strategy.keys() - {*names}:
        keys["strategy"].value[name].error(
            f"must be the objective's metric or one of additional: {listed(names, 'or')}"
        )
    return found


def _check_name(node: Node, name: str, source: MetricSource) -> None:
    # Katib reads a/b as tags that start with b in a directory a.
    if source is MetricSource.TENSORBOARD and not TAG.fullmatch(name):
        node.error(f'must be {TAG_RULE}; got "{shortened(name)}". {OTHER_WAY}')
    elif source is not MetricSource.TENSORBOARD and not METRIC_NAME.fullmatch(name):
        node.error(f'must be {NAME_RULE}; got "{shortened(name)}"')


def metric_objection(name: str, source: MetricSource) -> str:
    """Return why the source can't have a metric of this name; "" if it can."""
    if source is MetricSource.TENSORBOARD and not TAG.fullmatch(name):
        return f'metric= must be {TAG_RULE}; got "{shortened(name)}". {OTHER_WAY}'
    return ""


def _check_additional(node: Node, names: tuple[str, ...], metric: str, source: MetricSource) -> None:
    for number, name in enumerate(names[: MAX_ADDITIONAL + 1]):
        item = node.value[number]
        if name == metric:
            item.error("is the objective's metric, which is always shown; remove it here")
        elif name in names[:number]:
            item.error(f'duplicate metric "{shortened(name)}"')
        else:
            _check_name(item, name, source)
    if len(names) > MAX_ADDITIONAL:
        node.error(f"can have at most {MAX_ADDITIONAL} metrics; got {len(names)}")


def collector(space: SearchSpace, reader: Reader | None = None) -> Collector:
    """Return how the metrics of this space reach Katib. `reader`: Sweepbot's own, of TensorBoard's files."""
    match space.source:
        case MetricSource.TENSORBOARD:
            if reader and space.stopping:
                reader = replace(reader, rungs=space.stopping.rungs)
            return Collector(kind="Push", reader=reader) if reader else Collector()
        case MetricSource.PUSH:
            return Collector(kind="Push")
        case MetricSource.STDOUT:
            return Collector(kind="File", path=LOG, filter=line_filter(space.strategies), tee=True)
        case MetricSource.FILE:
            return Collector(kind="File", path=space.metrics_path, filter=line_filter(space.strategies))


def line_filter(names: Iterable[str]) -> str:
    """Return the regular expression for `loss=0.1`, `loss: 0.1`, and `{"loss": 0.1}` in Go's syntax.

    Hugging Face's Trainer prints Python's dicts: `{'loss': 0.1}`, and newer ones `{'loss': '0.1'}`.
    Katib's default reads `val/loss=0.1` as `loss`, `loss: 0.1` not at all, and `loss=nan` as an empty value.
    """
    known = "|".join(re.sub(r"([.])", r"\\\1", name) for name in names)
    return rf"(?:^|[^\w/.-]){QUOTE}({known}){QUOTE}\s*[:=]\s*{QUOTE}{WRAPPER}({NUMBER_IN_LINE})"
