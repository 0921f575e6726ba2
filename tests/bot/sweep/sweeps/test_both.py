import asyncio

import pytest

from bot.sweep.sweeps.both import both


async def test_both_runs_the_calls_at_the_same_time():
    first, second = asyncio.Event(), asyncio.Event()

    async def meet(mine, other):
        mine.set()
        await other.wait()
        return "met"

    assert await both(meet(first, second), meet(second, first)) == ("met", "met")


async def test_both_raises_the_first_error_once_both_have_ended():
    ended = []

    async def fail(error):
        raise error

    async def end():
        await asyncio.sleep(0)
        ended.append(True)

    with pytest.raises(KeyError):
        await both(fail(KeyError()), fail(ValueError()))
    with pytest.raises(ValueError):  # noqa: PT011
        await both(end(), fail(ValueError()))
    assert ended == [True]
