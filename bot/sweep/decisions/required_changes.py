"""List the changes to the cluster that a sweep's current phase requires. Pure.

They depend on the phase, never on a transition: if a worker dies after saving a phase, the next reconcile
returns the same changes.

Counts, better results, and diagnoses can come from caches, which are a little behind the API server. A
change of phase needs a direct read: otherwise a sweep could fail because the caches don't have its
experiment yet, or be reported as cancelled while a pod is left. So do patches, deletions, and messages that
a trial's GPUs are released. Creating an object doesn't: the API server rejects it if it exists. Composing
an image doesn't either: its parts were read from the registry.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any

from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.sweep.feature_table import FEATURES
from bot.sweep.lifecycle.building import building_changes
from bot.sweep.lifecycle.trials import kill_changes, manifest, stop_changes
from bot.sweep.model import engine
from bot.sweep.model.changes import Patch, RequiredChanges
from bot.sweep.model.experiment import can_submit
from bot.sweep.model.observation import Observation
from k8s.engine import Experiment
from k8s.objects import Ref


def required_changes(sweep: SweepRecord, seen: Observation, now: datetime) -> RequiredChanges:
    plan = sweep.plan
    if plan is None:
        return RequiredChanges()
    match sweep.phase:
        case Phase.BUILDING:
            return building_changes(sweep, plan, seen)
        case Phase.PENDING | Phase.RUNNING:
            return _active(sweep, plan, seen, now)
        case Phase.STOPPING | Phase.CANCELLED | Phase.FAILED | Phase.SUCCEEDED:
            return stop_changes(sweep, plan, seen, now)
        case _:
            return RequiredChanges()


def _active(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """Submit the experiment, and steer it before trials are stopped, so that no others start."""
    steered = RequiredChanges(patch=_steered(sweep, plan, seen, now))
    own = [each.changes(sweep, plan, seen, now) for each in FEATURES if each.changes]
    changes = reduce(RequiredChanges.__add__, own, steered + kill_changes(sweep, plan, seen, now))
    if sweep.image and can_submit(sweep, seen):
        experiment = manifest(sweep, plan, sweep.image)
        for feature in FEATURES:
            experiment = feature.prepare(sweep, experiment) if feature.prepare else experiment
        changes += RequiredChanges(create=(experiment,))
    return replace(changes, patch=_once(changes.patch), delete=tuple(dict.fromkeys(changes.delete)))


def _once(patches: tuple[Patch, ...]) -> tuple[Patch, ...]:
    """Stop each trial once: several can have a reason to, and the first one counts."""
    trials, kept = set[Ref](), list[Patch]()
    for patch in patches:
        if patch.ref.kind != engine.TRIAL or patch.ref not in trials:
            kept.append(patch)
        trials.add(patch.ref)
    return tuple(kept)


def _steered(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> tuple[Patch, ...]:
    """Return the patch that steers the experiment; at most one per reconcile.

    An experiment that Katib completed while the sweep continues is reopened first. Draining has priority.
    """
    experiment = seen.experiment
    if experiment is None or seen.start_blocked or sweep.phase not in ACTIVE:
        return ()
    if seen.open and sweep.draining:
        return (engine.drain(plan, experiment, now),)
    steers = (each.steer(sweep, plan, experiment, seen, now) for each in FEATURES if each.steer)
    patch = next((patch for patch in steers if patch), None) or _more_trials(sweep, plan, experiment)
    if patch is None and not seen.cached:  # caches keep few labels
        patch = engine.relabeled(plan, experiment)
    return (patch,) if patch else ()


def _more_trials(sweep: SweepRecord, plan: SweepPlan, experiment: Experiment) -> Patch | None:
    """Return the patch that raises the counts to the plan's; not those of `bot.sweep.model.pace`.

    Katib's webhook rejects a change of an experiment that is held, and it is needed only afterwards.
    """
    space = plan.space
    if not sweep.extending or sweep.holds or plan.paced or experiment.max_trials >= space.max_trials:
        return None
    return engine.more_trials(plan, experiment)


def needs_fresh_read(before: SweepRecord, after: SweepRecord, seen: Observation, now: datetime) -> bool:
    """Return whether `after`, or the changes in the cluster that it requires, need a direct read."""
    decided = [*_decisions(before)] != [*_decisions(after)]
    # The record was saved from newer caches of another worker: finished trials don't run again.
    outdated = after.progress.finished < before.progress.finished
    changes = replace(required_changes(after, seen, now), create=(), compose=None)
    return decided or outdated or changes != RequiredChanges()


def _decisions(sweep: SweepRecord) -> Iterator[Any]:
    yield from (sweep.phase, sweep.to_kill, sweep.extending)
    yield from (feature.decisive(sweep) for feature in FEATURES)
