"""Kubernetes quantities: read, scale, and write them as the API server does. Pure."""

import re
from decimal import ROUND_UP, Decimal
from fractions import Fraction
from functools import lru_cache

QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|[kMGTP]|[KMGTP]i)?")
ANY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,19})|([numkMGTPE]|[KMGTPE]i))?")
MAX_POWER = 99  # of ten: what is larger is beyond the limits, whatever stands before it
MOST, LEAST = Decimal(2**63 - 1), Decimal("1e-9")  # Kubernetes caps what is larger, and rounds up the rest
_DECIMAL = {"m": Fraction(1, 1000), "": Fraction(1)} | {
    s: Fraction(1000**n) for n, s in enumerate("kMGTP", 1)
}
_BINARY = {f"{s}i": Fraction(1024**n) for n, s in enumerate("KMGTP", 1)}
_UNITS = _DECIMAL | _BINARY
_RARE = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "E": Fraction(10**18), "Ei": Fraction(1024**6)}


def amount(quantity: str) -> Fraction:
    """Return a quantity as a number: `4Gi` is 4294967296, `500m` one half. Raises ValueError."""
    found = QUANTITY.fullmatch(quantity)
    if not found:
        raise ValueError(f"{quantity} is not a quantity")
    return Fraction(found[1]) * _UNITS[found[2] or ""]


@lru_cache(maxsize=4096)
def any_amount(quantity: str) -> Fraction:
    """Return the same, also of a rare notation such as 1e3, between the limits of Kubernetes, which keep
    the digits of 1e999999999 from filling the memory. Raises ValueError.
    """
    found = ANY.fullmatch(quantity)
    if not found:
        raise ValueError(f"{quantity} is not a quantity")
    power = max(-MAX_POWER, min(int(found[2] or 0), MAX_POWER))
    unit = (_UNITS | _RARE)[found[3] or ""]
    size = Decimal(found[1]).scaleb(power) * unit.numerator / unit.denominator
    return Fraction(max(-MOST, min(size, MOST)).quantize(LEAST, ROUND_UP))


def canonical(quantity: str) -> str:
    """Return it as the API server writes it: `0.5Gi` as `512Mi`, `1000m` as `1`. Raises ValueError.

    Katib rejects a template in which Kubernetes would write a value differently, except under `resources`.
    """
    return _written(amount(quantity), binary=quantity.endswith("i"))


def scaled(quantity: str, factor: Fraction, *, least: Fraction = Fraction(1, 1000)) -> str:
    """Return a multiple of a quantity, rounded down to a multiple of `least`, but not to zero."""
    value = amount(quantity) * factor
    return _written(max(value // least, 1) * least, binary=quantity.endswith("i"))


def _written(value: Fraction, *, binary: bool) -> str:
    """Return the value with the largest unit that leaves a whole number."""
    units = _BINARY | {"": Fraction(1)} if binary else _DECIMAL
    for suffix, unit in sorted(units.items(), key=lambda each: -each[1]):
        if value >= unit and (value / unit).denominator == 1:
            return f"{value / unit}{suffix}"
    return f"{-(-value // _DECIMAL['m'])}m" if value else "0"
