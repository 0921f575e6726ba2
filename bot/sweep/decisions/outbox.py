"""Merge the events that wait in a sweep's outbox. Pure."""

from dataclasses import replace

from bot.core.events import Event
from bot.text.wording import counted


def merged(outbox: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the outbox with the events of one group merged, and without repeated ones.

    Slack accepts one message per second in a channel.
    """
    kept: list[Event] = []
    for event in outbox:
        if event in kept:
            continue  # the same denial of a repeated click
        earlier = next((each for each in kept if event.group and each.group == event.group), None)
        if earlier:
            kept.remove(earlier)
        kept.append(replace(event, more=event.more + earlier.more + 1) if earlier else event)
    return tuple(kept)


def posted_text(event: Event) -> str:
    """Return the text of an event, with the number of those that it stands for."""
    if not (event.more and event.many):
        return event.text
    return event.many.replace("{more}", counted(event.more, "more trial"))
