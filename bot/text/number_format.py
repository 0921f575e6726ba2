"""Read numbers, and format GPU-hours, money, and shares for people, and tables for spreadsheets. Pure."""

import csv
import math
import re
from collections.abc import Iterable
from io import StringIO

# Spreadsheets of many countries also separate cells by semicolons.
FORMULA = re.compile(r"(^|[;\t])(?=[=+\-@\t\r])")
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
SMALL = 100  # smaller numbers get decimals
LEAST = 0.05  # GPU-hours that round to 0.1; fewer get one digit
HALF_CENT = 0.005  # of which less gets one digit, too


def finite(text: str) -> float | None:
    """Return the number that a text is; None for any other text, NaN, and infinity."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def hours(value: float) -> str:
    """Format GPU-hours: `0.003`, `0.5`, `74`, `1,203`; 0 only if there are none."""
    if 0 < value < LEAST:
        return f"{max(value, 0.0001):.1g}"
    return f"{value:,.0f}" if value >= SMALL or round(value, 1) == round(value) else f"{value:.1f}"


def money(value: float, currency: str) -> str:
    """Format an amount: `$1,203`, `EUR 12.50`, `$0.003`; 0 only if it is nothing."""
    blank = " " if currency[-1:].isalpha() else ""
    if 0 < value < HALF_CENT:
        return f"{currency}{blank}{max(value, 0.0001):.1g}"
    return f"{currency}{blank}{value:,.0f}" if value >= SMALL else f"{currency}{blank}{value:.2f}"


def percent(part: float, whole: float) -> str:
    """Format a share: `36%`; `0%` of nothing."""
    return f"{100 * part / whole:.0f}%" if whole else "0%"


def signed(value: float) -> str:
    """Format a difference: `+12`, `−3.5`, `±0`."""
    return "±0" if round(value, 1) == 0 else f"{'+' if value > 0 else '−'}{hours(abs(value))}"


def short(value: str) -> str:
    """Shorten a decimal with 7 or more places to 6 digits; the final command line has them all."""
    return f"{float(value):.6g}" if re.fullmatch(r"-?\d+\.\d{7,}(e-?\d+)?", value) else value


def as_csv(rows: Iterable[Iterable[object]]) -> str:
    """Write CSV. Text that a spreadsheet would run as a formula gets an apostrophe; numbers stay numbers."""
    text = StringIO()
    csv.writer(text).writerows([_cell(each) for each in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return FORMULA.sub(r"\1'", value)
