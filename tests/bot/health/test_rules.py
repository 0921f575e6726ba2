"""The rules with messages of the real systems, and when a diagnosis is due."""

from datetime import timedelta

import pytest

from bot.core.events import EventKind, HealthStatus
from bot.core.record import Phase
from bot.health.rules import RULES, due
from bot.lifecycle.first_trials import follow
from bot.lifecycle.observation import Observation
from bot.lifecycle.phases import requeue_after
from tests.bot.factories import NOW, a_sweep
from tests.bot.health import real_messages
from tests.bot.health.snapshots import (
    a_pod,
    ended,
    found,
    in_state,
    running,
    unscheduled,
    waiting,
)


def test_rules_have_unique_ids_and_start_their_docstrings_with_them():
    order = [
        1,
        2,
        3,
        4,
        5,
        31,
        29,
        30,
        24,
        32,
        *range(6, 12),
        28,
        12,
        *range(14, 18),
        27,
        *range(18, 24),
        25,
        26,
        13,
    ]
    assert [id_ for id_, _ in RULES] == [f"R{number}" for number in order]
    assert all(rule.__doc__.startswith(f"{id_}: ") for id_, rule in RULES)


@pytest.mark.parametrize(
    "pod", [None, a_pod(phase="Pending"), running(), in_state({"terminated": {"exitCode": 0}})]
)
def test_diagnose_healthy_trial_finds_nothing(pod):
    diagnosis = found(pod, log="epoch 1 loss: 0.71")
    assert diagnosis is None or due([diagnosis], NOW) == ()


def seen(*diagnoses):
    return Observation(trouble=diagnoses)


def test_progress_updates_the_message_and_keeps_a_failure():
    waits = found(unscheduled(real_messages.UNSCHEDULABLE, 61))
    sweep = follow(a_sweep(Phase.PENDING), seen(waits))
    assert sweep.health.status is HealthStatus.WAITING
    assert follow(sweep, seen(waits)) == sweep
    assert follow(sweep, seen()) == sweep
    sweep = follow(sweep, seen(found(waiting("ErrImagePull", real_messages.PULLS["image-login"]))))
    assert (sweep.health.status, sweep.health.key) == (HealthStatus.UNHEALTHY, "image-login")
    sweep = follow(sweep, seen(found(ended(1), log=real_messages.CUDA_OOM)))
    assert (sweep.health.status, sweep.examined) == (HealthStatus.FAILED, ("t1",))
    assert follow(sweep, seen(waits)) == sweep
    other = follow(sweep, seen(found(ended(1), log=real_messages.NAN)))
    assert other.health == sweep.health
    assert [e.kind for e in other.outbox] == [EventKind.HEALTH, EventKind.TRIAL_FAILED]


def test_next_due_is_the_earliest_time_in_the_future():
    proving = a_sweep(Phase.PENDING)
    assert requeue_after(proving, proving, NOW, timedelta(seconds=7)) == timedelta(seconds=7)
    assert requeue_after(proving, proving, NOW, timedelta(minutes=7)) == timedelta(seconds=20)
