"""Report errors that prevent a sweep from being processed, and their end. Pure."""

from bot.core.events import Event, EventKind
from bot.core.record import SweepRecord
from bot.lifecycle.events import to_owner

EPHEMERAL = "/privately"  # suffix of the key of an error that was reported before the thread existed


def report_restored(sweep: SweepRecord) -> SweepRecord:
    """Report that Redis lost its data and that the sweep continues from its ConfigMap."""
    return sweep if sweep.phase.final else sweep.enqueue(to_owner(sweep, Event(kind=EventKind.RESTORED)))


def quarantine(sweep: SweepRecord, why: str) -> SweepRecord:
    """Report the quarantine. The parent message is updated at once: no reconcile follows."""
    event = to_owner(sweep, Event(kind=EventKind.QUARANTINED, detail=why))
    return sweep.enqueue(event, quarantined=True, shown="")


def release(sweep: SweepRecord) -> SweepRecord:
    return sweep.enqueue(to_owner(sweep, Event(kind=EventKind.RELEASED)), quarantined=False)


def report_trouble(sweep: SweepRecord, why: str) -> SweepRecord:
    """Report that reconciles keep failing: once per phase, to the owner while there is no thread."""
    return _report(sweep, Event(kind=EventKind.TROUBLE, detail=why))


def report_unavailable(sweep: SweepRecord, text: str) -> SweepRecord:
    """Report a registry or git server that can't be reached, as trouble that the parent message shows."""
    event = Event(kind=EventKind.TROUBLE, text=text)
    return _report(sweep, event, unavailable=text)


def _report(sweep: SweepRecord, event: Event, **changes: str) -> SweepRecord:
    key = f"{EventKind.TROUBLE}/{sweep.phase}{'' if sweep.thread else EPHEMERAL}"
    if key in sweep.sent_keys or sweep.phase.final:
        return sweep
    return sweep.enqueue(to_owner(sweep, event), sent_keys=(*sweep.sent_keys, key), **changes)


def has_trouble(sweep: SweepRecord) -> bool:
    """Return whether its reconciles keep failing."""
    return any(key.startswith(f"{EventKind.TROUBLE}/") for key in sweep.sent_keys)


def resolve_trouble(sweep: SweepRecord) -> SweepRecord:
    """Report that a reconcile succeeded after errors, so that later errors are reported again.

    Errors reported privately, before the thread existed, need no message: the owner sees the thread open.
    """
    over = [key for key in sweep.sent_keys if key.startswith(f"{EventKind.TROUBLE}/")]
    if not over:
        return sweep
    in_thread = any(not key.endswith(EPHEMERAL) for key in over) and not sweep.phase.final
    event = (Event(kind=EventKind.TROUBLE_OVER),) if in_thread else ()
    left = tuple(key for key in sweep.sent_keys if key not in over)
    return sweep.enqueue(*event, sent_keys=left, unavailable="")
