"""The rules with messages of the real systems, and when a diagnosis is due."""

from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.sweep.decisions.advance import requeue_after
from bot.sweep.features.health.decide import follow
from bot.sweep.features.health.rules import RULES, due
from bot.sweep.features.health.state import HealthState, HealthStatus
from bot.sweep.model.observation import Observation
from tests.bot.factories import NOW, a_sweep
from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import (
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
        33,
        34,
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


def test_progress_updates_the_message_until_a_failure_and_next_due_is_the_earliest():
    waits = found(unscheduled(real_messages.UNSCHEDULABLE, 61))
    sweep = follow(a_sweep(Phase.PENDING), seen(waits), NOW)
    assert sweep.of(HealthState).shown.status is HealthStatus.WAITING
    assert follow(sweep, seen(waits), NOW) == sweep
    assert follow(sweep, seen(), NOW) == sweep
    sweep = follow(sweep, seen(found(waiting("ErrImagePull", real_messages.PULLS["image-login"]))), NOW)
    shown = sweep.of(HealthState).shown
    assert (shown.status, shown.key) == (HealthStatus.UNHEALTHY, "image-login")
    sweep = follow(sweep, seen(found(ended(1), log=real_messages.CUDA_OOM)), NOW)
    state = sweep.of(HealthState)
    assert (state.shown.status, state.examined) == (HealthStatus.FAILED, ("t1",))
    assert follow(sweep, seen(waits), NOW) == sweep
    other = follow(sweep, seen(found(ended(1), log=real_messages.NAN)), NOW)
    assert other.of(HealthState).shown == state.shown
    assert [e.kind for e in other.outbox] == ["health", "trial_failed"]
    proving = a_sweep(Phase.PENDING)
    assert requeue_after(proving, proving, NOW, timedelta(seconds=7)) == timedelta(seconds=7)
    assert requeue_after(proving, proving, NOW, timedelta(minutes=7)) == timedelta(seconds=20)
