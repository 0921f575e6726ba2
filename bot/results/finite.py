"""Numbers that plots and statistics can subtract without an overflow. Pure."""

import math

LIMIT = 1e100  # larger values count as this: a range up to 1e308 would overflow


def number(text: str) -> float | None:
    """Return a number within the limits; None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return clipped(value) if math.isfinite(value) else None


def clipped(value: float) -> float:
    return min(max(value, -LIMIT), LIMIT)
