"""The end of a log: masked before it is cut, and in time whatever the node does."""

import asyncio
from types import SimpleNamespace

import pytest

from k8s.api import logs
from k8s.api.errors import ApiError
from k8s.api.logs import LOG_CHARACTERS, LOG_LINES, tail


def a_cluster(answer):
    async def log(namespace, pod, container, *, tail, previous):
        return await answer()

    return SimpleNamespace(log=log)


async def read(answer, clean=str, lines=LOG_LINES):
    return await tail(a_cluster(answer), "sweeps", "p", "main", lines, clean=clean)


@pytest.mark.parametrize("lines", [LOG_LINES, 3 * LOG_LINES])
async def test_secret_at_the_cut_is_masked_whole(lines):
    most = LOG_CHARACTERS * lines // LOG_LINES

    async def long():
        return "hunter2" + "x" * (most - 3)

    found = await read(long, lambda log: log.replace("hunter2", "***"), lines)
    assert (len(found), "ter2" in found) == (most, False)


async def test_node_that_is_silent_or_refuses_is_named(monkeypatch):
    async def refused():
        raise ApiError(500, "", "token hunter2 expired")

    assert await read(refused, lambda log: log.replace("hunter2", "***")) == (
        "(log unavailable: token *** expired (500))"
    )
    monkeypatch.setattr(logs, "LOG_TIMEOUT", 0)
    assert await read(asyncio.Event().wait) == "(log unavailable: the node isn't responding)"
