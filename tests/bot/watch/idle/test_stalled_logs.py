"""Trials without new log lines, measured by the pauses of their own log."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from bot.watch.idle.detector import Kind, allocations
from bot.watch.idle.stalled_logs import READS_AT_ONCE, classify_log
from k8s.api.errors import ApiError
from tests.bot.factories import NOW
from tests.bot.watch.idle.test_detector import a_pod

MINUTES = [timedelta(minutes=minutes) for minutes in range(1000)]


class Kubelet:
    """Pods that wrote lines so many minutes ago, the oldest first."""

    def __init__(self, **pods: list[int]) -> None:
        self.pods = {name.replace("_", "-"): ages for name, ages in pods.items()}

    async def raw_log(self, namespace: str, pod: str, query: dict[str, Any]) -> str:
        if pod not in self.pods:
            raise ApiError(500, "", "its node does not answer")
        recent = timedelta(seconds=query.get("sinceSeconds", 10**9))
        ages = [age for age in self.pods[pod] if MINUTES[age] <= recent][-query["tailLines"] :]
        stamp = query.get("timestamps") == "true"
        return "".join(f"{self._stamped(NOW - MINUTES[age]) * stamp}epoch\n" for age in ages)

    def _stamped(self, parse_time: datetime) -> str:
        """Nanoseconds, as the kubelet writes them."""
        return f"{parse_time:%Y-%m-%dT%H:%M:%S}.123456789Z "


async def judged(**pods: list[int]) -> Kind:
    [held] = allocations([a_pod((1.0, 0.99, 1.0), pod=name.replace("_", "-")) for name in pods]).values()
    return await classify_log(Kubelet(**pods), held, MINUTES[30])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ages", "kind"),
    [
        ([59], Kind.FINE),  # its first epoch
        ([59, 59, 59], Kind.FINE),  # all lines are of its start
        ([61], Kind.STUCK),
        ([41, 40], Kind.STUCK),
        ([40] * 1000, Kind.STUCK),  # the tail of a log that is full
        ([40, 39, 38, 5], Kind.FINE),
        ([], Kind.FINE),  # mute from the start
        ([42, 41, 40], Kind.STUCK),
        ([165, 105, 45], Kind.FINE),  # a line for each epoch of an hour
        ([166, 165, 106, 105, 46, 45], Kind.FINE),
        ([240, 180, 119], Kind.FINE),  # an epoch of two hours less a minute
        ([250, 190, 130], Kind.STUCK),
    ],
)
async def test_classify_log_is_stuck_after_twice_the_longest_pause(ages: list[int], kind: Kind) -> None:
    assert await judged(trial_1=ages) is kind


async def test_longest_pause_is_over_all_pods_of_a_trial() -> None:
    assert await judged(trial_1=[400], trial_2=[90, 60, 31]) is Kind.FINE
    assert await judged(trial_1=[60, 58], trial_2=[59, 57]) is Kind.STUCK


async def test_logs_of_many_workers_are_read_at_the_same_time_up_to_a_limit() -> None:
    """One after another, those of a large trial that hangs would take longer than a check can."""
    reading, most = 0, 0

    class Counting(Kubelet):
        async def raw_log(self, namespace: str, pod: str, query: dict[str, Any]) -> str:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await asyncio.sleep(0)
            reading -= 1
            return await super().raw_log(namespace, pod, query)

    pods = {f"trial-{number:03}": [42, 41, 40] for number in range(100)}
    [held] = allocations([a_pod((1.0, 0.99, 1.0), pod=name) for name in pods]).values()
    assert await classify_log(Counting(**pods), held, MINUTES[30]) is Kind.STUCK  # type: ignore[arg-type]
    assert most == READS_AT_ONCE


async def test_classify_log_that_fails_is_unknown() -> None:
    [held] = allocations([a_pod((1.0, 0.99, 1.0), pod="trial-1")]).values()
    assert await classify_log(Kubelet(), held, MINUTES[30]) is Kind.UNKNOWN  # type: ignore[arg-type]
