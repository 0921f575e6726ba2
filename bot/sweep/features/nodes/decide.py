"""Report that a sweep waits for nodes, and behind which sweeps; create the Service or TrainingRuntime that
its trials need. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from bot.core.events import Event
from bot.core.feature_state import FeatureState
from bot.core.plan import SweepPlan
from bot.core.record import ACTIVE, Phase, SweepRecord
from bot.platform.slack.mrkdwn import plain
from bot.sweep.model.changes import RequiredChanges
from bot.sweep.model.experiment import can_submit
from bot.sweep.model.observation import Observation
from bot.text.wording import counted, listed
from k8s.katib.multi_node import service
from k8s.katib.train_job import owned
from k8s.objects import Manifest

HOLD = "nodes"  # in the record's `holds` while it waits
CHECKING = "Checking for free nodes."


@dataclass(frozen=True, kw_only=True)
class NodesState(FeatureState):
    name: ClassVar[str] = "nodes"

    wait: str = ""  # what it waits for, as a sentence; "": it doesn't


@dataclass(frozen=True, kw_only=True)
class NodesSeen:
    wait: str = ""  # the same, as decided now


def can_start_trials(sweep: SweepRecord) -> bool:
    """Return whether its trials run or can start at any time; between two trials, too."""
    return sweep.phase in ACTIVE and not waits_for_nodes(sweep)


def waits_for_nodes(sweep: SweepRecord) -> bool:
    """Return whether it has no trials, and must not start any yet: it is new, was paused, or had ended."""
    if sweep.plan is None or not sweep.plan.starts_together:
        return False
    is_new = sweep.phase is Phase.PENDING and not sweep.submitted
    return sweep.phase in ACTIVE and (is_new or HOLD in sweep.holds)


EVENT = "start_waiting"
LATE = timedelta(seconds=30)  # a trial without its Job: someone may have deleted the runtime


def follow_start(sweep: SweepRecord, seen: Observation, now: datetime) -> SweepRecord:
    """Update the parent message's line, and report each wait in the thread once.

    The wait of a resumed or extended sweep doesn't count toward `max_hours`.
    """
    why, before = seen.of(NodesSeen).wait if waits_for_nodes(sweep) else "", sweep.of(NodesState).wait
    if why == before:
        return sweep
    if not why:
        deadline = sweep.deadline and sweep.deadline + (now - sweep.since)
        others = tuple(key for key in sweep.sent_keys if key != EVENT)
        return sweep.unhold(HOLD).put(NodesState(), deadline=deadline, sent_keys=others)
    sweep = sweep.hold(HOLD).put(NodesState(wait=why))
    start = "Trials start once enough nodes are free for all of these sweeps, or once those ahead have ended."
    event = Event(kind=EVENT, text=f":hourglass_flowing_sand: {plain(why)} {start}")
    return sweep if why == CHECKING else sweep.enqueue_once(EVENT, event)


def restarted(before: SweepRecord, after: SweepRecord) -> SweepRecord:
    """Wait for nodes again if its trials couldn't start: other sweeps can have taken them."""
    if before.phase in ACTIVE or after.plan is None or not after.plan.starts_together:
        return after
    return after.hold(HOLD).put(NodesState(wait=CHECKING))


def waiting_text(plan: SweepPlan, ahead: Mapping[str, str]) -> str:
    """Return what the sweep waits for. `ahead`: the sweeps before it, in order, with their states."""
    nodes = f"{counted(plan.nodes, 'node')} with {counted(plan.gpus, 'free GPU')} each"
    names = (f"{sweep} ({state})" for sweep, state in ahead.items())
    return f"Waiting for {nodes}. Sweeps ahead: {listed(names)}."


def drain_denial(sweep: SweepRecord) -> str:
    if not headline(sweep):
        return ""
    return f"`{sweep.id}` is waiting for nodes, so it has no trials to drain. Cancel it instead."


def headline(sweep: SweepRecord) -> tuple[str, str] | None:
    waits = HOLD in sweep.holds and sweep.phase in ACTIVE
    return (":hourglass_flowing_sand:", "Waiting for nodes") if waits else None


def problem(sweep: SweepRecord) -> list[str]:
    return [plain(sweep.of(NodesState).wait)] if headline(sweep) else []


def changes(sweep: SweepRecord, plan: SweepPlan, seen: Observation, now: datetime) -> RequiredChanges:
    """Create the Service with the experiment, and the TrainingRuntime once that exists."""
    if not can_submit(sweep, seen):
        return RequiredChanges(create=_runtimes(plan, seen, now))
    # By it, the workers of a trial find each other; all sweeps share it.
    return RequiredChanges(create=(service(plan.experiment_ref.namespace),) if plan.needs_service else ())


def _runtimes(plan: SweepPlan, seen: Observation, now: datetime) -> tuple[Manifest, ...]:
    """Return the TrainingRuntime until the first TrainJob shows that it exists, and if one is late.

    The experiment is created first, because it owns the runtime. Katib creates the first trial seconds later,
    and retries if Trainer rejects a TrainJob without a runtime.
    """
    if plan.runtime is None or seen.experiment is None or not seen.open:
        return ()
    # Jobs of an earlier experiment of the sweep don't count.
    jobs = seen.job_names & seen.trial_names
    started = (trial.started for trial in seen.live if trial.name not in jobs)
    if jobs and not any(at and now - at > LATE for at in started):
        return ()
    return (owned(plan.runtime, plan.experiment, seen.experiment.uid),)
