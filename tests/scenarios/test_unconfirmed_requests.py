"""Requests to jobs, reruns, and promotions survive a killed `serve` and an emptied Redis, as sweeps do."""

from datetime import timedelta
from functools import partial

import pytest

from bot.core.commands import Action, Command, dump_command
from bot.core.record import Phase
from bot.measure.gpus.snapshot_store import ITEM as GPUS
from bot.platform.storage.work_queue import text
from bot.sweep.channels.models import ChannelSetup
from bot.sweep.channels.store import REQUESTS as SETUP
from bot.sweep.channels.store import SetupRequest, dump
from bot.sweep.sweeps.durable_record import recover
from handlers.slash_gpus import answer_gpus
from tests.bot.factories import ADMIN, NOW, OWNER
from tests.handlers.factories import a_context
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep
from tests.scenarios.test_unconfirmed import CANCEL, restarted, rounds

IDLE, JOB = "watch: gpus", "environment-commands: now"
POLLED = "elastic/serving/llm 2"  # its reader looks by itself


async def set_up(context, request):
    await context.add_request(str(SETUP), dump(request))


def typed(words):
    names = {"user_name": "ada", "channel_id": "C1", "trigger_id": "T1", "response_url": "https://hooks/1"}
    return {"text": words, "user_id": ADMIN, **names}


async def snooze(context):
    keep = Command(action=Action.KEEP, user=OWNER, user_name="ada", alert="idle/x", hours=4)
    await context.send(IDLE, keep)


async def administer(context):
    retry = Command(action=Action.OPERATE, user=ADMIN, user_name="ada", changes="retry lr-x")
    await context.send("operator: now", retry)


REQUESTS = {
    "digest": (str(GPUS), lambda c: answer_gpus(c, typed("digest"), None)),
    "setup": (
        str(SETUP),
        lambda c: set_up(c, SetupRequest(user=ADMIN, channel="C1", settings=ChannelSetup(hour=9))),
    ),
    "snooze": (IDLE, snooze),
    "admin": ("operator: now", administer),
    "polled": (POLLED, lambda c: c.add_request(POLLED, "2", is_polled=True)),
}


@pytest.fixture
def context(redis):
    return a_context(redis)


@pytest.mark.parametrize(("to", "request_"), REQUESTS.values(), ids=REQUESTS)
async def test_killed_server_and_emptied_redis_lose_no_request_to_a_job(redis, context, to, request_):
    await assert_not_lost(redis, context, to, request_)


async def assert_not_lost(redis, context, to, request_):
    await request_(context)
    stored = await context.store.requests(to)
    assert len(stored) == 1
    await redis.flushall()
    after = restarted(context)
    await after.unconfirmed.restore_lost()
    assert await context.store.requests(to) == stored
    lease = await context.queue.get(wait=0)
    assert (str(lease.item) if lease else POLLED) == to

    await context.store.remove_requests(to, stored)
    await after.unconfirmed.restore_lost()
    await redis.flushall()
    await restarted(after).unconfirmed.restore_lost()
    assert await context.store.requests(to) == []


async def test_request_of_a_killed_server_is_restored_before_those_since(redis, context):
    times = iter([NOW, NOW + timedelta(seconds=1)])
    context.unconfirmed._now = partial(next, times)
    await set_up(context, SetupRequest(user=ADMIN, channel="C1", settings=ChannelSetup(hour=8)))
    after = restarted(context)
    await set_up(after, SetupRequest(user=ADMIN, channel="C1", settings=ChannelSetup(hour=9)))
    stored = await context.store.requests(str(SETUP))
    await redis.flushall()
    after.unconfirmed._now = lambda: NOW
    await after.unconfirmed.restore_lost()
    assert await context.store.requests(str(SETUP)) == stored


async def test_question_is_not_kept_because_its_user_repeats_it(context):
    await context.send("queue: now", Command(action=Action.QUEUE, user=OWNER, user_name="ada"))
    await answer_gpus(context, typed("now"), None)
    assert context.unconfirmed._open == {}


async def test_request_that_is_of_no_use_any_more_is_dropped_and_shortens_no_other(redis, context, caplog):
    await context.add_request(JOB, "start lab", ttl=timedelta(days=1))
    await redis.flushall()
    await context.store.add_request(JOB, "newer", ttl=timedelta(days=1))
    for late in (timedelta(days=1) - timedelta(seconds=2), timedelta(days=1, seconds=1)):
        context.unconfirmed._now = lambda late=late: NOW + late
        await context.unconfirmed.restore_lost()
    assert context.unconfirmed._open == {}
    assert await context.store.requests(JOB) == [b"start lab", b"newer"]
    assert await redis.ttl(f"sweepbot:commands:{JOB}") > 86_000  # as long as the newer one is of use
    assert f"dropped a request to {JOB}" in caplog.text


async def test_command_given_again_is_not_taken_for_the_one_that_was_handled(redis, context):
    pause = Command(action=Action.PAUSE, user=OWNER, user_name="ada")
    for _ in range(2):
        await context.send(SWEEP, pause)
        await context.store.remove_commands(SWEEP, [pause])
    await context.send(SWEEP, pause)
    await redis.delete(f"sweepbot:commands:{SWEEP}")
    await context.unconfirmed.restore_lost()
    assert [text(each) for each in await context.store.requests(SWEEP)] == [dump_command(pause)]


@pytest.fixture
async def ended(redis):
    async with SimulatedSweep(redis, Clock(None), image=True).started() as simulation:
        await rounds(simulation, 14)
        assert (await simulation.record()).phase is Phase.SUCCEEDED
        yield simulation


async def started_by(simulation, request_id):
    ids = await simulation.store.active() - {SWEEP}
    found = [await simulation.store.get(each) for each in ids]
    return [each.id for each in found if each.request_id == request_id]


@pytest.mark.parametrize("action", [Action.RERUN, Action.PROMOTE])
@pytest.mark.parametrize("lost", ["before its worker", "before its claim", "after its claim"])
async def test_killed_server_and_emptied_redis_lose_no_rerun(ended, action, lost):
    context = a_context(ended.redis, store=ended.store, queue=ended.clients.queue)
    changes = "seeds=3" if action is Action.PROMOTE else ""
    again = Command(action=action, user=OWNER, user_name="ada", request_id="T9", changes=changes)
    await context.send(SWEEP, again)
    if lost != "before its worker":
        await ended.round()
        [new] = await started_by(ended, "T9")
        if lost == "after its claim":
            await ended.round(item=new)
        else:
            await context.unconfirmed.restore_lost()
            await context.send(new, CANCEL)
    await ended.redis.flushall()
    after = restarted(context)
    await after.unconfirmed.restore_lost()
    await recover(ended.clients)
    if await ended.store.requests(SWEEP):
        await ended.round()
    [new] = await started_by(ended, "T9")
    await ended.round(item=new)
    assert (await ended.store.get(new)).durable_phase
    await after.unconfirmed.restore_lost()
    assert after.unconfirmed._open == {}
