"""Events in the outbox are merged with later ones; no event is lost."""

from dataclasses import replace

import pytest

from bot.core.events import Event, EventKind
from bot.messages.coalesce import merged

BETTER = Event(kind=EventKind.BETTER, trial="t1")
BEST = Event(kind=EventKind.BETTER, trial="t2")
KILLED = [Event(kind=EventKind.TRIAL_KILLED, trial=f"t{n}", by="UADA") for n in range(3)]
OTHERS = Event(kind=EventKind.TRIAL_KILLED, trial="t9", by="UGRACE")
ILL = Event(kind=EventKind.TRIAL_FAILED, text="no memory")
AGAIN = [Event(kind=EventKind.TRIAL_RESTARTED, trial=f"t{n}") for n in range(2)]
END = Event(kind=EventKind.SUCCEEDED, text="4 trials done")
NO = Event(kind=EventKind.NOT_ALLOWED, text="no", to_user="UADA")


@pytest.mark.parametrize(
    ("outbox", "expected"),
    [
        ([], []),
        ([BETTER, ILL], [BETTER, ILL]),
        ([BETTER, ILL, BEST], [ILL, Event(kind=EventKind.BETTER, trial="t2", more=1)]),
        ([BETTER, ILL, BEST, END], [ILL, END]),
        ([*KILLED, OTHERS], [Event(kind=EventKind.TRIAL_KILLED, trial="t2", by="UADA", more=2), OTHERS]),
        ([NO, NO, NO], [NO]),
        (AGAIN, [replace(AGAIN[1], more=1)]),
        ([replace(AGAIN[0], detail="no route"), AGAIN[1]], [replace(AGAIN[1], more=1, detail="no route")]),
        ([ILL, Event(kind=EventKind.TRIAL_FAILED, text="no disk")], None),
    ],
)
def test_coalesce_drops_superseded_events(outbox, expected):
    assert list(merged(tuple(outbox))) == (outbox if expected is None else expected)


def test_coalesce_is_idempotent():
    once = merged((*KILLED, BETTER, BEST))
    assert merged(once) == once
