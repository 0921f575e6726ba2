"""What waits to be said, without what something later overtakes. Pure.

Slack takes a message a second in a channel. When many things happen in one, nothing of them is lost: a better
result stands for the ones before it, one sentence counts the trials that were ended, or that were restarted,
and an end says the best result itself.
"""

from dataclasses import replace

from bot.core.events import Event, EventKind

ENDS = {EventKind.SUCCEEDED, EventKind.FAILED, EventKind.CANCELLED}


def merged(outbox: tuple[Event, ...]) -> tuple[Event, ...]:
    kept: list[Event] = []
    for event in outbox:
        if event in kept:
            continue  # the same refusal of the same click
        earlier = next((e for e in kept if _overtakes(event, e)), None)
        if earlier is None:
            kept.append(event)
        elif event.kind in ENDS:
            kept[:] = [*(e for e in kept if e.kind is not EventKind.BETTER), event]
        else:
            kept.remove(earlier)
            more, detail = event.more + earlier.more + 1, event.detail or earlier.detail
            kept.append(replace(event, more=more, detail=detail))
    return tuple(kept)


def _overtakes(event: Event, earlier: Event) -> bool:
    if event.kind in ENDS:
        return earlier.kind is EventKind.BETTER
    if event.kind is EventKind.TRIAL_KILLED:
        return earlier.kind is event.kind and earlier.by == event.by
    return event.kind is earlier.kind and event.kind in {EventKind.BETTER, EventKind.TRIAL_RESTARTED}
