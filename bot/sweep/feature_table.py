"""The features of a sweep, and the order in which they decide.

To delete a feature, delete its folder, its import and line here, and its tests; `make deletable` tries that.
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
from bot.sweep.model.feature import Feature, Moment, Step

# In the order in which they observe, decide in one moment, steer the experiment, and stand in messages.
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

# The plain sweep's own steps.
PLAIN: tuple[Step, ...] = (
    Step(at=Moment.FIRST_TRIAL, phases=frozenset({Phase.PENDING}), decide=trials.first_trial),
    Step(at=Moment.FIRST_TRIAL, phases=frozenset({Phase.RUNNING}), decide=trials.out_of_time),
    Step(at=Moment.RESULTS, decide=trials.follow_results),
    Step(at=Moment.NEXT, phases=frozenset({*ACTIVE, Phase.STOPPING}), decide=trials.follow_kills),
)
# All decisions of a reconcile, by their moment: in each, first those of the plain sweep.
STEPS = sorted((*PLAIN, *(step for each in FEATURES for step in each.steps)), key=lambda step: step.at)


def check_readable(sweep: SweepRecord) -> None:
    """Raise NewerFormatError if a newer version stored a feature, or a field of one, that is unknown here."""
    kinds = {kind.name: kind for feature in FEATURES for kind in feature.states}
    for name in (*sweep.features, *sweep.attempt_features):
        if name not in kinds:
            raise NewerFormatError(f"sweep {sweep.id} uses {name}; it waits for a newer Sweepbot")
        sweep.of(kinds[name])
