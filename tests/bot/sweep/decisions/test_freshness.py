"""Which changes need a direct read of the API server, because caches are behind it."""

from dataclasses import replace

import pytest

from bot.core.events import Progress
from bot.core.record import Phase
from bot.core.stopping import EarlyStop
from bot.sweep.decisions.required_changes import needs_fresh_read
from bot.sweep.model.observation import Observation
from tests.bot.factories import NOW, OWNER
from tests.bot.sweep.model.observations import OPEN, PENDING, RUNNING, a_job, a_pod, a_trial

QUIET = Observation(experiment=OPEN)
ACTIVE = Observation(experiment=OPEN, trials=(a_trial("t1"),), jobs=(a_job("t1"),), pods=(a_pod("t1"),))
STOP = EarlyStop(step=1, value=0.9, cutoff=0.1, others=2, seconds=60)


def needs(before, after, seen=QUIET):
    return needs_fresh_read(before, after, seen, NOW)


def test_only_changes_and_deletions_need_a_direct_read():
    assert not needs(RUNNING, RUNNING)
    assert not needs(RUNNING, RUNNING, ACTIVE)
    killing = replace(RUNNING, to_kill={"t1": OWNER})
    assert needs(killing, killing, ACTIVE)
    stopping = replace(RUNNING, phase=Phase.STOPPING, ending=Phase.CANCELLED)
    assert needs(stopping, stopping, QUIET)
    new = replace(PENDING, submitted=False, image="registry/x@sha256:aa")
    assert not needs(new, new, Observation())


@pytest.mark.parametrize(
    "decision",
    [
        replace(RUNNING, phase=Phase.STOPPING),
        replace(RUNNING, to_kill={"t1": OWNER}),
        replace(RUNNING, extending=True),
    ],
)
def test_decision_needs_one_when_it_is_made(decision):
    assert needs(RUNNING, decision)


@pytest.mark.parametrize(("before", "after", "fresh"), [(2, 1, True), (2, 2, False), (2, 3, False)])
def test_fewer_finished_trials_than_recorded_need_one(before, after, fresh):
    first, then = (replace(RUNNING, progress=Progress(succeeded=each)) for each in (before, after))
    assert needs(first, then) is fresh
