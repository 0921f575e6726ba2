"""Early stopping on recorded learning curves: GPU-hours and the best value, beside no stopping.

The curves of bench/curves (`python -m bench.record_curves`) are played back in simulated time, as trials of
one GPU each, four in parallel. Sweepbot's own rule decides, on readings a minute apart as in a sweep. An
epoch takes its recorded time, stretched so that the mean is two minutes. There are 20 random orders of the
trials. Optuna's pruners decide at every report at once, by its defaults.
"""

import json
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import optuna

from bench.table import Row
from bot.core.curves import Curve, Point
from bot.core.stopping import Objective, Rungs, StoppingRule, at_rungs, judge, missing_rungs
from bot.sweep.results.live import PERIOD
from bot.sweep.spaces.early_stopping import DEFAULT_FACTOR, DEFAULT_GRACE

CURVES = Path(__file__).parent / "curves"
PARALLEL, ORDERS = 4, 20
EPOCH = 120.0  # seconds, on average
MOST, KEPT = 0.25, 19  # the goal of a default: a share of the GPU-hours, and orders with the best trial
MINIMUM = Objective(maximize=False, strategy="min")
DEFAULT = StoppingRule(name="asha", grace=DEFAULT_GRACE, factor=DEFAULT_FACTOR)
RULES = (DEFAULT, StoppingRule(name="asha"), StoppingRule(name="median", grace=DEFAULT_GRACE))
PRUNERS = (optuna.pruners.MedianPruner, optuna.pruners.SuccessiveHalvingPruner)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    hours: float  # GPU-hours
    best: float
    stopped: int


# Takes the starts of the running trials, and now, in seconds; returns the trials to stop.
Decide = Callable[[Mapping[str, float], float], set[str]]


async def run() -> list[Row]:
    optuna.logging.disable_default_handler()
    rows = []
    for file in sorted(CURVES.glob("*.json")):
        trials = curves_of(json.loads(file.read_text()))
        orders = [random.Random(seed).sample(list(trials), len(trials)) for seed in range(ORDERS)]  # noqa: S311
        for rule in RULES:
            outcomes = [played(trials, by_rule(rule, trials), order) for order in orders]
            factor = f", reduction factor {rule.factor}" if rule.name == "asha" else ""
            what = f"{rule.name}, grace period {rule.grace}{factor}"
            rows.append(_row(file.stem, what, trials, outcomes, goal=rule is DEFAULT))
        for pruner in PRUNERS:
            outcomes = [played(trials, by_pruner(pruner(), trials), order) for order in orders]
            rows.append(_row(file.stem, f"Optuna's {pruner.__name__}", trials, outcomes, goal=False))
    return rows


def curves_of(recorded: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Return the recorded curves by trial, with times from the trial's own start."""
    stretch = EPOCH / mean(trial["seconds"] for trial in recorded)
    found = {}
    for number, trial in enumerate(recorded):
        losses = [float("nan") if loss is None else loss for loss in trial["loss"]]
        points = (Point(n, loss, n * trial["seconds"] * stretch) for n, loss in enumerate(losses, 1))
        found[f"trial-{number:02}"] = tuple(points)
    return found


def played(trials: Mapping[str, Curve], decide: Decide, order: Sequence[str]) -> Outcome:
    """Play a sweep back: trials start in this order as places become free."""
    waiting, now, hours, best, stopped = list(order), 0.0, 0.0, float("inf"), 0
    running: dict[str, float] = {}  # start by trial
    while waiting or running:
        while waiting and len(running) < PARALLEL:
            running[waiting.pop(0)] = now
        now += PERIOD.total_seconds()
        ends = {name for name, start in running.items() if start + trials[name][-1].at <= now}
        stops = decide(running, now) - ends
        stopped += len(stops)
        for name in ends | stops:
            start = running.pop(name)
            hours += min(now - start, trials[name][-1].at) / 3600
            best = min(best, *(p.value for p in _until(trials[name], start, now) if math.isfinite(p.value)))
    return Outcome(hours=hours, best=best, stopped=stopped)


def by_rule(rule: StoppingRule, trials: Mapping[str, Curve]) -> Decide:
    short = {name: at_rungs(rule, MINIMUM.strategy, curve) for name, curve in trials.items()}
    rungs: Rungs = {}

    def decide(running: Mapping[str, float], now: float) -> set[str]:
        nonlocal rungs
        seen = {name: _until(short[name], start, now) for name, start in running.items()}
        new = {n: c for n, c in seen.items() if c and missing_rungs(rule, rungs, n, c[-1].step)}
        rungs, verdicts = judge(rule, MINIMUM, rungs, new, running)
        return {verdict.trial for verdict in verdicts}

    return decide


def by_pruner(pruner: optuna.pruners.BasePruner, trials: Mapping[str, Curve]) -> Decide:
    study = optuna.create_study(pruner=pruner)
    asked: dict[str, optuna.Trial] = {}
    told = dict.fromkeys(trials, 0)  # reports

    def decide(running: Mapping[str, float], now: float) -> set[str]:
        asked.update({name: study.ask() for name in running if name not in asked})
        new = ((p.at, n, p) for n, at in running.items() for p in _until(trials[n], at, now)[told[n] :])
        stops: set[str] = set()
        for _, name, point in sorted(new):
            if name in stops:
                continue
            asked[name].report(point.value, point.step)
            told[name] += 1
            if told[name] == len(trials[name]):
                study.tell(asked[name], min(p.value for p in trials[name] if math.isfinite(p.value)))
            elif asked[name].should_prune():
                study.tell(asked[name], state=optuna.trial.TrialState.PRUNED)
                stops.add(name)
        return stops

    return decide


def _until(curve: Curve, start: float, now: float) -> Curve:
    reached = curve[: bisect_right(curve, now - start, key=lambda point: point.at)]
    return tuple(Point(p.step, p.value, start + p.at) for p in reached)


def _row(set_: str, what: str, trials: Mapping[str, Curve], played: Sequence[Outcome], goal: bool) -> Row:
    full = sum(curve[-1].at for curve in trials.values()) / 3600
    best = min(point.value for curve in trials.values() for point in curve if math.isfinite(point.value))
    shares = [one.hours / full for one in played]
    values = [one.best for one in played]
    found = sum(value <= best for value in values)
    met = median(shares) <= MOST and found >= KEPT
    limit = {"goal": f"at most {MOST:g}x, the best kept in {KEPT}", "met": met} if goal else {}
    return Row(
        what=f"{set_}, {len(trials)} trials: {what}",
        against="no stopping",
        measured=f"{median(shares) * full:.0f} vs {full:.0f} GPU-hours; "
        f"best loss {median(values):.4g} (worst order {max(values):.4g}) vs {best:.4g}; "
        f"{median(one.stopped for one in played):.0f} stopped; "
        f"the best trial kept in {found} of {ORDERS} orders",
        ratio=round(median(shares), 3),
        samples={"share of GPU-hours": [round(each, 4) for each in shares], "best": values},
        **limit,
    )
