"""Sweep records in a real Redis: no worker overwrites a newer record."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.core.commands import Action, Command
from bot.core.events import Progress
from bot.core.record import FORMAT, Phase, SweepRecord, dump
from bot.core.request import Requester, SweepRequest
from bot.core.stored_format import NewerFormatError
from bot.core.sweep_summary import SweepSummary, summary_of
from bot.core.work_item import WorkItem
from bot.platform.storage.sweeps import NoFreeIdError, OutdatedCheckError, StaleRecordError, Store
from bot.platform.storage.work_queue import Lease, Queue

pytestmark = pytest.mark.usefixtures("no_litter")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CANCEL = Command(action=Action.CANCEL, user="U1", user_name="ada")
DAY = 24 * 3600


def record_for(sweep_id, request_id="d1"):
    return SweepRecord(
        id=sweep_id,
        namespace="sweeps",
        request=SweepRequest(branch="main", space="lr"),
        requester=Requester(user="U1", user_name="ada", channel="C1"),
        request_id=request_id,
        created=NOW,
        since=NOW,
    )


@pytest.fixture
def store(redis):
    return Store(redis)


@pytest.fixture
async def sweep(store):
    """A living sweep, ended after the test."""
    record, _ = await store.create(record_for("lr-brave-otter"), ["lr-brave-otter"], "d1")
    yield record
    if latest := await store.get(record.id):
        await end(store, latest)


async def end(store, record):
    return await store.save(record.to(Phase.SUCCEEDED, NOW))


async def test_create_takes_the_first_free_id(store, sweep):
    record, new = await store.create(
        record_for("lr-brave-otter"), ["lr-brave-otter", "lr-calm-finch", "lr-x"], "d2"
    )
    assert (record, new) == (record_for("lr-calm-finch"), True)
    assert await store.get("lr-calm-finch") == record
    assert await store.active() == {"lr-brave-otter", "lr-calm-finch"}
    await end(store, record)


async def test_create_of_a_repeated_request_returns_the_same_sweep(store, sweep, redis):
    assert await store.create(record_for("lr-calm-finch"), ["lr-calm-finch"], "d1") == (sweep, False)
    assert await store.active() == {sweep.id}
    assert 0 < await redis.ttl("sweepbot:delivery:d1") <= DAY
    assert await redis.hget(f"sweepbot:sweep:{sweep.id}", "record") == dump(sweep).encode()
    with pytest.raises(NoFreeIdError, match="lr-brave-otter"):
        await store.create(record_for("lr-brave-otter"), ["lr-brave-otter"], "d2")


async def test_get_unknown_sweep_is_none(store):
    assert await store.with_commands("lr-no-such") == (None, [])
    assert await store.get("lr-never-was") is None


async def test_save_increments_the_version(store, sweep):
    saved = await store.save(sweep.to(Phase.BUILDING, NOW))
    assert saved == replace(sweep.to(Phase.BUILDING, NOW), version=1)
    assert await store.get(sweep.id) == saved
    assert await store.with_commands(sweep.id) == (saved, [])
    assert (await store.save(saved.enqueue())).version == 2


async def test_save_of_a_stale_version_is_rejected(store, sweep):
    faster = await store.save(sweep.to(Phase.BUILDING, NOW))
    with pytest.raises(StaleRecordError, match="another worker saved version 1"):
        await store.save(sweep.to(Phase.FAILED, NOW))
    assert await store.get(sweep.id) == faster


async def test_save_repeated_after_a_lost_answer_succeeds(store, sweep):
    once = await store.save(sweep.to(Phase.BUILDING, NOW))
    assert await store.save(sweep.to(Phase.BUILDING, NOW)) == once


async def test_save_of_a_deleted_sweep_is_rejected(store):
    with pytest.raises(StaleRecordError, match="its record was deleted"):
        await store.save(record_for("lr-never-was"))


async def test_save_with_a_lost_lease_is_rejected(store, sweep, redis):
    queue = Queue(redis)
    await queue.add(WorkItem.sweep(sweep.id))
    paused = await Queue(redis, lease=0.3).get()
    other = await queue.get(wait=20)
    with pytest.raises(StaleRecordError, match="the lease is lost"):
        await store.save(sweep.to(Phase.FAILED, NOW), paused)
    saved = await store.save(sweep.to(Phase.BUILDING, NOW), other)
    assert await store.get(sweep.id) == saved
    await queue.done(other)
    with pytest.raises(StaleRecordError, match="the lease is lost"):
        await store.save(saved.to(Phase.FAILED, NOW), other)


async def test_save_of_the_same_record_by_a_second_worker_is_rejected(store, sweep, redis):
    queue = Queue(redis)
    await queue.add(WorkItem.sweep(sweep.id))
    paused = await Queue(redis, lease=0.3).get()
    other = await queue.get(wait=20)
    saved = await store.save(sweep.to(Phase.BUILDING, NOW), other)
    with pytest.raises(StaleRecordError, match="the lease is lost"):
        await store.save(sweep.to(Phase.BUILDING, NOW), paused)
    assert await store.save(sweep.to(Phase.BUILDING, NOW), other) == saved, (
        "its own lost answer is no conflict"
    )
    await queue.done(other)


async def test_sweep_is_unknown_after_two_comparisons_while_the_lease_lasts(store, sweep, redis):
    queue = Queue(redis)
    await queue.add(WorkItem.sweep("lr-x"))
    lease = await queue.get()
    for unknown in (False, False, True):
        assert await store.is_unknown("lr-x", lease) is unknown
        await store.count_comparison()
    assert not await store.is_unknown(sweep.id, lease)
    await queue.done(lease)
    assert not await store.is_unknown("lr-x", lease)
    await redis.delete("sweepbot:compared")


async def test_save_is_rejected_if_another_sweep_of_the_group_was_checked_since(store, sweep):
    other, _ = await store.create(record_for("lr-calm-finch"), ["lr-calm-finch"], "d2")
    mine, theirs = await store.limit_check("person:U1"), await store.limit_check("person:U1")
    elsewhere = await store.limit_check("team:vision")
    started = await store.save(other.to(Phase.RUNNING, NOW), checks=[theirs])
    assert await store.save(other.to(Phase.RUNNING, NOW), checks=[theirs]) == started, "after a lost answer"
    with pytest.raises(OutdatedCheckError, match="another one was checked meanwhile"):
        await store.save(sweep.to(Phase.RUNNING, NOW), checks=[mine])
    assert await store.get(sweep.id) == sweep
    saved = await store.save(sweep.to(Phase.RUNNING, NOW), checks=[elsewhere])
    again = await store.limit_check("person:U1")
    assert (await store.save(saved.enqueue(), checks=[again])).version == 2
    await end(store, started)


async def test_rejected_save_outdates_no_check_and_one_with_an_unknown_lease_changes_nothing(store, sweep):
    with pytest.raises(StaleRecordError, match="the lease is lost"):
        await store.save(sweep, Lease(WorkItem.sweep(sweep.id), "token", 0))
    check = await store.limit_check("person:U1")
    with pytest.raises(StaleRecordError, match="its record was deleted"):
        await store.save(record_for("lr-never-was"), checks=[check])
    assert (await store.save(sweep, checks=[check])).version == 1


async def test_ended_sweep_is_inactive_and_expires(store, redis):
    record, _ = await store.create(record_for("lr-brave-otter"), ["lr-brave-otter"], "d1")
    ended = await end(store, record)
    assert await store.active() == set()
    assert 13 * DAY < await redis.ttl("sweepbot:sweep:lr-brave-otter") <= 14 * DAY
    await redis.expire("sweepbot:sweep:lr-brave-otter", DAY)
    await store.save(ended)
    assert await redis.ttl("sweepbot:sweep:lr-brave-otter") > 13 * DAY, "as its entry in lists"


async def test_sweep_that_continues_after_its_end_is_active_again_and_does_not_expire(store, sweep, redis):
    ended = await end(store, sweep)
    await store.save(ended.to(Phase.RUNNING, NOW))
    assert await store.active() == {sweep.id}
    assert await redis.ttl(f"sweepbot:sweep:{sweep.id}") == -1


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.CANCELLED])
async def test_restore_stores_a_lost_sweep_unchanged(store, phase):
    lost = replace(record_for("lr-brave-otter"), phase=phase, version=7)
    assert await store.restore(lost)
    assert await store.get(lost.id) == lost
    assert await store.create(record_for(lost.id), [lost.id], lost.request_id) == (lost, False)
    assert await store.active() == (set() if phase.final else {lost.id})
    await end(store, lost)


async def test_restore_does_not_overwrite_a_stored_sweep(store, sweep):
    newer = await store.save(sweep.to(Phase.RUNNING, NOW))
    assert not await store.restore(sweep)
    assert await store.get(sweep.id) == newer


async def test_get_newer_record_is_an_error(store, redis):
    await store.restore(replace(record_for("lr-x"), phase=Phase.FAILED))
    fields = json.loads(await redis.hget("sweepbot:sweep:lr-x", "record"))
    await redis.hset("sweepbot:sweep:lr-x", "record", json.dumps(fields | {"schema": FORMAT.schema + 1}))
    with pytest.raises(NewerFormatError, match="newer Sweepbot"):
        await store.get("lr-x")


async def test_build_lists_its_waiting_sweeps(store, redis):
    for sweep_id in ("a", "b", "a"):
        await store.wait_for_builds(["build-1"], sweep_id)
    assert await store.stop_waiting("build-1", "a") == 1
    assert await store.stop_waiting("build-1", "a") == 1
    assert await store.stop_waiting("build-1", "b") == 0
    assert [await redis.ttl(key) > 0 for key in await redis.keys()] == [True]


async def test_build_end_concerns_waiting_and_stopped_sweeps_until_they_end(store, sweep):
    other, _ = await store.create(record_for("lr-calm-finch"), ["lr-calm-finch"], "d2")
    for sweep_id in (sweep.id, other.id):
        await store.wait_for_builds(["build-1"], sweep_id)
    await store.stop_waiting("build-1", sweep.id)
    assert await store.concerned_by("build-1") == {sweep.id, other.id}
    await end(store, other)
    assert await store.concerned_by("build-1") == {sweep.id}


async def test_versions_and_active_sweeps_are_in_the_order_of_the_ids(store, sweep):
    saved = await store.save(sweep)
    assert await store.versions(["lr-x", sweep.id]) == [None, saved.version]
    assert await store.versions([]) == []
    assert await store.active_of(["lr-x", sweep.id]) == {sweep.id}
    assert [await store.is_active(each) for each in ("lr-x", sweep.id)] == [False, True]
    await end(store, saved)
    assert await store.active_of([sweep.id]) == set()


async def test_list_reads_no_records(store, sweep, monkeypatch):
    running = replace(sweep.to(Phase.RUNNING, NOW), thread="1.1", progress=Progress(succeeded=2, running=1))
    await store.save(running)
    other, _ = await store.create(record_for("lr-calm-finch"), ["lr-calm-finch"], "d2")
    await end(store, other)
    monkeypatch.setattr("bot.platform.storage.sweeps.load", None)
    mine = {"user": "U1", "user_name": "ada", "channel": "C1", "created": NOW, "space": "lr"}
    ended = SweepSummary(id=other.id, phase=Phase.SUCCEEDED, **mine)
    live = SweepSummary(id=sweep.id, phase=Phase.RUNNING, thread="1.1", finished=2, running=1, **mine)
    assert sorted(await store.listed(), key=lambda entry: entry.id) == [live, ended]


async def test_list_adds_sweeps_saved_by_an_older_version(store, sweep, redis, monkeypatch):
    await redis.delete("sweepbot:entries")
    assert await store.listed() == [summary_of(sweep)]
    monkeypatch.setattr("bot.platform.storage.sweeps.load", None)
    assert await store.listed() == [summary_of(sweep)]


async def test_list_entry_of_a_newer_version_hides_no_other(store, sweep, redis):
    other, _ = await store.create(record_for("lr-calm-finch"), ["lr-calm-finch"], "d2")
    await redis.hset("sweepbot:entries", other.id, '{"id": "lr-calm-finch", "phase": "dreaming"}')
    assert sweep.id in [entry.id for entry in await store.listed()]
    await end(store, other)


async def test_list_entries_expire_two_weeks_after_the_end(store, sweep, redis):
    other, _ = await store.create(record_for("lr-calm-finch"), ["lr-calm-finch"], "d2")
    await end(store, other)
    await redis.zadd("sweepbot:recent", {sweep.id: 1, other.id: 1})
    third, _ = await store.create(record_for("lr-late-yak"), ["lr-late-yak"], "d3")
    assert [entry.id for entry in await store.listed()] == [third.id, sweep.id]
    assert {key.decode() for key in await redis.hkeys("sweepbot:entries")} == {sweep.id, third.id}
    assert 0 < await redis.ttl("sweepbot:entries") <= 14 * DAY
    await end(store, third)


async def test_list_without_changes_is_one_round_trip(store, redis, trips):
    ended = [await store.restore(replace(record_for(f"lr-{n}"), phase=Phase.FAILED)) for n in range(30)]
    await redis.zadd("sweepbot:recent", {f"lr-{n}": 1_000 + 60 * n for n in range(len(ended))})
    before = await store.listed()
    await store.listed()  # loads the script
    await redis.config_resetstat()
    trips.clear()
    assert await store.listed() == before
    assert len(trips) == 1
    assert (await redis.info("commandstats"))["cmdstat_hget"]["calls"] == 1, "of the latest one only"


async def test_list_shows_each_save_and_an_emptied_redis(store, sweep, redis):
    await store.listed()
    running = await store.save(sweep.to(Phase.RUNNING, NOW))
    other, _ = await store.create(record_for("lr-calm-finch"), ["lr-calm-finch"], "d2")
    assert (
        await store.listed()
        == [summary_of(each) for each in sorted((running, other), key=lambda e: e.id)][::-1]
    )
    await end(store, other)
    assert {entry.id: entry.phase for entry in await store.listed()} == {
        sweep.id: Phase.RUNNING,
        other.id: Phase.SUCCEEDED,
    }
    await redis.flushall()
    assert await store.listed() == []
    await store.restore(running)
    assert await store.listed() == [summary_of(running)]


async def test_busy_trial_is_remembered_for_a_day(store, redis):
    await store.add_busy_trial("t1")
    assert [await store.is_busy_trial(name) for name in ("t1", "t2")] == [True, False]
    assert 0 < await redis.ttl("sweepbot:busy:t1") <= 86_400


async def test_records_are_read_in_parts_that_let_others_run(store, redis, monkeypatch):
    monkeypatch.setattr("bot.platform.storage.sweeps.RECORDS_PER_READ", 2)
    names = [f"lr-brave-otter-{number}" for number in range(5)]
    for name in names:
        await store.create(record_for(name), [name], name)
    sizes, make = [], redis.pipeline

    def counted_pipeline(**options):
        pipeline = make(**options)
        execute = pipeline.execute

        async def counted_execute():
            sizes.append(len(pipeline))
            return await execute()

        pipeline.execute = counted_execute
        return pipeline

    monkeypatch.setattr(redis, "pipeline", counted_pipeline)
    found = await store.records(names)
    assert ([each.id for each in found], sizes) == (names, [2, 2, 1])
    for each in found:
        await end(store, each)


async def test_list_that_expired_during_a_long_sweep_expires_again(store, sweep, redis):
    saved = await store.save(sweep)
    await redis.delete("sweepbot:recent", "sweepbot:entries")
    await store.save(saved)
    assert [await redis.ttl(f"sweepbot:{key}") > 0 for key in ("recent", "entries")] == [True, True]
