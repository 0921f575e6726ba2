"""Idle, unused, underused, and unknown GPUs: only measured time counts."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.measure.gpus.models import BUSY as BUSY_PEAK
from bot.measure.gpus.models import HOUR, Gpu, PodUse
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.watch.idle.detector import Kind, allocations, always_busy, classify
from k8s.nodes.dcgm import NO_LOAD, Load
from tests.bot.factories import NOW
from tests.cases import cases

QUIET, BUSY = (0.004, 0.002, 0.003), (0.9, 0.6, 0.8)  # peak, mean, p95
UNSEEN = (None, None, None)


def a_pod(*gpus: Any, age: float = 60, **changes: Any) -> PodUse:
    seen = tuple(
        Gpu(device=f"GPU-{number}", peak=peak, mean=mean, p95=p95)
        for number, (peak, mean, p95) in enumerate(gpus)
    )
    known: dict[str, Any] = {
        "namespace": "sweeps",
        "pod": "lr-brave-otter-x-1",
        "node": "n1",
        "sweep": "lr-brave-otter",
        "trial": "lr-brave-otter-x",
        "started": NOW - timedelta(minutes=age),
        "allocated": len(gpus),
        "gpus": seen,
        "busy_ever": True,
    }
    return PodUse(**known | changes)


def restarted(minutes: float, **changes: Any) -> PodUse:
    """A pod of this age, whose container crashed and started again five minutes ago."""
    return a_pod(QUIET, age=5, pod_started=NOW - timedelta(minutes=minutes), **changes)


def judged(*pods: PodUse, **watch: float) -> Kind:
    [held] = allocations(pods).values()
    return classify(held, held, IdleThresholds(**watch), NOW)


@cases(
    ("pod", "kind"),
    [
        (a_pod(QUIET), Kind.IDLE),
        (a_pod(QUIET, QUIET), Kind.IDLE),
        (a_pod(BUSY), Kind.FINE),
        (a_pod((BUSY_PEAK, 0.002, 0.003)), Kind.FINE),
        (a_pod(QUIET, BUSY), Kind.PARTIAL),
        (a_pod(QUIET, busy_ever=False), Kind.UNUSED),
        (
            a_pod(QUIET, busy_ever=None),
            Kind.IDLE,
        ),  # gaps can hide activity, but not that of the last half hour
        (a_pod(QUIET, age=30, busy_ever=False), Kind.UNUSED),
        (a_pod(QUIET, age=29, busy_ever=False), Kind.FINE),  # the trial can still be loading its data
        (a_pod(QUIET, age=39), Kind.UNKNOWN),
        (a_pod(QUIET, age=41), Kind.IDLE),
        (restarted(31, busy_ever=False), Kind.UNUSED),
        (restarted(31, busy_ever=False, started=None), Kind.UNUSED),  # waits to be restarted
        (restarted(29, busy_ever=False), Kind.FINE),
        (restarted(41, busy_ever=None), Kind.IDLE),  # older than the samples
        (restarted(41), Kind.UNKNOWN),  # loads its data again
        (restarted(41, started=None), Kind.UNKNOWN),
    ],
)
def test_classify_measured_allocation(pod: PodUse, kind: Kind) -> None:
    assert judged(pod) is kind


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(UNSEEN),
        a_pod(QUIET, UNSEEN),
        a_pod(allocated=1),  # no exporter answers there
        a_pod(QUIET, allocated=2),
        a_pod(QUIET, started=None),  # it waits for its image
    ],
)
def test_classify_without_data_is_unknown(pod: PodUse) -> None:
    assert judged(pod) is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("gpu", "age", "kind"),
    [
        ((0.6, 0.1, 0.4), 300, Kind.LOW),
        ((0.6, 0.149, 0.4), 300, Kind.LOW),
        ((0.6, 0.15, 0.4), 300, Kind.FINE),
        ((0.6, 0.1, 0.5), 300, Kind.FINE),
        ((0.9, 0.1, 0.8), 300, Kind.FINE),  # work in bursts
        ((0.6, 0.1, 0.4), 230, Kind.FINE),  # not yet four GPU-hours
        ((0.6, None, None), 300, Kind.MAYBE_LOW),
    ],
)
def test_classify_low_only_from_four_gpu_hours(gpu: Any, age: float, kind: Kind) -> None:
    assert judged(a_pod(gpu, age=age)) is kind
    assert judged(a_pod((0.9, 0.2, 0.8), (0.6, 0.0, 0.0), age=300)) is Kind.FINE, "one works in bursts"
    [held] = allocations([a_pod(BUSY, BUSY, age=300)]).values()
    [half] = allocations([a_pod((0.6, 0.1, 0.4), age=300, allocated=2)]).values()
    assert classify(held, half, IdleThresholds(), NOW) is Kind.MAYBE_LOW, (
        "one has no samples of the last hours"
    )


SPIN = Load(sm=0.02, watts=110, memory=70)


@cases(
    ("loads", "age", "watch", "kind"),
    [
        ([SPIN], 300, {}, Kind.WAITING),
        ([SPIN, SPIN], 120, {}, Kind.WAITING),
        ([SPIN, SPIN, SPIN], 119, {}, Kind.FINE),
        ([SPIN], 230, {}, Kind.FINE),  # not yet four GPU-hours
        ([SPIN], 300, {"low_percent": 0}, Kind.FINE),
        ([SPIN, replace(SPIN, sm=0.6)], 300, {}, Kind.FINE),
        ([replace(SPIN, sm=0.12)], 300, {}, Kind.FINE),
        ([replace(SPIN, watts=150)], 300, {}, Kind.FINE),  # it computes something
        ([replace(SPIN, sm=0)], 300, {}, Kind.FINE),  # no kernel does that: the counter doesn't work
        ([replace(SPIN, sm=None)], 300, {}, Kind.FINE),  # unknown is no evidence
        ([replace(SPIN, watts=None)], 300, {}, Kind.FINE),
        ([NO_LOAD], 300, {}, Kind.FINE),
    ],
)
def test_classify_busy_gpu_is_waiting_only_by_sm_activity_and_power(
    loads: list[Load], age: float, watch: dict[str, float], kind: Kind
) -> None:
    pod = a_pod(*[(1.0, 1.0, 1.0)] * len(loads), age=age)
    gpus = tuple(replace(gpu, load=load) for gpu, load in zip(pod.gpus, loads, strict=True))
    assert judged(replace(pod, gpus=gpus), **watch) is kind


def test_classify_quiet_gpu_is_idle_whatever_its_memory_and_power() -> None:
    pod = a_pod(QUIET, age=300)
    gpus = tuple(replace(gpu, load=Load(sm=0, watts=90, memory=79)) for gpu in pod.gpus)
    assert judged(replace(pod, gpus=gpus)) is Kind.IDLE


def test_allocations_group_pods_by_trial() -> None:
    one, two = a_pod(QUIET), a_pod(BUSY, pod="lr-brave-otter-x-2", node="n2")
    [held] = allocations([one, two]).values()
    assert (held.key, held.allocated, held.nodes) == ("sweeps/lr-brave-otter-x", 2, ("n1", "n2"))
    [later] = allocations([replace(one, pod_started=NOW - HOUR), replace(two, pod_started=NOW)]).values()
    assert later.began == NOW
    assert judged(one, two) is Kind.PARTIAL
    assert judged(one, replace(two, started=None)) is Kind.UNKNOWN
    assert judged(one, replace(two, started=NOW)) is Kind.UNKNOWN, "one of them loads its data again"
    for changes in ({"sweep": ""}, {"trial": ""}):
        alone = allocations([replace(one, **changes), replace(two, **changes)])
        assert list(alone) == ["sweeps/lr-brave-otter-x-1", "sweeps/lr-brave-otter-x-2"]


def test_classify_threshold_zero_turns_a_warning_off() -> None:
    assert judged(a_pod(QUIET), idle_minutes=0) is Kind.FINE
    assert judged(a_pod(QUIET, busy_ever=False), first_use_minutes=0) is Kind.IDLE
    assert judged(a_pod((0.6, 0.1, 0.4), age=300), low_percent=0) is Kind.FINE


@pytest.mark.parametrize(
    ("pod", "always"),
    [
        (a_pod((1.0, 0.99, 1.0)), True),
        (a_pod((1.0, 0.99, 1.0), (1.0, 0.9, 1.0)), False),
        (a_pod((1.0, 0.99, 1.0), age=39), False),
        (a_pod((1.0, 0.99, 1.0), allocated=2), False),
    ],
)
def test_always_busy_needs_age_and_utilization(pod: PodUse, always: bool) -> None:
    [held] = allocations([pod]).values()
    assert always_busy(held, IdleThresholds(), NOW) is always
    for longer in (IdleThresholds(stuck_minutes=50), IdleThresholds(idle_minutes=50)):
        assert not always_busy(held, longer, NOW), "of an hour, a quarter is the start"
    assert not always_busy(held, IdleThresholds(stuck_minutes=0), NOW)
