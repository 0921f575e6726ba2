"""What a sweep reports: messages to post, of which those of one group that wait are merged, and the progress
that its parent message shows.
"""

from dataclasses import dataclass, field, replace

from bot.text.wording import counted


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished trial with a finite objective."""

    trial: str
    value: float
    parameters: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class LiveResult:
    """The last finite value of a running trial."""

    trial: str
    value: float
    step: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """A message to post. It is complete in itself: when it is posted, the sweep can have changed.

    `kind` says what happened, such as "paused". Without a text, its message is built when it is posted.
    """

    kind: str
    text: str = ""  # mrkdwn, with the emoji of its state first
    shown: str = ""  # in its place below an earlier reply; `text` is then only the notification
    group: str = ""  # waiting events of one group become one message; "": none do
    many: str = ""  # the text for several, with {more} for the number of the others; "": the last one's text
    more: int = 0  # the number of earlier events that it stands for
    loud: bool = False  # the whole channel sees it
    pod: str = ""  # attach this pod's log as a file
    container: str = ""  # of that pod; "" is the build's
    to_user: str = ""  # Slack user id for an ephemeral message
    response_url: str = ""
    in_thread: bool = False  # an ephemeral message in the sweep's thread


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The counts and the best result in the parent message."""

    running: int = 0
    waiting: int = 0
    waits_for: str = ""  # nouns, such as "free GPUs"; "" if unknown
    finishing: int = 0  # the training has ended, and Katib doesn't count the trial yet
    succeeded: int = 0
    failed: int = 0
    killed: int = 0
    stopped_early: int = 0
    best: Result | None = None  # of a search
    live: LiveResult | None = None  # the best of the running trials
    minutes_left: int | None = None  # estimated, and rounded up
    seeds: dict[str, float | None] = field(default_factory=dict)  # results by seed; None: no result

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed + self.killed + self.stopped_early


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
