"""The health of a sweep's first trials: one message, which follows its state. Pure.

    no problem -> waiting <-> unhealthy -> recovered (and perhaps waiting again)
                       `----------`-----> failed, or another lasting diagnosis: the message's final state

Later failures with a new cause are reported by events of their own.
"""

from dataclasses import replace

from bot.core.events import Event, EventKind, Health, HealthStatus
from bot.core.record import Phase, SweepRecord
from bot.core.request import Notify
from bot.health.diagnosis import Diagnosis
from bot.lifecycle.observation import Observation
from k8s.katib.status import TrialState


def follow(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    """Update the record with the current diagnoses."""
    for each in seen.trouble:
        if each.lasting:
            sweep = _lasting(sweep, each)
    if sweep.health and sweep.health.lasting:
        return sweep
    # Once one trial runs, other trials that wait for GPUs aren't reported.
    news = [d for d in seen.trouble if not d.lasting and (not d.soft or sweep.phase is Phase.PENDING)]
    if news:
        return _show(sweep, news[0])
    healthy = _healthy_trial(seen)
    if healthy and sweep.health and sweep.health.status is not HealthStatus.RECOVERED:
        return replace(sweep, health=replace(sweep.health, status=HealthStatus.RECOVERED, trial=healthy))
    return sweep


def _lasting(sweep: SweepRecord, found: Diagnosis) -> SweepRecord:
    """Report a lasting diagnosis once per key: in the message if it has none yet, else as an event."""
    new = found.trial not in sweep.examined
    if found.trial and new:
        sweep = replace(sweep, examined=(*sweep.examined, found.trial))
    key = f"{EventKind.TRIAL_FAILED}/{found.key}"
    if key in sweep.sent_keys:
        return _one_more(sweep, found) if new and found.failed else sweep
    alike = sweep.alike | {found.key: (found.trial, 0)}
    sweep = replace(sweep, sent_keys=(*sweep.sent_keys, key), alike=alike)
    if not (sweep.health and sweep.health.lasting) and not sweep.progress.succeeded:
        return _show(sweep, found)
    text = f"{found.text} *Fix:* {found.fix}" if found.fix else found.text
    return sweep.enqueue(
        Event(kind=EventKind.TRIAL_FAILED, text=text, detail=found.detail, trial=found.trial)
    )


def _one_more(sweep: SweepRecord, found: Diagnosis) -> SweepRecord:
    """Count a repeated failure: in the message if it is about the same cause, else at the end."""
    first, more = sweep.alike.get(found.key, (found.trial, -1))
    sweep = replace(sweep, alike=sweep.alike | {found.key: (first, more + 1)})
    if sweep.health and sweep.health.lasting and sweep.health.key == found.key:
        return replace(sweep, health=replace(sweep.health, more=more + 1))
    return sweep


def failed_alike(sweep: SweepRecord) -> tuple[Event, ...]:
    """Return the events at the end that count repeated failures which no message has counted."""
    counted = sweep.health.key if sweep.health and sweep.health.lasting else ""
    alike = [
        Event(kind=EventKind.ALIKE, trial=first, more=more)
        for key, (first, more) in sweep.alike.items()
        if more and key != counted
    ]
    rest = sweep.progress.failed - sum(1 + more for _, more in sweep.alike.values())
    return (*alike, *([Event(kind=EventKind.ALIKE, more=rest)] if rest > 0 else []))


def _show(sweep: SweepRecord, found: Diagnosis) -> SweepRecord:
    """Show a diagnosis if its text is new: its detail changes with every retry, and edits are limited."""
    shown, status = sweep.health, _status(found)
    if shown and (shown.status, shown.text, shown.trial) == (status, found.text, found.trial):
        return sweep
    health = Health(
        status=status,
        key=found.key,
        text=found.text,
        fix=found.fix,
        detail=found.detail,
        trial=found.trial,
        parameters=found.parameters,
        lasting=found.lasting,
    )
    if not shown:
        sweep = sweep.enqueue(Event(kind=EventKind.HEALTH))
    posted = all(event.kind is not EventKind.HEALTH for event in sweep.outbox)
    return _notify(sweep.enqueue(health=health), posted=posted)


def _notify(sweep: SweepRecord, *, posted: bool) -> SweepRecord:
    """Notify the owner of a failed first trial once, by a new message: edits don't notify."""
    if not sweep.health or sweep.health.status is not HealthStatus.FAILED:
        return sweep
    event = Event(kind=EventKind.FIRST_FAILED, trial=sweep.health.trial, text=sweep.health.text)
    if sweep.request.notify is Notify.DM:
        return sweep.enqueue(replace(event, to_user=sweep.requester.user))
    if not posted or sweep.request.notify is not Notify.CHANNEL:
        return sweep
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, EventKind.FIRST_FAILED))


def _status(found: Diagnosis) -> HealthStatus:
    if found.failed:
        return HealthStatus.FAILED
    return HealthStatus.WAITING if found.soft else HealthStatus.UNHEALTHY


def _healthy_trial(seen: Observation) -> str:
    """Return the name of a trial that is running or has succeeded; "" if there is none."""
    ready = [pod for pod in seen.pods if pod.job not in seen.incomplete]
    running = [pod.job for pod in ready if pod.running and not pod.abandoned]
    done = [trial.name for trial in seen.trials if trial.state is TrialState.SUCCEEDED]
    return next(iter((*running, *done)), "")
