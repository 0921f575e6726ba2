"""Redis loses everything after Slack got "queued": who acknowledged it, or takes over, stores it again."""

import asyncio
import json
import os
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisDropped

from bot.core.commands import Action, Command
from bot.core.metrics import REGISTRY
from bot.core.record import Phase
from bot.platform.storage import sweep_configmap
from bot.platform.storage.configmaps import upsert
from bot.sweep.sweeps import unconfirmed
from bot.sweep.sweeps.durable_record import recover
from bot.sweep.sweeps.unconfirmed import UnconfirmedRequests
from bot.sweep.sweeps.unconfirmed_file import UnconfirmedFile
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


async def acknowledged_and_lost(simulation, context, command):
    """`command`: to the running sweep; None: the sweep itself."""
    if command:
        await rounds(simulation, 8)
        await context.send(SWEEP, command)
    else:
        await context.unconfirmed.add_sweep(await simulation.record())
    await simulation.redis.flushall()


async def test_sweep_lost_before_its_claim_is_restored_under_its_name(simulation, context):
    first = await simulation.record()
    await context.unconfirmed.add_sweep(first)
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    assert await simulation.store.get(SWEEP) == first
    assert (await context.queue.get(wait=0)).item.key == SWEEP
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.RUNNING


@pytest.mark.parametrize("command", [None, CANCEL])
async def test_restore_lost_stores_and_queues_the_sweep_in_one_step(simulation, context, command):
    async def away(_):
        raise RedisDropped("Redis does not answer")

    await acknowledged_and_lost(simulation, context, command)
    queue = context.queue._inner
    queue.add = away  # no second step exists that a lost connection could prevent
    await context.unconfirmed.restore_lost()
    assert (await queue.get(wait=0)).item.key == SWEEP


async def test_claimed_sweep_is_restored_from_the_record_in_the_cluster(simulation, context):
    await context.unconfirmed.add_sweep(await simulation.record())
    await rounds(simulation, 8)
    await context.unconfirmed.restore_lost()
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    assert await simulation.store.active() == set()
    await resync(simulation)
    await rounds(simulation, 1)
    assert (await simulation.record()).phase is Phase.RUNNING


async def test_sweep_claimed_just_before_the_loss_is_not_started_twice(simulation, context):
    await context.unconfirmed.add_sweep(await simulation.record())
    await rounds(simulation, 8)
    thread = (await simulation.record()).thread
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 3)
    assert (await simulation.record()).thread == thread
    assert simulation.slack.opened == 1
    assert sum("Redis lost its data" in text for text in simulation.slack.posted) == 1
    assert len(simulation.kubernetes.list("Experiment")) == 1


async def test_cancel_just_after_the_claim_is_of_the_sweep_in_the_cluster(simulation, context):
    """`serve` hasn't compared since the claim: it restores the sweep as acknowledged, then the cancel."""
    await context.unconfirmed.add_sweep(await simulation.record())
    await rounds(simulation, 8)
    thread = (await simulation.record()).thread
    await context.send(SWEEP, CANCEL)
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 8)
    assert ((await simulation.record()).phase, simulation.gpus_held()) == (Phase.CANCELLED, [])
    assert (await simulation.record()).thread == thread
    assert "GPUs are free" in simulation.slack.posted[-1]


async def test_cancel_just_after_the_claim_waits_for_the_clients_of_the_sweeps_cluster(simulation, context):
    await context.unconfirmed.add_sweep(await simulation.record())
    await rounds(simulation, 8)
    west = replace(await simulation.record(), cluster="west")
    await upsert(simulation.cluster, sweep_configmap.config_map(west))
    await context.send(SWEEP, CANCEL)
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 1)
    found = await simulation.record()
    assert (found.cluster, found.phase) == ("west", Phase.STOPPING), "nobody has looked there yet"


async def test_cancel_that_redis_lost_is_applied_anyway(simulation, context):
    await rounds(simulation, 8)
    assert simulation.gpus_held()
    await context.send(SWEEP, CANCEL)
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 8)
    await context.unconfirmed.restore_lost()
    assert ((await simulation.record()).phase, simulation.gpus_held()) == (Phase.CANCELLED, [])


async def test_cancel_applied_while_the_cluster_was_unreachable_survives_a_loss(simulation, context):
    async def away(*_, **__):
        raise UnreachableError("the API server does not answer")

    await rounds(simulation, 8)
    merge, simulation.cluster.merge = simulation.cluster.merge, away
    await context.send(SWEEP, CANCEL)
    await rounds(simulation, 1)
    assert (await simulation.record()).phase is Phase.STOPPING
    await context.unconfirmed.restore_lost()
    await simulation.redis.flushall()
    simulation.cluster.merge = merge
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.CANCELLED


async def test_sweep_cancelled_before_its_claim_is_not_unknown_after_a_loss(simulation, context):
    async def away(*_, **__):
        raise UnreachableError("the API server does not answer")

    await context.unconfirmed.add_sweep(await simulation.record())
    there = simulation.cluster.create, simulation.cluster.get
    simulation.cluster.create = simulation.cluster.get = away
    await context.send(SWEEP, CANCEL)
    await rounds(simulation, 1)
    assert (await simulation.record()).phase is Phase.STOPPING  # until it is sure that nothing runs
    await context.unconfirmed.restore_lost()
    await simulation.redis.flushall()
    simulation.cluster.create, simulation.cluster.get = there
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 8)
    assert await simulation.store.get(SWEEP)
    assert (await simulation.record()).phase is Phase.CANCELLED
    assert [each for each in simulation.slack.ephemeral_messages if "No sweep named" in each[1]] == []


async def test_cancel_in_the_cluster_survives_without_an_unconfirmed_request(simulation):
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
    await rounds(simulation, 8)
    assert ((await simulation.record()).phase, simulation.gpus_held()) == (Phase.CANCELLED, [])


async def test_denied_command_is_not_repeated(simulation, context):
    await rounds(simulation, 8)
    kill = Command(action=Action.KILL, user=OWNER, user_name="ada", trial="no-such")
    await context.send(SWEEP, kill)
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 1)
    await context.unconfirmed.restore_lost()
    await rounds(simulation, 1)
    assert len(simulation.slack.ephemeral_messages) == 1


async def test_command_for_a_sweep_that_never_existed_is_answered_once(simulation, context):
    await context.send("lr-no-such", CANCEL)
    for _ in range(2):
        await context.unconfirmed.restore_lost()
    await simulation.round(item="lr-no-such")
    await context.unconfirmed.restore_lost()
    assert len(simulation.slack.ephemeral_messages) == 1
    assert await simulation.store.commands("lr-no-such") == []


async def test_unconfirmed_requests_are_limited(simulation, context, monkeypatch):
    monkeypatch.setattr(unconfirmed, "MAX_REQUESTS", 20)
    for number in range(21):
        await context.unconfirmed.add_sweep(a_sweep(id=f"lr-{number}", request_id=f"trigger-{number}"))
    await simulation.redis.flushall()
    await context.unconfirmed.restore_lost()
    assert len(await simulation.store.active()) == 20


@pytest.mark.parametrize("cancelled_in", [None, 0, 1, 2, 6])
async def test_redis_emptied_after_any_reconcile_loses_and_doubles_nothing(redis, cancelled_in):
    """Each simulation has one loss, then resync and a check. CRASH_EVERY=1 loses after each reconcile."""
    for lost_after in sample(range(12), every=6):
        async with SimulatedSweep(
            redis, Clock(None), endless=cancelled_in is not None, image=True
        ).started() as simulation:
            context = a_context(redis, store=simulation.store, queue=simulation.clients.queue)
            await context.unconfirmed.add_sweep(await simulation.record())
            over = 0
            for number in range(40):
                if number == cancelled_in:
                    await context.send(SWEEP, CANCEL)
                if number == lost_after:
                    await redis.flushall()
                    await resync(simulation)
                await simulation.round()
                await context.unconfirmed.restore_lost()
                over += number > lost_after and (await simulation.record()).phase.final
                if over > AFTERWARDS:
                    break
            where = f"lost after reconcile {lost_after}"
            end = Phase.SUCCEEDED if cancelled_in is None else Phase.CANCELLED
            assert ((await simulation.record()).phase, simulation.gpus_held()) == (end, []), where
            assert len(simulation.kubernetes.list("Experiment")) <= 1, where
            assert simulation.slack.opened <= 1, where
            assert [w for w in simulation.slack.ephemeral_messages if "No sweep named" in w[1]] == [], where


async def test_sweep_that_a_newer_worker_took_is_settled(simulation, context):
    """During an update: an unreadable record must not end the task that restores what is lost."""
    await context.unconfirmed.add_sweep(await simulation.record())
    key = f"life:sweep:{SWEEP}"
    await simulation.redis.hset(key, mapping={"version": 9, "record": '{"schema":99,"id":"lr-brave-otter"}'})
    await context.unconfirmed.restore_lost()
    assert context.unconfirmed._open == {}


def restarted(context):
    """Return the context of the process that replaces one that was killed: the lock ended with that one."""
    context.unconfirmed.file.close()
    return sharing(context)


def sharing(context):
    """Return the context of another process on the same volume."""
    old = context.unconfirmed
    return replace(context, unconfirmed=UnconfirmedRequests(old._store, old._queue, old._now, old._folder))


def lines(context):
    return [line for each in context.unconfirmed._folder.iterdir() for line in each.read_bytes().splitlines()]


def unsaved():
    return REGISTRY.get_sample_value("sweepbot_unconfirmed_unsaved")


@pytest.mark.parametrize("command", [None, CANCEL])
async def test_killed_server_and_emptied_redis_at_once_lose_nothing(simulation, context, command):
    await acknowledged_and_lost(simulation, context, command)
    next_one = restarted(context)
    await next_one.unconfirmed.restore_lost()
    if command:
        await resync(simulation)
    await rounds(simulation, 8)
    end = Phase.CANCELLED if command else Phase.RUNNING
    assert (await simulation.record()).phase is end
    await next_one.unconfirmed.restore_lost()
    assert lines(next_one) == []
    assert len(list(next_one.unconfirmed._folder.iterdir())) == 1


async def test_torn_and_damaged_lines_hide_no_other(simulation, context, caplog):
    await context.unconfirmed.add_sweep(await simulation.record())
    with next(context.unconfirmed._folder.iterdir()).open("ab") as file:
        file.write(
            b"\xff\n[]\n"
            + json.dumps({"to": "lr-x", "until": "2026-01-01T00:00:00Z", "record": "x"}).encode()
        )
        file.write(b'\n{"to":"lr-brave-ott')
    await simulation.redis.flushall()
    next_one = restarted(context)
    await next_one.unconfirmed.restore_lost()
    assert await simulation.store.active() == {SWEEP}
    assert len(lines(next_one)) == 1


async def test_running_process_keeps_its_file_from_others(simulation, context):
    await context.unconfirmed.add_sweep(await simulation.record())
    other = sharing(context)
    await other.unconfirmed.restore_lost()
    assert other.unconfirmed._open == {}
    assert len(lines(context)) == 1
    context.unconfirmed.file.close()
    await other.unconfirmed.restore_lost()
    assert list(other.unconfirmed._open) == [(SWEEP, "")]


@pytest.mark.parametrize("fault", ["full", "read-only", "part", "silent"])
async def test_disk_that_cannot_be_written_stops_no_acknowledgment_and_is_reported(
    simulation, context, monkeypatch, caplog, fault
):
    write, released = os.write, asyncio.Event()

    def refused(file, data):
        if fault == "part" and len(data) > 9:
            return write(file, data[:9])
        raise OSError(28, "No space left on device")

    async def silent(*_):
        await released.wait()

    await context.unconfirmed.restore_lost()
    await rounds(simulation, 8)
    with monkeypatch.context() as patch:
        if fault == "read-only":
            context.unconfirmed.file.close()
            context.unconfirmed._is_complete = False
            patch.setattr("os.open", lambda *_: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
        elif fault == "silent":
            patch.setattr("bot.sweep.sweeps.unconfirmed.WRITE_TIMEOUT", 0.01)
            patch.setattr(asyncio, "to_thread", silent)
        else:
            patch.setattr("os.write", refused)
        for _ in range(2):
            await context.send(SWEEP, CANCEL)
        assert await simulation.store.commands(SWEEP) == [CANCEL] * 2
        assert unsaved() == 1
        [reported] = [each.getMessage() for each in caplog.records if "can't store" in each.message]
        assert str(context.unconfirmed._folder) in reported
    released.set()
    await context.unconfirmed.restore_lost()
    assert (unsaved(), len(lines(context))) == (0, 1)
    await simulation.redis.flushall()
    await restarted(context).unconfirmed.restore_lost()
    assert await simulation.store.commands(SWEEP) == [CANCEL]


async def test_acknowledgments_at_once_share_a_flush(simulation, context, monkeypatch):
    flushes, append = [], UnconfirmedFile.append
    monkeypatch.setattr(UnconfirmedFile, "append", lambda *args: flushes.append(1) or append(*args))
    await context.unconfirmed.restore_lost()
    records = [a_sweep(id=f"lr-{number}", request_id=f"trigger-{number}") for number in range(50)]
    await asyncio.gather(*(context.unconfirmed.add_sweep(each) for each in records))
    assert (len(flushes), len(lines(context))) == (1, 50)


async def test_full_memory_does_not_write_the_file_again_for_each_request(context, monkeypatch):
    monkeypatch.setattr("bot.sweep.sweeps.unconfirmed.MAX_REQUESTS", 2)
    written, rewrite = [], UnconfirmedFile.rewrite
    monkeypatch.setattr(UnconfirmedFile, "rewrite", lambda *args: written.append(1) or rewrite(*args))
    for number in range(9):
        await context.unconfirmed.add_sweep(a_sweep(id=f"lr-{number}", request_id=f"trigger-{number}"))
    assert (len(written), len(lines(context))) == (1, 9)


async def test_file_has_no_more_than_redis_and_is_private(simulation, context):
    record = await simulation.record()
    await context.unconfirmed.add_sweep(record)
    [line], [file] = map(json.loads, lines(context)), context.unconfirmed._folder.iterdir()
    assert line["record"].encode() == await simulation.redis.hget(f"life:sweep:{SWEEP}", "record")
    assert sorted(line) == ["record", "to", "until"]
    assert file.stat().st_mode & 0o777 == 0o600


async def test_command_is_restored_however_often_redis_is_emptied(simulation, context):
    await rounds(simulation, 8)
    await context.send(SWEEP, CANCEL)
    for _ in range(13):
        await simulation.redis.flushall()
        await context.unconfirmed.restore_lost()
    await rounds(simulation, 8)
    assert (await simulation.record()).phase is Phase.CANCELLED


async def test_large_requests_are_limited_in_bytes(context, monkeypatch):
    monkeypatch.setattr("bot.sweep.sweeps.unconfirmed.MAX_BYTES", 20_000)
    for number in range(40):
        record = a_sweep(id=f"lr-{number}", request_id=f"trigger-{number}")
        await context.unconfirmed.add_sweep(replace(record, reason="x" * 2000))
    assert 1 < len(context.unconfirmed._open) < 10
    assert context.unconfirmed.file.size < 45_000  # written again when it has twice as much
