"""Early stopping on recorded learning curves: GPU-hours and the best value, beside no stopping.

The curves of bench/curves (`python -m bench.record_curves`) are played back in simulated time, as trials of
one GPU each, eight in parallel. Sweepbot's own rule decides, on readings a minute apart as in a sweep. An
epoch takes its recorded time, stretched so that the mean is two minutes. There are 20 random orders of the
trials.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import mean, median

from bench.table import Row
from bot.core.curves import Curve, Point
from bot.core.stopping import Objective, StoppingRule, judge, missing_rungs
from bot.sweep.results.live import PERIOD

CURVES = Path(__file__).parent / "curves"
PARALLEL, ORDERS = 8, 20
EPOCH = 120.0  # seconds, on average
MINIMUM = Objective(maximize=False, strategy="min")
RULES = (
    StoppingRule(name="asha"),
    StoppingRule(name="asha", grace=3),
    StoppingRule(name="asha", factor=2),
    StoppingRule(name="median"),
    StoppingRule(name="median", grace=4),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    hours: float  # GPU-hours
    best: float
    stopped: int


async def run() -> list[Row]:
    rows = []
    for file in sorted(CURVES.glob("*.json")):
        trials = curves_of(json.loads(file.read_text()))
        orders = [random.Random(seed).sample(list(trials), len(trials)) for seed in range(ORDERS)]  # noqa: S311
        full = [played(trials, None, order) for order in orders]
        for rule in RULES:
            ours = [played(trials, rule, order) for order in orders]
            rows.append(_row(f"{file.stem}, {len(trials)} trials", rule, full, ours))
    return rows


def curves_of(recorded: Sequence[Mapping[str, list[float | None]]]) -> dict[str, Curve]:
    """Return the recorded curves by trial, with times from the trial's own start."""
    stretch = EPOCH / mean(second for trial in recorded for second in trial["seconds"] if second is not None)
    found = {}
    for number, trial in enumerate(recorded):
        times = accumulate((second or 0.0) * stretch for second in trial["seconds"])
        values = (float("nan") if loss is None else loss for loss in trial["loss"])
        points = zip(values, times, strict=True)
        found[f"trial-{number:02}"] = tuple(Point(n, value, at) for n, (value, at) in enumerate(points, 1))
    return found


def played(trials: Mapping[str, Curve], rule: StoppingRule | None, order: Sequence[str]) -> Outcome:
    """Play a sweep back: trials start in this order as places become free."""
    waiting, now, hours, best, stopped = list(order), 0.0, 0.0, float("inf"), 0
    running: dict[str, float] = {}  # start by trial
    rungs: dict[int, dict[str, float | None]] = {}
    while waiting or running:
        stops: set[str] = set()
        while waiting and len(running) < PARALLEL:
            running[waiting.pop(0)] = now
        now += PERIOD.total_seconds()
        seen = {name: _until(trials[name], start, now) for name, start in running.items()}
        ends = {name for name, curve in seen.items() if len(curve) == len(trials[name])}
        if rule:
            new = {n: c for n, c in seen.items() if c and missing_rungs(rule, rungs, n, c[-1].step)}
            rungs, verdicts = judge(rule, MINIMUM, rungs, new, running.keys() - ends)
            stopped += len(verdicts)
            stops = {verdict.trial for verdict in verdicts}
        for name in ends | stops:
            hours += (min(now, running[name] + trials[name][-1].at) - running.pop(name)) / 3600
            best = min([best, *(p.value for p in seen[name] if p.value == p.value)])
    return Outcome(hours=hours, best=best, stopped=stopped)


def _until(curve: Curve, start: float, now: float) -> Curve:
    return tuple(Point(p.step, p.value, start + p.at) for p in curve if start + p.at <= now)


def _row(name: str, rule: StoppingRule, full: Sequence[Outcome], ours: Sequence[Outcome]) -> Row:
    shares = [one.hours / whole.hours for one, whole in zip(ours, full, strict=True)]
    found = sum(one.best <= whole.best for one, whole in zip(ours, full, strict=True))
    values = [one.best for one in ours]
    factor = f", reduction factor {rule.factor}" if rule.name == "asha" else ""
    hours, most = (median(one.hours for one in each) for each in (ours, full))
    return Row(
        what=f"{name}: {rule.name}, grace period {rule.grace}{factor}",
        against="no stopping",
        measured=f"{hours:.0f} vs {most:.0f} GPU-hours; "
        f"best loss {median(values):.4g} (worst order {max(values):.4g}) vs {full[0].best:.4g}; "
        f"{median(one.stopped for one in ours):.0f} stopped; "
        f"the best trial kept in {found} of {ORDERS} orders",
        ratio=round(median(shares), 3),
        samples={"share of GPU-hours": [round(each, 4) for each in shares], "best": values},
    )
