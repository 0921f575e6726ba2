"""Redis loses everything after Slack got "queued": the process that acknowledged stores it again."""

from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisDropped

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.sweeps.receipts import MAX_RECEIPTS
from bot.sweeps.recovery import recover
from k8s.api.errors import UnreachableError
from tests.bot.factories import OWNER, a_sweep
from tests.handlers.factories import a_context
from tests.scenarios.moments import sample
from tests.scenarios.sweep_in_memory import AFTERWARDS, SWEEP, Clock, SimulatedSweep

CANCEL = Command(action=Action.CANCEL, user=OWNER, user_name="ada")


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as simulation:
        yield simulation


@pytest.fixture(autouse=True)
def patient_slack(monkeypatch):
    """On a busy machine Redis can take longer than Slack waits."""
    monkeypatch.setattr("handlers.context.ACK_TIMEOUT", 200)


@pytest.fixture
def context(simulation):
    return a_context(simulation.redis, store=simulation.store, queue=simulation.clients.queue)


async def rounds(simulation, count):
    for _ in range(count):
        await simulation.round()


async def resync(simulation):
    await recover(replace(simulation.clients, cluster=simulation.cluster))


async def test_sweep_lost_before_its_claim_is_restored_under_its_name(simulation, context):
    first = await simulation.record()
    context.receipts.add_sweep(first)
    await simulation.redis.flushall()
    await context.receipts.restore_lost()
    assert await simulation.store.get(SWEEP) == first
    assert (await context.queue.get(wait=0)).item.key == SWEEP
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.RUNNING


@pytest.mark.parametrize("command", [None, CANCEL])
async def test_restore_lost_stores_and_queues_the_sweep_in_one_step(simulation, context, command):
    async def away(_):
        raise RedisDropped("Redis does not answer")

    if command:
        await rounds(simulation, 8)
        await context.send(SWEEP, command)
    else:
        context.receipts.add_sweep(await simulation.record())
    await simulation.redis.flushall()
    queue = context.queue._inner
    queue.add = away  # no second step exists that a lost connection could prevent
    await context.receipts.restore_lost()
    assert (await queue.get(wait=0)).item.key == SWEEP


async def test_claimed_sweep_is_restored_from_the_record_in_the_cluster(simulation, context):
    context.receipts.add_sweep(await simulation.record())
    await rounds(simulation, 8)
    await context.receipts.restore_lost()
    await simulation.redis.flushall()
    await context.receipts.restore_lost()
    assert await simulation.store.active() == set()
    await resync(simulation)
    await rounds(simulation, 1)
    assert (await simulation.record()).phase is Phase.RUNNING


async def test_sweep_claimed_just_before_the_loss_is_not_started_twice(simulation, context):
    context.receipts.add_sweep(await simulation.record())
    await rounds(simulation, 8)
    thread = (await simulation.record()).thread
    await simulation.redis.flushall()
    await context.receipts.restore_lost()
    await rounds(simulation, 3)
    assert (await simulation.record()).thread == thread
    assert simulation.slack.opened == 1
    assert sum("Redis lost its data" in text for text in simulation.slack.posted) == 1
    assert len(simulation.kubernetes.list("Experiment")) == 1


async def test_cancel_that_redis_lost_is_applied_anyway(simulation, context):
    await rounds(simulation, 8)
    assert simulation.gpus_held()
    await context.send(SWEEP, CANCEL)
    await simulation.redis.flushall()
    await context.receipts.restore_lost()
    await rounds(simulation, 8)
    await context.receipts.restore_lost()
    assert ((await simulation.record()).phase, simulation.gpus_held()) == (Phase.CANCELLED, [])


async def test_cancel_applied_while_the_cluster_was_unreachable_survives_a_loss(simulation, context):
    async def away(*_, **__):
        raise UnreachableError("the API server does not answer")

    await rounds(simulation, 8)
    merge, simulation.cluster.merge = simulation.cluster.merge, away
    await context.send(SWEEP, CANCEL)
    await rounds(simulation, 1)
    assert (await simulation.record()).phase is Phase.STOPPING
    await context.receipts.restore_lost()
    await simulation.redis.flushall()
    simulation.cluster.merge = merge
    await context.receipts.restore_lost()
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.CANCELLED


async def test_cancel_in_the_cluster_survives_without_a_receipt(simulation):
    """Before its pods have ended, and while Slack rejects its messages."""

    async def busy(*_, **__):
        raise UnreachableError("Slack does not answer")

    await rounds(simulation, 8)
    simulation.slack.reply = busy
    await simulation.store.add_command(SWEEP, CANCEL)
    await rounds(simulation, 1)
    del simulation.slack.reply
    await simulation.redis.flushall()
    await resync(simulation)
    await rounds(simulation, 6)
    assert ((await simulation.record()).phase, simulation.gpus_held()) == (Phase.CANCELLED, [])


async def test_denied_command_is_not_repeated(simulation, context):
    await rounds(simulation, 8)
    kill = Command(action=Action.KILL, user=OWNER, user_name="ada", trial="no-such")
    await context.send(SWEEP, kill)
    await context.receipts.restore_lost()
    await rounds(simulation, 1)
    await context.receipts.restore_lost()
    await rounds(simulation, 1)
    assert len(simulation.slack.ephemeral_messages) == 1


async def test_command_for_a_sweep_that_never_existed_is_answered_once(simulation, context):
    await context.send("lr-no-such", CANCEL)
    await simulation.round(item="lr-no-such")
    await context.receipts.restore_lost()
    assert await simulation.store.commands("lr-no-such") == []


async def test_receipts_are_limited(simulation, context):
    for number in range(MAX_RECEIPTS + 1):
        context.receipts.add_sweep(a_sweep(id=f"lr-{number}", request_id=f"trigger-{number}"))
    await simulation.redis.flushall()
    await context.receipts.restore_lost()
    assert len(await simulation.store.active()) == MAX_RECEIPTS


@pytest.mark.parametrize("cancelled_in", [None, 0, 1, 2, 6])
async def test_redis_emptied_after_any_reconcile_loses_and_doubles_nothing(redis, cancelled_in):
    """Each simulation has one loss, then resync and receipts. CRASH_EVERY=1 loses after each reconcile."""
    for lost_after in sample(range(12), every=3):
        async with SimulatedSweep(
            redis, Clock(None), endless=cancelled_in is not None, image=True
        ).started() as simulation:
            context = a_context(redis, store=simulation.store, queue=simulation.clients.queue)
            context.receipts.add_sweep(await simulation.record())
            over = 0
            for number in range(40):
                if number == cancelled_in:
                    await context.send(SWEEP, CANCEL)
                if number == lost_after:
                    await redis.flushall()
                    await resync(simulation)
                await simulation.round()
                await context.receipts.restore_lost()
                over += number > lost_after and (await simulation.record()).phase.final
                if over > AFTERWARDS:
                    break
            where = f"lost after reconcile {lost_after}"
            end = Phase.SUCCEEDED if cancelled_in is None else Phase.CANCELLED
            assert ((await simulation.record()).phase, simulation.gpus_held()) == (end, []), where
            assert len(simulation.kubernetes.list("Experiment")) <= 1, where
            assert simulation.slack.opened <= 1, where
            assert [w for w in simulation.slack.ephemeral_messages if "No sweep named" in w[1]] == [], where


async def test_receipts_of_sweeps_that_a_newer_worker_took_are_settled(simulation, context):
    """During an update: an unreadable record must not end the task that restores what is lost."""
    context.receipts.add_sweep(await simulation.record())
    key = f"life:sweep:{SWEEP}"
    await simulation.redis.hset(key, mapping={"version": 9, "record": '{"schema":99,"id":"lr-brave-otter"}'})
    await context.receipts.restore_lost()
    assert context.receipts._open == {}
