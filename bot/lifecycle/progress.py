"""Count a sweep's trials, and find the best result. Pure."""

from bot.core.events import Progress, Result
from bot.core.record import SweepRecord
from bot.core.space import SearchSpace
from bot.lifecycle.observation import Observation
from bot.lifecycle.waiting import waits_for
from bot.results.ranking import best
from k8s.katib.status import Trial, TrialState


def current_progress(sweep: SweepRecord, seen: Observation) -> Progress:
    """Return the counts as observed; those of the record while no trial is known."""
    if not seen.trials or sweep.plan is None:
        return sweep.progress
    space = sweep.plan.space
    states = [t.state for t in seen.trials]
    return Progress(
        running=sum(t.name in seen.running for t in seen.live),
        waiting=sum(t.name not in seen.running | seen.finishing for t in seen.live),
        waits_for=waits_for(seen),
        finishing=len(seen.finishing),
        succeeded=states.count(TrialState.SUCCEEDED),
        failed=states.count(TrialState.FAILED) + states.count(TrialState.NO_METRICS),
        killed=states.count(TrialState.KILLED),
        stopped_early=states.count(TrialState.STOPPED_EARLY),
        best=None if space.seed else _best(space, seen.trials, sweep.progress.best),
        seeds=_by_seed(space.seed, seen.trials) if space.seed else {},
    )


def _by_seed(parameter: str, trials: tuple[Trial, ...]) -> dict[str, float | None]:
    """Return the result of each seed whose trial ended."""
    ended = [trial for trial in trials if trial.state is not TrialState.LIVE]
    return {seed: trial.value for trial in ended if (seed := trial.parameters.get(parameter))}


def _best(space: SearchSpace, trials: tuple[Trial, ...], before: Result | None) -> Result | None:
    found = best(space.goal, trials, before.trial if before else "")
    if found is None or found.value is None:
        return None
    return Result(trial=found.name, value=found.value, parameters=found.parameters)
