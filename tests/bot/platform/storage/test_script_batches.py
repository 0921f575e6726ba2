"""Scripts that are called at one moment, with a real Redis."""

import asyncio

import pytest
from redis.asyncio.connection import AbstractConnection
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from bot.platform.storage.redis_client import connect
from bot.platform.storage.script_batches import MAX_BATCH, ScriptBatches

ADD = "return redis.call('INCRBY', KEYS[1], ARGV[1])"


class Broken(AsyncScript):
    async def __call__(self, *_):
        raise OSError("no more sockets")


@pytest.fixture
def sent(monkeypatch):
    """Connections that have sent something, once for each time."""
    found, send = [], AbstractConnection._send_packed_command

    async def noted(connection, *args, **kwargs):
        found.append(connection)
        await send(connection, *args, **kwargs)

    monkeypatch.setattr(AbstractConnection, "_send_packed_command", noted)
    return found


@pytest.fixture
async def batches(redis):
    await redis.script_load(ADD)
    return ScriptBatches(redis)


async def test_calls_at_one_moment_take_one_round_trip_on_one_connection(redis, batches, sent):
    script = redis.register_script(ADD)
    answers = await asyncio.gather(*(batches.call(script, ["n"], ["1"]) for _ in range(MAX_BATCH)))
    assert answers == list(range(1, MAX_BATCH + 1))
    assert len(sent) == 1


async def test_calls_beyond_the_limit_are_sent_next(redis, batches, sent):
    script = redis.register_script(ADD)
    answers = await asyncio.gather(*(batches.call(script, ["n"], ["1"]) for _ in range(MAX_BATCH + 1)))
    assert answers[-1] == MAX_BATCH + 1
    assert len(sent) == 2
    assert len(set(sent)) == 1


async def test_failed_call_fails_alone(redis, batches):
    script = redis.register_script(ADD)
    one, other = await asyncio.gather(
        batches.call(script, ["n"], ["x"]), batches.call(script, ["n"], ["2"]), return_exceptions=True
    )
    assert isinstance(one, RedisError)
    assert other == 2


async def test_scripts_that_redis_forgot_are_sent_whole(redis, batches):
    await redis.script_flush()
    script = redis.register_script(ADD)
    calls = [batches.call(script, ["n"], [str(number)]) for number in (1, 2)]
    assert await asyncio.gather(*calls) == [1, 3]


async def test_any_error_of_a_script_sent_whole_reaches_its_caller_only(redis, batches):
    await redis.script_flush()
    script = redis.register_script(ADD)
    calls = [batches.call(Broken(redis, ADD), ["n"], ["1"]), batches.call(script, ["n"], ["2"])]
    async with asyncio.timeout(200):
        one, other = await asyncio.gather(*calls, return_exceptions=True)
    assert (str(one), other) == ("no more sockets", 2)


async def test_cancelled_call_leaves_the_others_and_the_connection(redis, batches, sent):
    script = redis.register_script(ADD)
    calls = [asyncio.create_task(batches.call(script, ["n"], ["1"])) for _ in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[1], asyncio.CancelledError)
    assert answers[2] == 3
    assert await batches.call(script, ["n"], ["1"]) == 4
    assert len(set(sent)) == 1


async def test_unreachable_redis_fails_every_call():
    redis = connect("redis://127.0.0.1:1")
    batches, script = ScriptBatches(redis), redis.register_script(ADD)
    found = await asyncio.gather(
        *(batches.call(script, ["n"], ["1"]) for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(each, RedisError) for each in found)
    await redis.aclose()
