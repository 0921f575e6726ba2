"""Redis loses everything while Slack was told "queued": the process that said so stores it again."""

from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisDropped

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.sweeps.informer import SweepInformer
from bot.sweeps.receipts import MAX_RECEIPTS
from k8s.errors import UnreachableError
from tests.bot.factories import OWNER, a_sweep
from tests.handlers.factories import a_door
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

CANCEL = Command(action=Action.CANCEL, user=OWNER, user_name="ada")


@pytest.fixture
async def life(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as life:
        yield life


@pytest.fixture
def door(life):
    return a_door(life.redis, store=life.store, queue=life.clients.queue)


async def rounds(life, count):
    for _ in range(count):
        await life.round()


async def resync(life):
    await SweepInformer(life.redis, replace(life.clients, cluster=life.cluster))._wake_unfinished()


async def test_sweep_lost_before_its_claim_is_restored_under_its_name(life, door):
    first = await life.record()
    door.receipts.add_sweep(first)
    await life.redis.flushall()
    await door.receipts.restore_lost()
    assert await life.store.get(SWEEP) == first
    assert (await door.queue.get(wait=0)).item.key == SWEEP
    await rounds(life, 8)
    assert (await life.record()).phase is Phase.RUNNING


@pytest.mark.parametrize("command", [None, CANCEL])
async def test_restore_lost_stores_and_queues_the_sweep_in_one_step(life, door, command):
    async def away(_):
        raise RedisDropped("Redis does not answer")

    if command:
        await rounds(life, 8)
        await door.send(SWEEP, command)
    else:
        door.receipts.add_sweep(await life.record())
    await life.redis.flushall()
    queue = door.queue._inner
    queue.add = away  # there is no second step that a lost connection could prevent
    await door.receipts.restore_lost()
    assert (await queue.get(wait=0)).item.key == SWEEP


async def test_claimed_sweep_is_restored_from_the_record_in_the_cluster(life, door):
    door.receipts.add_sweep(await life.record())
    await rounds(life, 8)
    await door.receipts.restore_lost()
    await life.redis.flushall()
    await door.receipts.restore_lost()
    assert await life.store.active() == set()
    await resync(life)
    await rounds(life, 1)
    assert (await life.record()).phase is Phase.RUNNING


async def test_sweep_claimed_just_before_the_loss_is_not_started_twice(life, door):
    door.receipts.add_sweep(await life.record())
    await rounds(life, 8)
    thread = (await life.record()).thread
    await life.redis.flushall()
    await door.receipts.restore_lost()
    await rounds(life, 3)
    assert (await life.record()).thread == thread
    assert life.slack.opened == 1
    assert sum("Redis lost its data" in text for text in life.slack.said) == 1
    assert len(life.kubernetes.list("Experiment")) == 1


async def test_cancel_that_redis_lost_is_applied_anyway(life, door):
    await rounds(life, 8)
    assert life.gpus_held()
    await door.send(SWEEP, CANCEL)
    await life.redis.flushall()
    await door.receipts.restore_lost()
    await rounds(life, 8)
    await door.receipts.restore_lost()
    assert ((await life.record()).phase, life.gpus_held()) == (Phase.CANCELLED, [])


async def test_cancel_applied_while_the_cluster_was_unreachable_survives_a_loss(life, door):
    async def away(*_, **__):
        raise UnreachableError("the API server does not answer")

    await rounds(life, 8)
    merge, life.cluster.merge = life.cluster.merge, away
    await door.send(SWEEP, CANCEL)
    await rounds(life, 1)
    assert (await life.record()).phase is Phase.STOPPING
    await door.receipts.restore_lost()
    await life.redis.flushall()
    life.cluster.merge = merge
    await door.receipts.restore_lost()
    await rounds(life, 8)
    assert (await life.record()).phase is Phase.CANCELLED


async def test_cancel_in_the_cluster_survives_without_a_receipt(life):
    """Before its pods are gone, and while Slack takes no word of it."""

    async def busy(*_, **__):
        raise UnreachableError("Slack does not answer")

    await rounds(life, 8)
    life.slack.reply = busy
    await life.store.add_command(SWEEP, CANCEL)
    await rounds(life, 1)
    del life.slack.reply
    await life.redis.flushall()
    await resync(life)
    await rounds(life, 6)
    assert ((await life.record()).phase, life.gpus_held()) == (Phase.CANCELLED, [])


async def test_denied_command_is_not_repeated(life, door):
    await rounds(life, 8)
    kill = Command(action=Action.KILL, user=OWNER, user_name="ada", trial="no-such")
    await door.send(SWEEP, kill)
    await door.receipts.restore_lost()
    await rounds(life, 1)
    await door.receipts.restore_lost()
    await rounds(life, 1)
    assert len(life.slack.whispers) == 1


async def test_command_for_a_sweep_that_never_existed_is_answered_once(life, door):
    await door.send("lr-no-such", CANCEL)
    await life.round(item="lr-no-such")
    await door.receipts.restore_lost()
    assert await life.store.commands("lr-no-such") == []


async def test_receipts_are_limited(life, door):
    for number in range(MAX_RECEIPTS + 1):
        door.receipts.add_sweep(a_sweep(id=f"lr-{number}", request_id=f"trigger-{number}"))
    await life.redis.flushall()
    await door.receipts.restore_lost()
    assert len(await life.store.active()) == MAX_RECEIPTS


@pytest.mark.parametrize("cancelled_in", [None, 0, 1, 2, 6])
async def test_redis_emptied_after_any_reconcile_loses_and_doubles_nothing(redis, cancelled_in):
    """Each life has one loss, after one turn more than the life before; then the resync, and the receipts."""
    for lost_after in range(12):
        async with SimulatedSweep(
            redis, Clock(None), endless=cancelled_in is not None, image=True
        ).started() as life:
            door = a_door(redis, store=life.store, queue=life.clients.queue)
            door.receipts.add_sweep(await life.record())
            for number in range(40):
                if number == cancelled_in:
                    await door.send(SWEEP, CANCEL)
                if number == lost_after:
                    await redis.flushall()
                    await resync(life)
                await life.round()
                await door.receipts.restore_lost()
            where = f"lost after turn {lost_after}"
            end = Phase.SUCCEEDED if cancelled_in is None else Phase.CANCELLED
            assert ((await life.record()).phase, life.gpus_held()) == (end, []), where
            assert len(life.kubernetes.list("Experiment")) <= 1, where
            assert life.slack.opened <= 1, where
            assert [w for w in life.slack.whispers if "No sweep named" in w[1]] == [], where
