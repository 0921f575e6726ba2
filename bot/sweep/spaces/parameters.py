"""Read `parameters:` of a space: ranges, lists of values, fixed values, nested names, and conditions (`if:`);
refuse names and values that can't be passed. Pure.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from bot.core.flags import RESERVED_VARIABLES, FlagStyle, flag, variable
from bot.core.space import Parameter
from bot.platform.config.rules import Key, OneOf, Schema
from bot.platform.config.section import Section, json_schema, read_each
from bot.platform.config.value_types import SCALAR, AsNumber, Text
from bot.platform.config.yaml_reader import Node
from bot.sweep.spaces.algorithms import OBJECTIONS, space_objection
from bot.text.wording import shortened

Report = Callable[[str], None]
MAX_LIST_VALUE = 1_000  # characters of a list as a value
# Flags with another meaning: ours, draccus' (a config file), and the name Katib gives a trial's name.
RESERVED = {"tensorboard_dir", "config_path", "trialName"}
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
PARAMETER_VALUE = re.compile(r"[A-Za-z0-9_.,:/+=@-]+")  # Katib inserts values unescaped
FIXED = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")


@dataclass(frozen=True, kw_only=True)
class Range(Section):
    min: Annotated[AsNumber, Key("1e-4", required=True)] = 0
    """Smallest value. The range has whole numbers if all its numbers are whole."""
    max: Annotated[AsNumber, Key("1e-1", required=True)] = 0
    """Largest value."""
    step: Annotated[AsNumber | None, Key("0.1")] = None
    """Distance between values."""
    scale: Annotated[Text, OneOf(("linear", "log")), Key("log")] = "linear"
    """Scale on which values are sampled."""
    if_: Annotated[Text, Key("optimizer=sgd,adam", "always")] = ""
    """Only with these values of another parameter, a list, is this one passed and searched; for a list:
    `{if: optimizer=sgd, values: [1, 2]}`. Needs the search service."""


def parameters_schema() -> Schema:
    values: Schema = {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {
            "type": ["string", "number", "boolean", "array"],
            "pattern": f"^(?:{PARAMETER_VALUE.pattern})$",
        },
    }
    group = {"type": "object", "not": {"anyOf": [{"required": [key]} for key in ("min", "max")]}}
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": f"^(?:{PARAMETER_NAME.pattern})$"},
        "additionalProperties": {"anyOf": [values, SCALAR, group, json_schema(Range)]},
    }


def read_parameters(
    node: Node | None, algorithm: str, settings: dict[str, str], flags: FlagStyle
) -> tuple[tuple[Parameter, ...], dict[str, str]]:
    """Return the parameters that are searched, and the values of those that are fixed."""
    if node is None:
        return (), {}
    before, names = len(node.errors), dict[str, str]()
    found: list[Parameter] = []
    fixed: dict[str, str] = {}
    for name, each in _leaves("", node):
        _check_name(name, each, flags, names)
        if isinstance(each.value, dict | list):
            found.append(_parameter(name, each, algorithm))
        else:
            fixed[name] = _fixed(each)
    _check_conditions(node, found, flags)
    if not found and len(node.errors) == before:
        node.error(
            "must have at least one parameter with a range ({min: 1e-4, max: 1e-1}) or a list of values"
        )
    elif len(node.errors) == before and (why := space_objection(algorithm, tuple(found), settings)):
        node.error(why)
    return tuple(found), fixed


def _leaves(prefix: str, node: Node) -> Iterator[tuple[str, Node]]:
    """Yield each parameter with its dotted name: a mapping without a range's keys is a group."""
    for name, each in node.mapping().items():
        if isinstance(each.value, dict) and each.value.keys() == {"values"}:  # as W&B writes it
            each.error("must be the list itself, for example [64, 128], without `values:`")
        elif isinstance(each.value, dict) and each.value and not each.value.keys() & Range.known().keys():
            yield from _leaves(f"{prefix}{name}.", each)
        else:
            yield f"{prefix}{name}", each


def _check_name(name: str, node: Node, flags: FlagStyle, names: dict[str, str]) -> None:
    """Report a name that can't be passed, or that is passed like another one."""
    if not PARAMETER_NAME.fullmatch(name):
        node.error(
            "name must start with a letter or underscore, followed by letters, digits, dots, dashes, or "
            "underscores"
        )
    if name in RESERVED:
        node.error("reserved name: the flag already has another meaning")
    passed = variable(name) if flags is FlagStyle.ENV else flag(flags, name)
    if flags is FlagStyle.ENV and RESERVED_VARIABLES.fullmatch(passed):
        node.error(f"reserved name: the environment variable {passed} already has another meaning")
    if passed in names:
        node.error(f"is passed as {passed}, like {names[passed]}. Rename one of them.")
    names.setdefault(passed, name)


def _check_conditions(node: Node, parameters: list[Parameter], flags: FlagStyle) -> None:
    lists = {each.name: each.values for each in parameters if each.values and not each.when}
    for each in parameters:
        if each.when and flags is FlagStyle.ENV:
            node.error(f"{each.name}: if: needs flags; environment variables are passed to all trials")
        elif each.when and not {*each.when[1:]} <= {*lists.get(each.when[0], ())}:
            node.error(
                f"{each.name}: if: must name values of a parameter that is a list without a condition, for "
                f'example optimizer=sgd; got "{each.when[0]}={",".join(each.when[1:])}"'
            )


def _condition(node: Node, text: str) -> tuple[str, ...]:
    name, equals, values = text.partition("=")
    words = [name.strip(), *(each.strip() for each in values.split(","))]
    if not (equals and all(words)):
        node.error(f'if: must be a parameter and its values, for example optimizer=sgd,adam; got "{text}"')
        return ()
    return tuple(words)


def _parameter(name: str, node: Node, algorithm: str) -> Parameter:
    before = len(node.errors)
    parameter = _dimension(name, node)
    if len(node.errors) == before and (why := OBJECTIONS[algorithm](parameter)):
        node.error(why)
    return parameter


def _dimension(name: str, node: Node) -> Parameter:
    if isinstance(node.value, list):
        return Parameter(name=name, values=_values(node))
    if node.value.keys() == {"if", "values"}:
        when = node.value["if"]
        return Parameter(name=name, values=_values(node.value["values"]), when=_condition(when, when.raw))
    before = len(node.errors)
    found, keys = read_each(Range, node)
    numbers = [getattr(found, key) for key in ("min", "max", "step") if key in keys]
    if len(node.errors) == before:
        _check_range(node.error, found.min, found.max, found.step, found.scale == "log")
    return Parameter(
        name=name,
        min=found.min,
        max=found.max,
        step=found.step,
        log=found.scale == "log",
        integer=all(isinstance(number, int) for number in numbers),
        when=_condition(node, found.if_) if found.if_ else (),
    )


def _values(node: Node) -> tuple[str, ...]:
    """Return the values as written: 1e-4 stays 1e-4, on stays on, and [64, 32] becomes [64,32]."""
    seen: list[str] = []
    for item in node.items():
        text = _list_text(item) if isinstance(item.value, list) else item.raw
        if (
            isinstance(item.value, dict)
            or not text
            or not (isinstance(item.value, list) or PARAMETER_VALUE.fullmatch(text))
        ):
            item.error(f"can only contain letters, digits, and _.,:/+=@-; got {item.described}")
        elif text in seen:
            item.error(f'duplicate value "{shortened(text)}"')
        seen.append(text)
    if not seen:
        node.error("must have at least one value")
    return tuple(seen)


def _list_text(node: Node) -> str:
    """Return a list as a value: `[64,32]`, `[[3,1],[5,2]]`."""
    parts = [_list_text(item) if isinstance(item.value, list) else _item_text(item) for item in node.items()]
    text = f"[{','.join(parts)}]"
    if len(text) > MAX_LIST_VALUE:
        node.error(f"can have at most {MAX_LIST_VALUE:,} characters as a value; got {len(text):,}")
    return text


def _item_text(item: Node) -> str:
    if isinstance(item.value, dict) or not PARAMETER_VALUE.fullmatch(item.raw) or "," in item.raw:
        item.error(f"in a list can only contain letters, digits, and _.:/+=@-; got {item.described}")
    return item.raw


def _fixed(node: Node) -> str:
    if not FIXED.fullmatch(node.raw) or "${trial" in node.raw:
        node.error(f"must be a value on one line, of at most 1,000 characters; got {node.described}")
    return node.raw


def _check_range(report: Report, low: float, high: float, step: float | None, log: bool) -> None:
    if low >= high:
        report(f"min must be less than max; got min {low}, max {high}")
    elif log and low <= 0:
        report(f"min must be above 0 on a log scale; got {low}")
    elif step is not None and not 0 < step <= high - low:
        report(f"step must be above 0 and at most max - min; got {step}")
    elif step is not None and log:
        report("a log scale can't have a step. Remove one of them, or list the values.")


def size(parameter: Parameter) -> int | None:
    """Return the number of values; None for a range without steps."""
    low, high, step = parameter.min, parameter.max, parameter.step
    if low is None or high is None:
        return len(parameter.values)
    if parameter.integer:
        return int((high - low) // (step or 1)) + 1
    if step is None:
        return None
    # Count as Katib does, with numpy.arange and its rounding: 0 to 0.3 by 0.1 is three values, not four.
    count = math.ceil(min((high + step - low) / step, 1e15))
    return count - (low + (count - 1) * ((low + step) - low) > high)
