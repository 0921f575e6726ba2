"""Events in the outbox are merged with later ones; no event is lost."""

from dataclasses import replace

import pytest

from bot.core.events import Event, merged, posted_text
from bot.sweep.lifecycle import texts
from tests.bot.factories import ADMIN, OWNER, a_sweep

SWEEP = a_sweep()
KILLED = [texts.trial_killed(SWEEP, f"t{n}", OWNER) for n in range(3)]
OTHERS, GIVEN_UP = texts.trial_killed(SWEEP, "t9", ADMIN), texts.trial_killed(SWEEP, "t9", "")
ILL = Event(kind="trial_failed", text="no memory")
NO = Event(kind="not_allowed", text="no", to_user="UADA")


@pytest.mark.parametrize(
    ("outbox", "expected"),
    [
        ([], []),
        ([OTHERS, ILL], [OTHERS, ILL]),
        ([KILLED[0], ILL, KILLED[1]], [ILL, replace(KILLED[1], more=1)]),
        ([*KILLED, OTHERS, GIVEN_UP], [replace(KILLED[2], more=2), OTHERS, GIVEN_UP]),
        ([NO, NO, NO], [NO]),
        ([ILL, replace(ILL, text="no disk")], [ILL, replace(ILL, text="no disk")]),
    ],
)
def test_merged_counts_events_of_a_group_together_and_is_idempotent(outbox, expected):
    once = merged(tuple(outbox))
    assert (list(once), merged(once)) == (expected, once)


def test_posted_text_counts_the_events_that_it_stands_for():
    one, three = (merged(tuple(KILLED[:number]))[0] for number in (1, 3))
    assert (one.loud, one.in_thread) == (False, False)
    assert posted_text(one) == ":no_entry_sign: *ada* cancelled trial `t0`. Its GPUs are free."
    assert posted_text(three) == (
        ":no_entry_sign: *ada* cancelled `t2` and 2 more trials. Their GPUs are free."
    )
    [two] = merged((GIVEN_UP, replace(GIVEN_UP, text="x")))
    assert posted_text(two) == (
        ":no_entry_sign: Sweepbot stopped `t9` and 1 more trial: Katib received no metrics after the "
        "training ended. Their GPUs are free."
    )
