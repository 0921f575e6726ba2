"""Merge the events that wait in a sweep's outbox. Pure.

Slack accepts one message per second in a channel. When more happens in that time, a better result replaces
the earlier ones, one message counts the stopped or restarted trials, and the end of the sweep includes the
best result.
"""

from dataclasses import replace

from bot.core.events import Event, EventKind

COUNTED = {EventKind.BETTER, EventKind.TRIAL_RESTARTED, EventKind.RUNS_AGAIN}
ENDS = {EventKind.SUCCEEDED, EventKind.FAILED, EventKind.CANCELLED}


def merged(outbox: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the outbox without repeated events and those that a later event replaces."""
    kept: list[Event] = []
    for event in outbox:
        if event in kept:
            continue  # the same denial of a repeated click
        earlier = next((e for e in kept if _replaces(event, e)), None)
        if earlier is None:
            kept.append(event)
        elif event.kind in ENDS:
            kept[:] = [*(e for e in kept if e.kind is not EventKind.BETTER), event]
        else:
            kept.remove(earlier)
            more, detail = event.more + earlier.more + 1, event.detail or earlier.detail
            kept.append(replace(event, more=more, detail=detail))
    return tuple(kept)


def _replaces(event: Event, earlier: Event) -> bool:
    if event.kind in ENDS:
        return earlier.kind is EventKind.BETTER
    if event.kind is EventKind.INTERRUPTED:
        return (earlier.kind, earlier.text) == (event.kind, event.text)
    if event.kind is EventKind.TRIAL_KILLED:
        return earlier.kind is event.kind and earlier.by == event.by
    return event.kind is earlier.kind and event.kind in COUNTED
