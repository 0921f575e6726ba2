"""The results of a sweep over seeds: mean, deviation, values, seeds without a result, whether they confirm a
promoted trial, and which of an earlier sweep are combined with those of rerun seeds. Pure.

Only results of the same commit, image, command, and metric are combined.
"""

from dataclasses import replace

from bot.core.record import SweepRecord
from bot.core.request import Notify, Promotion, SweepRequest
from bot.core.seeds import EarlierSeeds, Statistics, next_value, parse_seeds, seeds_option, statistics
from bot.core.space import Goal
from bot.platform.slack.mrkdwn import code
from bot.text.wording import counted

VALUES_SHOWN = 50
MIN_VERDICT_SEEDS = 3  # the interval of two is so wide that it confirms nearly every value


def _results(sweep: SweepRecord) -> dict[str, float]:
    return {seed: value for seed, value in sweep.progress.seeds.items() if value is not None}


def summary_line(sweep: SweepRecord) -> str:
    """Return the mean with its deviation and interval; "" without results."""
    found = statistics([*_results(sweep).values()])
    if found is None or sweep.plan is None:
        return ""
    seeds = f"{found.count} of {counted(sweep.plan.space.max_trials, 'seed')}"
    return f"{_mean(sweep.plan.space.metric, found)} ({seeds})"


def _mean(metric: str, found: Statistics) -> str:
    mean = f"Mean {code(metric)} *{found.mean:.6g}*"
    if found.deviation is None or found.interval is None:
        return mean
    low, high = found.interval
    return f"{mean}, standard deviation {found.deviation:.3g}, 95% interval {low:.6g} to {high:.6g}"


def end_text(sweep: SweepRecord) -> str:
    """Return all results, and how to rerun the seeds that have none."""
    results = _results(sweep)
    shown = [f"{seed}: {results[seed]:.6g}" for seed in sorted(results, key=int)][:VALUES_SHOWN]
    more = f", and {len(results) - VALUES_SHOWN} more in the CSV" if len(results) > VALUES_SHOWN else ""
    lines = [f"{line}." for line in [summary_line(sweep)] if line]
    lines += [f"Values by seed: {', '.join(shown)}{more}."] if results else []
    return "\n".join([*lines, *_combined_line(sweep), *_verdict(sweep), *_rerun_line(sweep)])


def _combined_line(sweep: SweepRecord) -> list[str]:
    """Return the statistics together with the sweep whose seeds were rerun, if both ran the same code."""
    earlier, plan, values = sweep.earlier_seeds, sweep.plan, _combined_values(sweep)
    found = statistics(list(values.values()))
    if earlier is None or plan is None or found is None:
        return []
    if _ran_the_same(sweep, earlier):
        seeds = counted(len(values), "seed")
        return [f"With {code(earlier.sweep)}: {_mean(plan.space.metric, found)} ({seeds})."]
    ran = "ran another version of the image"
    if earlier.commit != plan.commit:
        ran = f"ran commit {code(earlier.commit[:8])}, this one {code(plan.commit[:8])}"
    return [f"Not combined with {code(earlier.sweep)}, which {ran}."]


def _verdict(sweep: SweepRecord) -> list[str]:
    """Return whether the promoted search's best value is one that its parameters usually give.

    That value is of a single run, so it is compared with the interval for one run, not with the mean's.
    """
    former = sweep.request.promotes
    if former is None or sweep.plan is None:
        return []
    found = statistics([value for seed, value in _results(sweep).items() if seed != former.seed])
    return [f"{_comparison(former, found, sweep.plan.space.goal)} {_own_run(sweep, former)}"] if found else []


def _comparison(former: Promotion, found: Statistics, goal: Goal) -> str:
    best = f"{code(former.sweep)} reported {former.value:.6g}"
    interval = next_value(found)
    if interval is None or found.count < MIN_VERDICT_SEEDS:
        return f"{best}. A verdict needs at least {MIN_VERDICT_SEEDS} seeds."
    low, high = interval
    between = f"{low:.6g} to {high:.6g}, where 95% of single runs are expected"
    if low <= former.value <= high:
        return f"Confirmed: {best}, within {between}."
    if former.value > high if goal is Goal.MAXIMIZE else former.value < low:
        return f"Not confirmed: {best}, better than {between}. Expect the mean, not that value."
    return f"Better than reported: {best}, worse than {between}."


def _own_run(sweep: SweepRecord, former: Promotion) -> str:
    """Return whether the search's own run is repeated: its result can't confirm itself."""
    ran = sweep.progress.seeds
    if former.seed:
        if former.seed in ran:
            return f"Seed {former.seed} is the search's own, so the comparison leaves it out."
        return f"The search's own seed, {former.seed}, isn't among them."
    if "0" in ran:
        return "The search set no seed: if its program's default is among these, that run is repeated."
    return "The search set no seed; seed 0, the usual default, is left out, so that its run isn't repeated."


def _rerun_line(sweep: SweepRecord) -> list[str]:
    seeds = parse_seeds(sweep.request.seeds, limit=10**6) if sweep.request.seeds else ()
    missing = [seed for seed in seeds if sweep.progress.seeds.get(str(seed)) is None]
    if not missing:
        return []
    option = seeds_option(missing)
    again = f"Rerun only {'it' if len(missing) == 1 else 'these'}: `/sweep rerun {sweep.id} seeds={option}`."
    return [f"{counted(len(missing), 'seed')} without a result: {option}. {again}"]


def earlier_seeds(sweep: SweepRecord, request: SweepRequest) -> EarlierSeeds | None:
    """Return the results that a rerun with `request` can be combined with; None if there are none."""
    values = _combined_values(sweep)
    if request.seeds is None or sweep.plan is None or not values:
        return None
    if _measured(request) != _measured(sweep.request):
        return None
    plan = sweep.plan
    return EarlierSeeds(sweep=sweep.id, commit=plan.commit, image=plan.image_by_digest, values=values)


def _combined_values(sweep: SweepRecord) -> dict[str, float]:
    """Return the results by seed, with the earlier ones if both sweeps ran the same code."""
    own, earlier = _results(sweep), sweep.earlier_seeds
    return earlier.values | own if earlier and _ran_the_same(sweep, earlier) else own


def _ran_the_same(sweep: SweepRecord, earlier: EarlierSeeds) -> bool:
    """Return whether the branch and the image still were what the earlier sweep had run."""
    plan = sweep.plan
    return plan is not None and (plan.commit, plan.image_by_digest) == (earlier.commit, earlier.image)


def _measured(request: SweepRequest) -> SweepRequest:
    """Return the request without what doesn't change a result."""
    return replace(
        request,
        seeds=None,
        commit=None,
        name=None,
        parallel=None,
        auto=False,
        gate=None,
        max_hours=None,
        budget=None,
        cluster=None,
        queue=None,
        priority=None,
        promotes=None,
        notify=Notify.CHANNEL,
    )
