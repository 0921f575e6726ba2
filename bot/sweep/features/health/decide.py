"""The health of a sweep's first trials: when its one message is posted, changes, or is final, whom a failure
notifies (`notify=`), and which later failures are reported or counted. Pure.

    no problem -> waiting <-> unhealthy -> recovered (and perhaps waiting again)
                       `----------`-----> failed, or another lasting diagnosis: the message's final state

Later failures with a new cause are reported by events of their own.
"""

from dataclasses import replace
from datetime import datetime

from bot.core.events import Event
from bot.core.record import Phase, SweepRecord
from bot.core.request import Notify
from bot.platform.config.policy import Config
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.sweep.features.health import texts
from bot.sweep.features.health.state import Health, HealthState, HealthStatus
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import TOLD_DIRECTLY, TOLD_IN_CHANNEL


def follow(sweep: SweepRecord, seen: Observation, _: datetime) -> SweepRecord:
    """Update the record with the current diagnoses."""
    for diagnosis in seen.trouble:
        if diagnosis.lasting:
            sweep = _lasting(sweep, diagnosis)
    shown = sweep.of(HealthState).shown
    if shown and shown.lasting:
        return sweep
    # Once one trial runs, other trials that wait for GPUs aren't reported.
    news = [d for d in seen.trouble if not d.lasting and (not d.soft or sweep.phase is Phase.PENDING)]
    if news:
        alike = (d for d in news if d.key == news[0].key and shown and d.trial == shown.trial)
        return _show(sweep, next(alike, news[0]))
    if shown and shown.status is not HealthStatus.RECOVERED and (healthy := _healthy_trial(shown, seen)):
        shown = replace(shown, status=HealthStatus.RECOVERED, trial=healthy)
        return replace(sweep.change(HealthState, shown=shown), failure="")
    return sweep


def _lasting(sweep: SweepRecord, diagnosis: Diagnosis) -> SweepRecord:
    """Report a lasting diagnosis once per key: in the message if it has none yet, else as an event."""
    state = sweep.of(HealthState)
    new = diagnosis.trial not in state.examined
    if diagnosis.trial and new:
        sweep = sweep.change(HealthState, examined=(*state.examined, diagnosis.trial))
    key = f"trial_failed/{diagnosis.key}"
    if key in sweep.sent_keys:
        return _one_more(sweep, diagnosis) if new and diagnosis.failed else sweep
    sweep = sweep.change(HealthState, alike=state.alike | {diagnosis.key: (diagnosis.trial, 0)})
    sweep = replace(sweep, sent_keys=(*sweep.sent_keys, key))
    if diagnosis.failed and not sweep.cause:
        sweep = replace(sweep, cause=diagnosis.cause or diagnosis.text.rstrip("."))
        sweep = sweep if sweep.progress.succeeded else sweep.step(first="✗ First trial failed")
    if not (state.shown and state.shown.lasting) and not sweep.progress.succeeded:
        return _show(sweep, diagnosis)
    return sweep.enqueue(texts.trial_failed(diagnosis))


def _one_more(sweep: SweepRecord, diagnosis: Diagnosis) -> SweepRecord:
    """Count a repeated failure: in the message if it is about the same cause, else at the end."""
    state = sweep.of(HealthState)
    first, more = state.alike.get(diagnosis.key, (diagnosis.trial, -1))
    state = replace(state, alike=state.alike | {diagnosis.key: (first, more + 1)})
    if state.shown and state.shown.lasting and state.shown.key == diagnosis.key:
        state = replace(state, shown=replace(state.shown, more=more + 1))
    return sweep.put(state)


def ended(sweep: SweepRecord, seen: Observation, _: Config) -> SweepRecord:
    """Report the number of repeated failures that no message has counted.

    Not each diagnosis is of a failure: a trial whose value is NaN has succeeded, and some name no trial.
    """
    state = sweep.of(HealthState)
    counted = state.shown.key if state.shown and state.shown.lasting else ""
    alike = [(first, more) for key, (first, more) in state.alike.items() if more and key != counted]
    others = {"", *(trial.name for trial in seen.succeeded)}
    rest = sweep.progress.failed - sum(more + (first not in others) for first, more in state.alike.values())
    events = [texts.failed_alike(first, more) for first, more in alike]
    return sweep.enqueue(*events, *([texts.failed_alike("", rest)] if rest > 0 else []))


def _show(sweep: SweepRecord, diagnosis: Diagnosis) -> SweepRecord:
    """Show a diagnosis if its text is new: its detail changes with every retry, and edits are limited."""
    shown, status = sweep.of(HealthState).shown, _status(diagnosis)
    if shown and (shown.status, shown.text, shown.trial) == (status, diagnosis.text, diagnosis.trial):
        return sweep
    health = Health(
        status=status,
        key=diagnosis.key,
        text=diagnosis.text,
        fix=diagnosis.fix,
        detail=diagnosis.detail,
        cause=diagnosis.cause,
        trial=diagnosis.trial,
        parameters=diagnosis.parameters,
        lasting=diagnosis.lasting,
    )
    posted = shown is not None and all(event.kind != "health" for event in sweep.outbox)
    sweep = sweep.change(HealthState, shown=health)
    fix = f" *Fix:* {health.fix}" if health.fix else ""
    is_final = health.lasting or texts.never_fits(health)
    sweep = replace(sweep, failure=f"{health.text}{fix}" if is_final else "")
    # Complete: when it is posted, another attempt can have begun.
    event = Event(kind="health", text=texts.text(sweep))
    sweep = replace(sweep, outbox=_with_text(sweep.outbox, event)) if shown else sweep.enqueue(event)
    return _notify(sweep, health, posted=posted)


def _with_text(outbox: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    """Replace the last event about health, if it waits: one before it is of an earlier attempt."""
    last = max((place for place, each in enumerate(outbox) if each.kind == event.kind), default=None)
    return tuple(event if place == last else each for place, each in enumerate(outbox))


def _notify(sweep: SweepRecord, health: Health, *, posted: bool) -> SweepRecord:
    """Notify the owner of a failed first trial once, by a new message: edits don't notify."""
    if health.status is not HealthStatus.FAILED:
        return sweep
    if sweep.request.notify is Notify.DM:
        return sweep.enqueue_once(
            TOLD_DIRECTLY, texts.first_failed(sweep, health, to_user=sweep.requester.user)
        )
    if sweep.request.notify is not Notify.CHANNEL:
        return sweep
    if TOLD_IN_CHANNEL not in sweep.sent_keys:
        sweep = replace(sweep, sent_keys=(*sweep.sent_keys, TOLD_IN_CHANNEL))
    return sweep.enqueue_once("first_failed", texts.first_failed(sweep, health)) if posted else sweep


def _status(diagnosis: Diagnosis) -> HealthStatus:
    if diagnosis.failed:
        return HealthStatus.FAILED
    return HealthStatus.WAITING if diagnosis.soft else HealthStatus.UNHEALTHY


def _healthy_trial(shown: Health, seen: Observation) -> str:
    """Return the name of a trial that is running or has succeeded; "" if there is none.

    Of a problem, only the trial that has it shows the end, as long as it is live.
    """
    ready = [pod for pod in seen.pods if pod.job not in seen.incomplete and not pod.deleted]
    running = [pod.job for pod in ready if pod.running and not pod.abandoned]
    unhealthy = shown.trial if shown.status is HealthStatus.UNHEALTHY else ""
    if unhealthy in seen.live_names:
        return unhealthy if unhealthy in running else ""
    return next(iter((*running, *(trial.name for trial in seen.succeeded))), "")
