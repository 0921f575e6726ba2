"""Convert a Weights & Biases sweep file to a space, with notes on what isn't used. Pure.

Source: wandb/sweeps, src/sweeps/config/schema.json; wandb/sdk/launch/sweeps/utils.py for the command.
"""

import math
import re
import shlex
from collections.abc import Callable
from functools import partial

from bot.core.request import SweepRequest
from bot.platform.config.yaml_reader import Node
from bot.sweep.spaces.foreign import Notes, entries, holding, number, present, scalar, text, unknown
from bot.text.wording import shortened

TOOL = "W&B sweep file"
METHODS = {"grid": "grid", "random": "random", "bayes": "tpe"}
ARGUMENTS = {
    "${args}": ("--a.b=1", ""),
    "${args_no_equals}": ("--a.b 1", ""),
    "${args_no_hyphens}": ("a.b=1", ""),
    "${args_no_boolean_flags}": ("--a.b=1", "switch"),
    "${args_override_hydra}": ("a.b=1", ""),
}
UNUSED = ("name", "project", "entity", "job", "image_uri", "controller", "settings")
LOG_BOUNDS = math.log(1e300)  # exp of more than this is no finite number


def convert(root: Node, request: SweepRequest) -> tuple[Node, Notes]:
    keys, notes = entries(root), Notes()
    method = keys.pop("method")
    parameters = keys.pop("parameters", None)
    command = _command(notes, root, keys, request)
    has_switches = bool(command.get("booleans"))
    values = present(
        algorithm=_method(notes, method),
        objective=_objective(notes, root, keys.pop("metric", None), request),
        description=keys.pop("description", None),
        parameters=parameters and holding(parameters, _parameters(parameters, has_switches)),
        metrics=scalar(root, "stdout"),
        **command,
    )
    if not request.metrics:
        notes.add(root, "Katib can't read wandb.log: print metrics such as loss=0.1, or set metrics=")
    if "run_cap" in keys:
        values["trials"] = holding(keys["run_cap"], {"max": number(keys.pop("run_cap"), whole=True)})
    elif text(method) != "grid" and request.trials is None:
        notes.add(method, "run_cap is missing, so the default number of trials runs; set trials=")
    if "early_terminate" in keys:
        notes.add(
            keys.pop("early_terminate"),
            "not used: trials run to their end. Use early_stopping: asha in a space file.",
        )
    for key in UNUSED:
        if key in keys:
            notes.add(keys.pop(key), "not used")
    for key in ("metrics", "scheduler", "prior_runs"):
        if key in keys:
            keys.pop(key).error("isn't supported. Remove it.")
    unknown(keys, TOOL)
    return holding(root, values), notes


def _method(notes: Notes, node: Node) -> Node:
    if text(node) not in METHODS:
        node.error(f"must be grid, random, or bayes{node.got}")
    if text(node) == "bayes":
        notes.add(node, "bayes becomes tpe; set algorithm= for another algorithm")
    return scalar(node, METHODS.get(text(node), "random"))


def _objective(notes: Notes, root: Node, node: Node | None, request: SweepRequest) -> Node | None:
    if node is None:
        if not (request.metric and request.goal):
            root.error("missing key: metric. Add it, or set metric= and goal=.")
        return holding(root, {"metric": scalar(root, "loss"), "goal": scalar(root, "minimize")})
    keys = entries(node)
    values = {"metric": keys.pop("name")} if "name" in keys else {}
    values["goal"] = keys.pop("goal", scalar(node, "minimize"))
    if "target" in keys:
        values["target"] = number(keys.pop("target"))
    for key in ("impute", "impute_while_running"):
        if key in keys:
            notes.add(keys.pop(key), "not used: a trial without the metric counts as failed")
    unknown(keys, TOOL)
    return holding(node, values)


def _command(
    notes: Notes, root: Node, keys: dict[str, Node], request: SweepRequest
) -> dict[str, Node | None]:
    """Return command, flags, and booleans of the program and command keys."""
    program, command = keys.pop("program", None), keys.pop("command", None)
    if request.cmd:
        for node in filter(None, (program, command)):
            notes.add(node, "not used: cmd= is the command")
        return {}
    default = ["${env}", "${interpreter}", "${program}", "${args}"]
    words = command.items() if command else [scalar(root, word) for word in default]
    if program is None and "${program}" in map(text, words):
        root.error("missing key: program. Add it, or set cmd=.")
        return {"command": scalar(root, "-")}
    file = text(program) if program else ""
    replaced = {"${env}": "", "${interpreter}": "python", "${program}": file}
    shown, style, booleans = [], "", ""
    for word in words:
        if text(word) in ARGUMENTS:
            style, booleans = ARGUMENTS[text(word)]
            if word is not words[-1]:
                word.error("must be the last word: Sweepbot appends the parameters. Reorder it, or set cmd=.")
        elif "${" in text(word) and text(word) not in replaced:
            word.error("isn't supported. Use ${args}, or set cmd=.")
        else:
            shown.append(shlex.quote(replaced.get(text(word), text(word))) if text(word) != "${env}" else "")
    if command and not style:
        command.error(
            "has no ${args}: Sweepbot passes parameters as arguments and sets no wandb.config. "
            "Add ${args} as the last word, or set cmd=."
        )
    origin = command or program or root
    return {
        "command": scalar(origin, " ".join(filter(None, shown))),
        "flags": scalar(origin, style) if style else None,
        "booleans": scalar(origin, booleans) if booleans else None,
    }


def _parameters(node: Node, has_switches: bool) -> dict[str, Node]:
    return {name: _parameter(each, has_switches) for name, each in entries(node).items()}


def _parameter(node: Node, has_switches: bool) -> Node:
    keys = entries(node)
    if not isinstance(node.value, dict):
        return node
    if "parameters" in keys:
        group = keys.pop("parameters")
        unknown(keys, TOOL)
        return holding(group, _parameters(group, has_switches))
    how = keys.pop("distribution", None)
    if "probabilities" in keys:
        keys.pop("probabilities").error(
            "isn't supported: values are sampled with equal probability. Remove it."
        )
    if "value" in keys or "values" in keys:
        one = keys.pop("value", None)
        values = [one] if one else keys.pop("values").items()
        if how and text(how) not in {"constant", "categorical"}:
            how.error(f"must be categorical or constant next to a list of values; got {shortened(text(how))}")
        unknown(keys, TOOL)
        said = [_said(each, has_switches) for each in values]
        return said[0] if one and not isinstance(one.value, list | dict) else holding(one or node, said)
    return _range(node, keys, how)


def _said(node: Node, has_switches: bool) -> Node:
    """Return a value as W&B's agent passes it: with Python's words, unless booleans are switches."""
    if isinstance(node.value, bool):
        return scalar(node, node.value) if has_switches else scalar(node, str(node.value))
    return scalar(node, "None") if node.value is None else node


def _range(node: Node, keys: dict[str, Node], how: Node | None) -> Node:
    names: tuple[str, ...] = ("min", "max")
    bounds = {key: number(keys.pop(key)) for key in names if key in keys}
    if len(bounds) < 2 and not (how and re.fullmatch("q?_?(log_)?normal", text(how))):
        node.error("needs values, value, or min and max")
    whole = all(isinstance(one.value, int) for one in bounds.values())
    kind = text(how) if how else "int_uniform" if whole else "uniform"
    step = number(keys.pop("q")) if "q" in keys else None
    if kind not in _KINDS:
        (how or node).error(
            f"distribution {shortened(kind)} isn't supported. Use uniform, log_uniform_values, or values."
        )
        return holding(node, bounds)
    if kind == "inv_log_uniform":  # W&B samples exp(-x): the bounds change places and signs
        bounds = {"min": bounds.get("max", node), "max": bounds.get("min", node)}
    convert, is_log = _KINDS[kind]
    values = {key: convert(one) for key, one in bounds.items()}
    if is_log:
        values["scale"] = scalar(node, "log")
    if kind.startswith("q_"):
        values["step"] = step or scalar(node, 1)
    elif step:
        step.error("needs a distribution that starts with q_")
    unknown(keys, TOOL)
    return holding(node, values)


def _exp(node: Node, sign: int = 1) -> Node:
    """W&B's log_uniform has exponents as bounds."""
    if not isinstance(node.value, int | float) or abs(node.value) > LOG_BOUNDS:
        node.error(f"must be an exponent from {-LOG_BOUNDS:.0f} to {LOG_BOUNDS:.0f}; got {node.described}")
        return node
    return scalar(node, math.exp(sign * node.value))


# How a bound is read, and whether the scale is logarithmic.
_KINDS: dict[str, tuple[Callable[[Node], Node], bool]] = {
    "uniform": (partial(number, whole=False), False),
    "q_uniform": (lambda bound: bound, False),
    "int_uniform": (partial(number, whole=True), False),
    "log_uniform_values": (partial(number, whole=False), True),
    "log_uniform": (_exp, True),
    "inv_log_uniform_values": (partial(number, whole=False), True),
    "inv_log_uniform": (partial(_exp, sign=-1), True),
}
