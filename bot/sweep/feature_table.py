"""The features of a sweep, and the order in which they decide.

To delete a feature, delete its folder, its lines here, and its tests; `make deletable` tries that with each.
Running sweeps that use it wait for a Sweepbot that has it, so let them end first.
"""

from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.core.stored_format import NewerFormatError
from bot.sweep.features import (
    approval,
    auto_parallel,
    branches,
    budget,
    device_claims,
    early_stopping,
    extension,
    failing_parameters,
    gate,
    health,
    interruptions,
    live_values,
    nodes,
    pause,
    queue,
    search_lost,
    warm_start,
    webhooks,
)
from bot.sweep.lifecycle import trials
from bot.sweep.model.feature import Feature, Step

# In the order in which they observe, steer the experiment, and stand in messages.
FEATURES: tuple[Feature, ...] = (
    approval.FEATURE,
    early_stopping.FEATURE,  # says which curves to read
    live_values.FEATURE,
    gate.FEATURE,  # a first trial with a live value is healthy
    health.FEATURE,
    failing_parameters.FEATURE,  # reads the diagnoses
    search_lost.FEATURE,
    interruptions.FEATURE,  # an experiment that continues by itself is reopened first
    queue.FEATURE,
    budget.FEATURE,
    nodes.FEATURE,
    device_claims.FEATURE,
    auto_parallel.FEATURE,  # the counts of a paused experiment can't be lowered any more
    pause.FEATURE,
    extension.FEATURE,
    warm_start.FEATURE,
    branches.FEATURE,
    webhooks.FEATURE,
)

IN_ACTIVE = frozenset(ACTIVE)
STEPS: tuple[Step, ...] = (
    approval.STEP,
    nodes.STEP,  # trials that have to wait can't have a problem
    health.STEP,  # until the first trial runs, its waiting is reported
    failing_parameters.STEP,
    Step(phases=frozenset({Phase.PENDING}), decide=trials.first_trial),
    Step(phases=frozenset({Phase.RUNNING}), decide=trials.out_of_time),
    budget.STEP,  # counts a first trial that failed, too
    webhooks.STEP,  # a first trial that failed, before the gate holds the sweep
    gate.STEP,  # a held sweep has no more results
    Step(phases=IN_ACTIVE, decide=trials.follow_results),
    search_lost.STEP,
    live_values.STEP,  # completes the counts
    early_stopping.STEP,
    Step(phases=IN_ACTIVE | {Phase.STOPPING}, decide=trials.follow_kills),  # a stopped one isn't interrupted
    interruptions.STEP,
    queue.STEP,
    auto_parallel.STEP,  # chooses by the trials that are left
    pause.STEP,
    webhooks.STEP,  # again, with the counts
)


def check_readable(sweep: SweepRecord) -> None:
    """Raise NewerFormatError if a newer version stored a feature, or a field of one, that is unknown here."""
    kinds = {kind.name: kind for feature in FEATURES for kind in feature.states}
    for name in (*sweep.features, *sweep.attempt_features):
        if name not in kinds:
            raise NewerFormatError(f"sweep {sweep.id} uses {name}; it waits for a newer Sweepbot")
        sweep.of(kinds[name])
