"""Workers of two versions on one Redis: the older one leaves what it can't read to the newer one."""

import json
from dataclasses import replace
from functools import partial

import pytest

from bot.core.commands import Action, Command
from bot.core.record import FORMAT, Phase
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage import work_queue
from bot.platform.storage.work_queue import Queue
from bot.sweep.sweeps import reconciler
from bot.worker import Worker
from tests.bot.factories import OWNER, a_sweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

KEY, ITEM = f"life:sweep:{SWEEP}", WorkItem.sweep(SWEEP)
STATUS = Command(action=Action.STATUS, user=OWNER, user_name="ada", response_url="https://hooks/2")
NEW_FIELD = {"starred": True}
NEW_SCHEMA = {"schema": FORMAT.schema + 1, "phase": "archiving", "plan": "in another place"}


@pytest.fixture(params=[NEW_FIELD, NEW_SCHEMA], ids=["new field", "new schema"])
def newer(request):
    return request.param


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as simulation:
        for _ in range(8):
            await simulation.round()
        assert (await simulation.record()).phase is Phase.RUNNING
        yield simulation


@pytest.fixture
def older(simulation):
    """Runs the item once, as a worker of this version."""
    queue = Queue(simulation.redis, prefix="life:queue")
    handle = partial(reconciler.handle, clients=simulation.clients)

    async def run(times=1):
        for _ in range(times):
            await queue.add(ITEM)
            await Worker(queue, 1, {ItemKind.SWEEP: handle})._take(await queue.get(wait=0))

    return run


async def edit(simulation, change):
    """Save the record as another version does."""
    fields = json.loads(await simulation.redis.hget(KEY, "record"))
    stored = json.dumps(change(fields))
    await simulation.redis.hset(KEY, "record", stored)
    return stored.encode()


async def test_record_of_a_newer_worker_is_left_to_it(simulation, older, newer, caplog):
    posted = list(simulation.slack.posted)
    await simulation.store.add_command(SWEEP, STATUS)
    before = json.loads(await simulation.redis.hget(KEY, "record"))
    stored = await edit(simulation, lambda fields: fields | newer)
    await older(3)
    assert await simulation.redis.hget(KEY, "record") == stored
    assert await simulation.store.commands(SWEEP) == [STATUS]
    assert (simulation.slack.posted, simulation.slack.ephemeral_messages) == (posted, [])
    assert f"left {SWEEP} to a newer worker" in caplog.text
    assert "Traceback" not in caplog.text
    assert await simulation.redis.zscore("life:queue:delayed", SWEEP)
    assert not await Queue(simulation.redis, prefix="life:queue").quarantined()

    await edit(simulation, lambda _: before)  # the new field is no longer used
    await older()
    assert await simulation.store.commands(SWEEP) == []


async def test_update_gives_no_answer_of_a_downgrade_however_often_older_workers_wake(
    simulation, older, newer, monkeypatch
):
    monkeypatch.setattr(
        work_queue, "RETRY", replace(work_queue.RETRY, base=300.0)
    )  # none ends by itself during the test
    await simulation.store.add_command(SWEEP, STATUS)
    await edit(simulation, lambda fields: fields | newer)
    await older(10)
    assert simulation.slack.ephemeral_messages == []
    lease = await Queue(simulation.redis, prefix="life:queue").get(wait=0)
    assert lease, "a newer worker gets it at once"
    assert lease.item == ITEM


async def test_command_of_a_newer_version_is_left_to_it(simulation, older):
    said = len(simulation.slack.posted)
    for command in ('{"action":"clone","user":"U1","user_name":"ada"}', '{"action":"drain","soon":1}'):
        await simulation.redis.delete(f"life:commands:{SWEEP}")
        await simulation.redis.rpush(f"life:commands:{SWEEP}", command)
        await older(6)
        assert await simulation.redis.lrange(f"life:commands:{SWEEP}", 0, -1) == [command.encode()]
    assert len(simulation.slack.posted) == said, "no false alarm in the thread"


async def test_downgrade_answers_each_command_once_with_what_to_do(simulation, older, newer):
    await simulation.store.add_command(SWEEP, STATUS)
    stored = await edit(simulation, lambda fields: fields | newer)
    for _ in range(10):
        await older()
        await simulation.redis.hset("life:queue:left", SWEEP, "1")  # as if its delay were over
    [(user, text)] = simulation.slack.ephemeral_messages
    assert user == OWNER
    assert text.startswith(f"`{SWEEP}` was last changed by a newer version of Sweepbot than the one running")
    assert "*Fix:* Ask an admin to finish the update, or to undo the downgrade." in text
    assert await simulation.redis.hget(KEY, "record") == stored
    assert await simulation.store.commands(SWEEP) == [STATUS]


async def test_newer_configmap_is_not_restored_and_loses_no_command(simulation, older, newer):
    where = ("ConfigMap", "sweeps", f"sweep-{SWEEP}")
    record = json.loads(simulation.kubernetes.get(*where)["data"]["record"]) | newer
    simulation.kubernetes.patch(*where, {"data": {"record": json.dumps(record)}})
    await simulation.redis.flushall()
    await simulation.store.add_command(SWEEP, STATUS)
    await older(2)
    assert not await simulation.redis.exists(KEY)
    assert await simulation.store.commands(SWEEP) == [STATUS]
    assert json.loads(simulation.kubernetes.get(*where)["data"]["record"]) == record


async def test_repeated_request_of_a_newer_sweep_takes_no_other_name(simulation, older, newer):
    """Redis lost the sweep, and Slack repeats the command: the name is not another sweep's."""
    where = ("ConfigMap", "sweeps", f"sweep-{SWEEP}")
    record = json.loads(simulation.kubernetes.get(*where)["data"]["record"]) | newer
    simulation.kubernetes.patch(*where, {"data": {"record": json.dumps(record)}})
    await simulation.redis.flushall()
    again = a_sweep(request_id="trigger-1")
    await simulation.store.create(again, [SWEEP], "trigger-1")
    await older(2)
    assert (await simulation.record()).id == SWEEP
    assert {key async for key in simulation.redis.scan_iter("life:sweep:*")} == {KEY.encode()}
    assert json.loads(simulation.kubernetes.get(*where)["data"]["record"]) == record
