"""The health of a sweep's first trials: one message, which follows its state. Pure.

    nothing wrong -> waiting <-> troubled -> recovered (and perhaps waiting again)
                          `----------`-----> failed, or another fact that lasts: the end of this message

Failures of later trials, by something that was not told yet, are events of their own.
"""

from dataclasses import replace

from bot.core.events import Event, EventKind, Health, HealthStatus
from bot.core.record import Phase, SweepRecord
from bot.core.request import Notify
from bot.health.diagnosis import Diagnosis
from bot.sweeps.observation import Observation
from k8s.katib.status import TrialState


def follow(sweep: SweepRecord, seen: Observation) -> SweepRecord:
    """What was diagnosed now, into the record."""
    for each in seen.trouble:
        if each.lasting:
            sweep = _lasting(sweep, each)
    if sweep.health and sweep.health.lasting:
        return sweep
    # Once one trial runs, others that wait for GPUs are no news.
    news = [d for d in seen.trouble if not d.lasting and (not d.soft or sweep.phase is Phase.PENDING)]
    if news:
        return _show(sweep, news[0])
    well = _well(seen)
    if well and sweep.health and sweep.health.status is not HealthStatus.RECOVERED:
        return replace(sweep, health=replace(sweep.health, status=HealthStatus.RECOVERED, trial=well))
    return sweep


def _lasting(sweep: SweepRecord, found: Diagnosis) -> SweepRecord:
    """Told once for each kind of trouble: in the message if that is free, else on its own."""
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
    """Counted: in the message itself when that is the one about it, else at the end."""
    first, more = sweep.alike.get(found.key, (found.trial, -1))
    sweep = replace(sweep, alike=sweep.alike | {found.key: (first, more + 1)})
    if sweep.health and sweep.health.lasting and sweep.health.key == found.key:
        return replace(sweep, health=replace(sweep.health, more=more + 1))
    return sweep


def failed_alike(sweep: SweepRecord) -> tuple[Event, ...]:
    """At the end: how many failed as others did, as far as no message counts them."""
    counted = sweep.health.key if sweep.health and sweep.health.lasting else ""
    alike = [
        Event(kind=EventKind.ALIKE, trial=first, more=more)
        for key, (first, more) in sweep.alike.items()
        if more and key != counted
    ]
    rest = sweep.progress.failed - sum(1 + more for _, more in sweep.alike.values())
    return (*alike, *([Event(kind=EventKind.ALIKE, more=rest)] if rest > 0 else []))


def _show(sweep: SweepRecord, found: Diagnosis) -> SweepRecord:
    """Only what differs in words: the system's own change with every attempt, and edits are limited."""
    shown, mood = sweep.health, _mood(found)
    if shown and (shown.status, shown.text, shown.trial) == (mood, found.text, found.trial):
        return sweep
    health = Health(
        status=mood,
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
    return _call(sweep.enqueue(health=health), posted=posted)


def _call(sweep: SweepRecord, *, posted: bool) -> SweepRecord:
    """A first trial that failed is the owner's to know, once: an edit calls nobody, another message does."""
    if not sweep.health or sweep.health.status is not HealthStatus.FAILED:
        return sweep
    event = Event(kind=EventKind.FIRST_FAILED, trial=sweep.health.trial, text=sweep.health.text)
    if sweep.request.notify is Notify.DM:
        return sweep.enqueue(replace(event, to_user=sweep.requester.user))
    if not posted or sweep.request.notify is not Notify.CHANNEL:
        return sweep
    return sweep.enqueue(event, sent_keys=(*sweep.sent_keys, EventKind.FIRST_FAILED))


def _mood(found: Diagnosis) -> HealthStatus:
    if found.failed:
        return HealthStatus.FAILED
    return HealthStatus.WAITING if found.soft else HealthStatus.UNHEALTHY


def _well(seen: Observation) -> str:
    """The name of a trial that trains, or has done so with success."""
    running = [pod.job for pod in seen.pods if pod.running and not pod.abandoned]
    done = [trial.name for trial in seen.trials if trial.state is TrialState.SUCCEEDED]
    return next(iter((*running, *done)), "")
