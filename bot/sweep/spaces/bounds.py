"""Bound the parameters of a space by the option `where=`, such as `batch_size<512,optimizer!=lion`. Pure."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from bot.core.errors import UserError
from bot.core.space import Parameter
from bot.text.number_format import finite
from bot.text.wording import did_you_mean

CONDITION = re.compile(r"\s*([\w.-]{1,80})\s*(<=|>=|!=|<|>)\s*([\w.+/:@-]{1,100})\s*")
MAX_CONDITIONS = 20
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "!=": operator.ne,
}

Condition = tuple[str, str, str]  # a parameter, a key of COMPARE, and a value


def read_where(text: str) -> list[Condition]:
    """Return the conditions. Raises UserError."""
    found = [CONDITION.fullmatch(part) for part in text.split(",")[: MAX_CONDITIONS + 1]]
    conditions = [(match[1], match[2], match[3]) for match in found if match]
    if len(conditions) < len(found) or len(found) > MAX_CONDITIONS:
        raise UserError(
            f"where= must be up to {MAX_CONDITIONS} bounds with commas between, for example "
            f'where="batch_size<512,optimizer!=lion"; got "{text[:100]}".',
            field="where",
        )
    return conditions


def bounded(parameters: tuple[Parameter, ...], where: str | None) -> tuple[Parameter, ...]:
    """Return the parameters within all conditions. Raises UserError."""
    by_name = {each.name: each for each in parameters}
    for name, sign, value in read_where(where) if where else ():
        if name not in by_name:
            guess = did_you_mean(name, by_name)
            raise UserError(
                f"where= names {name}, which isn't a parameter of the space.{guess}", field="where"
            )
        left = _bounded(by_name[name], sign, value)
        if left is None:
            is_range = by_name[name].min is not None and sign == "!="
            why = f"can't bound {name}, a range. Use < or >." if is_range else f"leaves no value of {name}."
            raise UserError(f"where={name}{sign}{value} {why}", field="where")
        by_name[name] = left
    return tuple(by_name.values())


def _bounded(parameter: Parameter, sign: str, text: str) -> Parameter | None:
    """Return the rest of a parameter; None if nothing is left, or the condition doesn't fit its values."""
    bound, low, high = finite(text), parameter.min, parameter.max
    if low is None or high is None:
        left = tuple(value for value in parameter.values if _fits(value, sign, text))
        return replace(parameter, values=left) if left else None
    if bound is None or sign == "!=":
        return None
    step = parameter.step or (1 if parameter.integer else None)
    if step and math.isfinite((high - low) / step):  # the first, or the last, of its values that fits
        at = round(min(max((bound - low) / step, -1), (high - low) / step + 1), 9)
        fits = {"<": math.ceil(at) - 1, "<=": math.floor(at), ">": math.floor(at) + 1}
        number = fits.get(sign, math.ceil(at))
        bound = type(low + step)(Decimal(str(low)) + number * Decimal(str(step)))  # 0.1 + 2 * 0.1 isn't 0.3
    low, high = (low, min(high, bound)) if sign.startswith("<") else (max(low, bound), high)
    if low < high and (step is None or round((high - low) / step, 9) >= 1):
        return replace(parameter, min=low, max=high)
    is_left = low <= high and (low < high or step or "=" in sign)
    one = Parameter(name=parameter.name, values=(str(low),), when=parameter.when)
    return one if is_left else None


def _fits(value: str, sign: str, text: str) -> bool:
    number, bound = finite(value), finite(text)
    if number is not None and bound is not None:
        return COMPARE[sign](number, bound)
    return sign == "!=" and value != text
