"""Convert a Katib Experiment, or its spec alone, to a space, with notes on what isn't used. Pure.

Katib's own manifest quotes all numbers; the files of Astera's Launch are the spec without `kind`, unquoted.
"""

import re
import shlex
from collections.abc import Iterable, Iterator

from bot.core.flags import FlagStyle, flag
from bot.core.request import SweepRequest
from bot.platform.config.yaml_reader import Node
from bot.sweep.spaces.foreign import Notes, entries, holding, number, present, scalar, text, unknown
from bot.text.wording import shortened

TOOL = "Katib Experiment"
COLLECTORS = {"StdOut": "stdout", "File": "file", "TensorFlowEvent": "tensorboard", "Push": "push"}
PLACEHOLDER = re.compile(r"\$\{trialParameters\.([^}]*)\}")
TOP_KEYS = {"apiVersion", "kind", "metadata", "spec", "status"}
COUNTS = {"max": "maxTrialCount", "parallel": "parallelTrialCount", "max_failed": "maxFailedTrialCount"}


def convert(root: Node, request: SweepRequest) -> tuple[Node, Notes]:
    keys = entries(root)
    full = "spec" in keys
    notes = Notes()
    if full and text(keys.get("kind", root)) != "Experiment":
        root.error("must be kind: Experiment")
    spec = entries(keys["spec"]) if full else keys
    for key in ("metadata", "status") if full else ():
        if key in keys:
            notes.add(keys[key], "not used")
    if full:
        unknown({key: value for key, value in keys.items() if key not in TOP_KEYS}, TOOL)
    values = present(
        objective=_objective(spec.pop("objective", None)),
        algorithm=_algorithm(spec.pop("algorithm", None)),
        trials=_trials(root, spec),
        parameters=_parameters(spec.pop("parameters", None)),
        metrics=_metrics(notes, root, spec.pop("metricsCollectorSpec", None), full=full),
        extendable=_resume(notes, spec.pop("resumePolicy", None)),
        early_stopping=_algorithm(spec.pop("earlyStopping", None)),
        **_command(notes, root, spec.pop("trialTemplate", None), request),
    )
    if "nasConfig" in spec:
        spec.pop("nasConfig").error("Sweepbot searches no network architectures. Use parameters.")
    unknown(spec, TOOL)
    return holding(root, values), notes


def _objective(node: Node | None) -> Node | None:
    if node is None:
        return None
    keys, values = entries(node), dict[str, Node]()
    for ours, theirs in (
        ("metric", "objectiveMetricName"),
        ("goal", "type"),
        ("additional", "additionalMetricNames"),
    ):
        if theirs in keys:
            values[ours] = keys.pop(theirs)
    if "goal" in keys:
        values["target"] = number(keys.pop("goal"))
    if "metricStrategies" in keys:
        strategies = keys.pop("metricStrategies")
        named = [entries(item) for item in strategies.items()]
        pairs = {text(one["name"]): one["value"] for one in named if {"name", "value"} <= one.keys()}
        values["strategy"] = holding(strategies, pairs)
    unknown(keys, TOOL)
    return holding(node, values)


def _algorithm(node: Node | None) -> Node | None:
    if node is None:
        return None
    keys = entries(node)
    values = {"name": keys.pop("algorithmName")} if "algorithmName" in keys else {}
    for item in keys.pop("algorithmSettings", holding(node, [])).items():
        setting = entries(item)
        if {"name", "value"} <= setting.keys():
            values[text(setting["name"])] = number(setting["value"])
    unknown(keys, TOOL)
    return holding(node, values)


def _trials(root: Node, spec: dict[str, Node]) -> Node:
    """Katib's own default for parallel trials is 3; a sweep without a maximum never ends there."""
    counts = {ours: number(spec.pop(theirs)) for ours, theirs in COUNTS.items() if theirs in spec}
    return holding(next(iter(counts.values()), root), counts)


def _parameters(node: Node | None) -> Node | None:
    if node is None:
        return None
    values: dict[str, Node] = {}
    for item in node.items():
        keys = entries(item)
        name = text(keys.pop("name")) if "name" in keys else ""
        if not name or name in values:
            item.error("needs a name" if not name else f'duplicate parameter "{shortened(name)}"')
            continue
        values[name] = _parameter(item, keys)
    return holding(node, values)


def _parameter(item: Node, keys: dict[str, Node]) -> Node:
    type_ = keys.pop("parameterType", None)
    kind = text(type_) if type_ else ""
    if kind not in {"double", "int", "discrete", "categorical"}:
        at = type_ or item
        at.error(f"parameterType must be double, int, discrete, or categorical{at.got}")
    space_node = keys.pop("feasibleSpace", None)
    space = entries(space_node)
    unknown(keys, TOOL)
    values = _list(item, space) if kind in {"discrete", "categorical"} else _range(item, space, kind)
    unknown(space, TOOL)
    return values


def _list(item: Node, space: dict[str, Node]) -> Node:
    if "distribution" in space and text(space["distribution"]) in {"uniform", ""}:
        del space["distribution"]
    return space.pop("list") if "list" in space else holding(item, [])


def _range(item: Node, space: dict[str, Node], kind: str) -> Node:
    whole = kind == "int"
    names: tuple[str, ...] = ("min", "max", "step")
    keys = {key: number(space.pop(key), whole=whole) for key in names if key in space}
    if whole and (broken := [one for one in keys.values() if isinstance(one.value, float)]):
        broken[0].error(f"must be a whole number for parameterType int; got {broken[0].raw}")
    how = space.pop("distribution", None)
    if how and text(how) == "logUniform":
        keys["scale"] = scalar(how, "log")
    elif how and text(how) not in {"uniform", ""}:
        how.error(f"distribution {shortened(text(how))} has no bounds. Use uniform or logUniform.")
    return holding(item, keys)


def _metrics(notes: Notes, root: Node, node: Node | None, *, full: bool) -> Node:
    """Without a collector Katib reads the output, and Launch TensorBoard."""
    if node is None:
        return holding(root, {"from": scalar(root, "stdout" if full else "tensorboard")})
    keys = entries(node)
    collector, source = entries(keys.pop("collector", None)), entries(keys.pop("source", None))
    unknown(keys, TOOL)
    kind = collector.pop("kind", scalar(node, "StdOut"))
    if text(kind) not in COLLECTORS:
        kind.error(f"must be StdOut, File, TensorFlowEvent, or Push; got {shortened(text(kind))}")
        return holding(node, {"from": scalar(node, "stdout")})
    values = {"from": scalar(kind, COLLECTORS[text(kind)])}
    place = entries(source.pop("fileSystemPath", None))
    if text(kind) == "File" and "path" in place:
        values["path"] = place["path"]
    elif "path" in place:
        notes.add(place["path"], "not used: Sweepbot chooses the directory of TensorBoard files")
    if "filter" in source:
        notes.add(source.pop("filter"), "not used: loss=0.1, loss: 0.1, and JSON lines are read")
    unknown(source | collector, TOOL)
    return holding(node, values)


def _resume(notes: Notes, node: Node | None) -> Node | None:
    if node is None or text(node) == "Never":
        return None
    if text(node) not in {"LongRunning", "FromVolume"}:
        node.error(f"must be Never, LongRunning, or FromVolume{node.got}")
    if text(node) == "FromVolume":
        notes.add(node, "LongRunning is used: the suggestion service keeps running instead of a volume")
    return scalar(node, "true")


def _command(notes: Notes, root: Node, node: Node | None, request: SweepRequest) -> dict[str, Node]:
    """Return the command of the template's primary container without parameters, and their flags' style."""
    if node is None:
        if not request.cmd:
            root.error('has no command. Set cmd=, for example cmd="python train.py".')
        return {"command": scalar(root, "-")}
    if request.cmd:
        notes.add(node, "not used: cmd= is the command, and Sweepbot makes the pod")
        return {}
    template = entries(node)
    container = _container(template)
    if container is None:
        node.error("has no container that Sweepbot can read a command from. Set cmd= in the command.")
        return {"command": scalar(root, "-")}
    notes.add(node, "only the command of its container is used: Sweepbot builds the image and makes the pod")
    references = {
        text(one["name"]): text(one["reference"])
        for one in map(entries, template["trialParameters"].items() if "trialParameters" in template else ())
        if {"name", "reference"} <= one.keys()
    }
    items = [word for key in ("command", "args") if key in container for word in container[key].items()]
    first = next((text(item) for item in items if PLACEHOLDER.search(text(item))), "")
    if not first:
        node.error("passes no parameter as an argument. Set cmd= (and flags= for another style).")
    style = FlagStyle.DOTS if first.startswith("--") else FlagStyle.HYDRA
    command = scalar(node, " ".join(_words(items, references, style)))
    return {"command": command, "flags": scalar(node, style.value)}


def _container(template: dict[str, Node]) -> dict[str, Node] | None:
    node: Node | None = template.get("trialSpec")
    for key in ("spec", "template", "spec", "containers"):
        node = node.value.get(key) if node and isinstance(node.value, dict) else None
    containers = [entries(item) for item in node.value] if node and isinstance(node.value, list) else []
    primary = text(template["primaryContainerName"]) if "primaryContainerName" in template else ""
    named = [one for one in containers if "name" in one and text(one["name"]) == primary]
    found = next(iter(named or containers), None)
    return found if found and ("command" in found or "args" in found) else None


def _words(items: Iterable[Node], references: dict[str, str], style: FlagStyle) -> Iterator[str]:
    """Yield the words, quoted. A flag that Sweepbot appends itself is left out, others are errors."""
    for item in items:
        word = text(item)
        names = PLACEHOLDER.findall(word)
        if not names:
            yield shlex.quote(word)
            continue
        passed = flag(style, references.get(names[0], names[0]))
        if word != f"{passed}=${{trialParameters.{names[0]}}}":
            fix = "Set cmd= (and flags= for another style), or change the argument."
            item.error(f"must be {shortened(passed)}=VALUE, which is how Sweepbot passes it. {fix}")
