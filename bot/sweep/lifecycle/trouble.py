"""Report what keeps a sweep from being processed, and its end: errors, outages of git or a registry,
quarantine, a cluster that doesn't answer, Redis' lost data. Pure.
"""

from dataclasses import replace
from datetime import datetime

from bot.core.events import Event
from bot.core.record import TROUBLE, Outage, Phase, Shown, SweepRecord, Unreachable
from bot.platform.slack.mrkdwn import block, code, local_time, mention, plain
from bot.sweep.lifecycle.texts import UNBUILT
from bot.sweep.model.texts import to_owner

EPHEMERAL = "/privately"  # suffix of the key of an error that was reported before the thread existed


def report_restored(sweep: SweepRecord) -> SweepRecord:
    """Report that Redis lost its data and that the sweep continues from its ConfigMap."""
    text = (
        f":warning: Redis lost its data. {code(sweep.id)} continues from its record in the cluster, but "
        "recent commands and results may be missing. *Fix:* Repeat any command that got no answer."
    )
    event = Event(kind="restored", text=text)
    return sweep if sweep.phase.final else sweep.enqueue(to_owner(sweep, event))


def quarantine(sweep: SweepRecord, why: str) -> SweepRecord:
    """Report the quarantine. The parent message is updated at once: no reconcile follows."""
    gpus = "" if sweep.phase in UNBUILT else " Running trials continue and keep their GPUs."
    text = (
        f":warning: {mention(sweep.requester.user)} Sweepbot stopped processing {code(sweep.id)}: several "
        f"attempts in a row didn't finish.{gpus} *Fix:* Ask an admin to check the worker's log, then run "
        f"`/sweep release {sweep.id}`. *Cancel* still works. Last error:\n{block(why)}"
    )
    event = to_owner(sweep, Event(kind="quarantined", text=text.strip()))
    return sweep.enqueue(event, quarantined=True, shown=Shown())


def release(sweep: SweepRecord) -> SweepRecord:
    text = f":white_check_mark: Sweepbot is processing {code(sweep.id)} again."
    return sweep.enqueue(to_owner(sweep, Event(kind="released", text=text)), quarantined=False)


def report_trouble(sweep: SweepRecord, why: str) -> SweepRecord:
    """Report that reconciles keep failing: once per phase, to the owner while there is no thread."""
    text = f":warning: {code(sweep.id)} hit an error. Sweepbot keeps retrying:\n{block(why)}"
    return _report(sweep, text.strip())


def report_unavailable(sweep: SweepRecord, what: str) -> SweepRecord:
    """Report a registry or git server that can't be reached, as trouble that the parent message shows."""
    outage = replace(sweep.outage, what=what)
    text = f":warning: {code(sweep.id)} is waiting. {plain(what)}"
    return _report(sweep, text, outage=outage)


def _report(sweep: SweepRecord, text: str, **changes: Outage) -> SweepRecord:
    key = f"{TROUBLE}{sweep.phase}{'' if sweep.thread else EPHEMERAL}"
    if key in sweep.sent_keys or sweep.phase.final:
        return sweep
    event = to_owner(sweep, Event(kind="trouble", text=text))
    return replace(sweep.enqueue_once(key, event), **changes)  # type: ignore[arg-type]


def resolve_trouble(sweep: SweepRecord) -> SweepRecord:
    """Report that a reconcile succeeded after errors, so that later errors are reported again.

    Errors reported privately, before the thread existed, need no message: the owner sees the thread open.
    """
    over = [key for key in sweep.sent_keys if key.startswith(TROUBLE)]
    if not (over or sweep.outage.since):
        return sweep
    in_thread = any(not key.endswith(EPHEMERAL) for key in over) and not sweep.phase.final
    next_ = "stopping" if sweep.phase is Phase.STOPPING else "the sweep"
    text = f":white_check_mark: Error resolved; {next_} continues."
    event = (Event(kind="trouble_over", text=text),) if in_thread else ()
    left = tuple(key for key in sweep.sent_keys if key not in over)
    return sweep.enqueue(*event, sent_keys=left, outage=Outage())


def unreachable(sweep: SweepRecord, since: datetime, reason: str) -> SweepRecord:
    """Return the record while the cluster of its trials doesn't answer."""
    known = sweep.unreachable
    if known and known.reason == reason:
        return sweep
    return replace(sweep, unreachable=Unreachable(since=known.since if known else since, reason=reason))


def unreachable_line(sweep: SweepRecord) -> str:
    """Return since when the cluster hasn't answered; "" if it answers."""
    if sweep.unreachable is None:
        return ""
    since = f"Cluster {code(sweep.cluster)} hasn't answered since {local_time(sweep.unreachable.since)}"
    why = f": {plain(sweep.unreachable.reason)}" if sweep.unreachable.reason else "."
    then = "Remaining pods are stopped" if sweep.phase is Phase.STOPPING else "The sweep continues"
    return f"{since}{why} {then} when the cluster answers again."
