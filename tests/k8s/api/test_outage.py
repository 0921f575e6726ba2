"""One probe finds that the API server is back, and all waiting calls continue at once."""

import asyncio

import pytest

from k8s.api import outage as outage_module
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.api.outage import Outage, is_outage


class Server:
    """Answers so many probes with silence, and from then on."""

    def __init__(self, silent):
        self.silent, self.probes = silent, 0

    async def is_ready(self):
        self.probes += 1
        await asyncio.sleep(0)
        return self.probes > self.silent


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(outage_module, "PROBE_INTERVAL", 0)


async def test_outage_has_one_probe_while_others_wait():
    server, ends = Server(5), []
    outage = Outage(server, lambda: ends.append(server.probes))
    assert await asyncio.gather(*(outage.over() for _ in range(10))) == [True] * 10
    assert (server.probes, ends) == (6, [6])


async def test_outage_needs_a_failing_probe():
    server, ends = Server(0), []
    outage = Outage(server, lambda: ends.append(1))
    assert await asyncio.gather(*(outage.over() for _ in range(3))) == [False] * 3
    assert ends == []


async def test_outage_waiters_proceed_after_the_maximum_wait():
    server, ends = Server(10**9), []
    outage = Outage(server, lambda: ends.append(1))
    assert not await outage.over(0.01)
    server.silent = 0
    assert await outage.over()
    assert ends == [1]


async def test_later_outage_is_separate():
    server, ends = Server(2), []
    outage = Outage(server, lambda: ends.append(1))
    assert await outage.over()
    assert not await outage.over()
    server.silent = server.probes + 2
    assert await outage.over()
    assert ends == [1, 1]


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (UnreachableError("no route"), True),
        (ClusterUnreachableError("west", "no route"), True),
        (ApiError(503, "", "unavailable"), True),
        (ApiError(409, "Conflict", "modified"), False),
        (ValueError("a bug"), False),
    ],
)
def test_outage_is_an_error_of_the_connection_or_the_server(error, outage):
    assert is_outage(error) is outage
