"""`from=`: say which earlier sweep's points the search tries first, and at the end whether they led."""

from bot.core.record import SweepRecord
from bot.platform.slack.mrkdwn import code
from bot.sweep.model.feature import Feature
from bot.sweep.results.warm_start import best_points, described


def footer(sweep: SweepRecord) -> str:
    start = sweep.plan.space.warm_start if sweep.plan else None
    if start is None:
        return ""
    return f"Starts from {described(start)}" if start.points else f"from=auto: {described(start)}"


def verdict(sweep: SweepRecord) -> str:
    """Return whether the best trial took one of the points; "" before the end."""
    start, best = sweep.plan.space.warm_start if sweep.plan else None, sweep.progress.best
    if start is None or not start.points or best is None or not (sweep.ending or sweep.phase.final):
        return ""
    led = any(
        all(_equal(best.parameters.get(name, value), value) for name, value in point.items())
        for point in start.points
    )
    if led:
        return f"The best trial took a point of {code(start.sweep)}"
    return f"The best trial is the search's own: it beat {best_points(start)} of {code(start.sweep)}"


def _equal(one: str, other: str) -> bool:
    """Compare numbers as such: the service writes 0.001 for 1e-3."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


FEATURE = Feature(name="warm_start", footer=footer, saved=verdict)
