"""Requests of CPU and memory far above what is used: what counts, and for whom."""

from datetime import UTC, datetime

import pytest

from bot.measure.gpus.models import HOUR, UseColumns
from bot.measure.gpus.overrequest import GIB, find_overrequests, ram_peaks, with_past_peaks
from tests.bot.measure.gpus.factories import use

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
CPU = {"cpu_requested": 10.0, "cpu_mean": 0.5}
RAM = {"ram_requested": 100.0 * GIB, "ram_peak": 10.0 * GIB}


def of(*uses):
    return find_overrequests(UseColumns.of(uses))


def pod(name="lr-1", *, at=AT, allocated=2.0, gpus=2, **known):
    return use(at, name, allocated, gpus=gpus, **known)


@pytest.mark.parametrize(
    ("requested", "mean", "found"),
    [
        (4.0, 0.39, (4.0, 0.39)),
        (4.0, 0.4, None),  # a tenth is enough use
        (3.9, 0.0, None),  # small requests aren't reported
        (None, 0.0, None),
        (10.0, None, None),  # unknown use isn't little use
    ],
)
def test_cpu_is_overrequested_if_large_and_used_below_a_tenth(requested, mean, found):
    seen = of(pod(cpu_requested=requested, cpu_mean=mean))
    assert [each.cpu for each in seen] == ([found] if found else [])


@pytest.mark.parametrize(
    ("requested", "peak", "found"),
    [(32, 11, True), (32, 11.2, False), (31, 0, False), (None, 0, False), (64, None, False)],
)
def test_memory_is_overrequested_if_large_and_its_peak_below_35_percent(requested, peak, found):
    sizes = [None if each is None else each * GIB for each in (requested, peak)]
    seen = of(pod(ram_requested=sizes[0], ram_peak=sizes[1]))
    assert [each.ram for each in seen] == ([tuple(sizes)] if found else [])


def test_groups_are_of_pods_of_an_hour_of_one_sweep_or_namespace():
    assert of(pod(allocated=1.9, **CPU)) == ()
    assert of(pod(allocated=1.0, **CPU), pod(at=AT + HOUR, allocated=1.0, **CPU))
    sweep = {"sweep": "lr-brave-otter", "owner": "U1ADA", "team": "vision", **CPU}
    [one] = of(pod("lr-1", allocated=1.0, **sweep), pod("lr-2", allocated=1.0, **sweep))
    assert (one.name, one.namespace, one.owner, one.team) == ("lr-brave-otter", "sweeps", "U1ADA", "vision")
    two = of(pod("vision/notebook-0", **CPU), pod("speech/notebook-0", **CPU))
    assert [(each.namespace, each.name) for each in two] == [
        ("speech", "notebook-0"),
        ("vision", "notebook-0"),
    ]


def test_use_of_a_group_is_weighted_and_its_peaks_are_the_highest():
    hours = [
        pod(allocated=2.0, cpu_requested=20.0, cpu_mean=3.0),
        pod(at=AT + HOUR, allocated=6.0, gpus=6, cpu_requested=40.0, cpu_mean=1.0),
        pod(at=AT + 2 * HOUR, allocated=2.0, cpu_requested=30.0, cpu_mean=None),
    ]
    assert [each.cpu for each in of(*hours)] == [(40.0, 1.5)]
    hours = [pod(at=AT + n * HOUR, **RAM | {"ram_peak": peak * GIB}) for n, peak in enumerate((5, 30, 10))]
    assert [each.ram for each in of(*hours)] == [(100 * GIB, 30 * GIB)]
    assert of(*hours, pod(at=AT + 3 * HOUR, **RAM | {"ram_peak": 40 * GIB})) == ()
    both = of(pod(**CPU, **RAM))
    assert [each.ram for each in with_past_peaks(both, {})] == [(100 * GIB, 10 * GIB)]
    assert [each.ram for each in with_past_peaks(both, {both[0].group: 20 * GIB})] == [(100 * GIB, 20 * GIB)]
    [left] = with_past_peaks(both, {both[0].group: 40 * GIB})
    assert (left.cpu, left.ram) == ((10.0, 0.5), None)
    assert with_past_peaks(of(pod(**RAM)), {both[0].group: 40 * GIB}) == ()
    uses = [pod("a", **RAM), pod("a", at=AT + HOUR, ram_peak=3.0), pod("b"), pod("c", ram_peak=0.0)]
    assert ram_peaks(UseColumns.of(uses)) == {"sweeps//a": 10.0 * GIB, "sweeps//c": 0.0}
