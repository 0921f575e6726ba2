"""Every released version's Redis and ConfigMaps are read by this one."""

from datetime import timedelta

import pytest

from bot.channels.models import read as read_setup
from bot.channels.store import SETUP_KEY, SetupReader
from bot.config.live_policy import LivePolicy
from bot.core.record import Phase, dump, load
from bot.core.work_item import ItemKind
from bot.digests.latest import latest_digest
from bot.form.drafts import Drafts
from bot.gpus.hourly_store import HourlyStore
from bot.idle import snoozes
from bot.results.store import ResultsStore
from bot.storage import sweep_configmap
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue
from tests.bot.factories import CONFIG, NOW, OWNER
from tests.releases.state import (
    DRAIN,
    ENDED,
    QUARANTINED,
    RECEIVED,
    RUNNING,
    load_configmaps,
    load_redis,
    releases,
    version,
)
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep, kubernetes

RELEASES = releases()


@pytest.fixture(params=RELEASES)
async def release(request, redis):
    await load_redis(request.param, redis)
    return request.param


@pytest.fixture
def cluster(release):
    """Holds the release's ConfigMaps."""
    store = kubernetes.Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    for each in load_configmaps(release):
        store.create(each)
    return DirectCluster(store)


def test_state_of_this_version_is_kept():
    assert version() in RELEASES


async def test_records_are_read_and_saved_again(release, redis):
    store = Store(redis)
    sweeps = {each.id: each for each in await store.records([RUNNING, RECEIVED, ENDED, QUARANTINED])}
    phases = {each.id: each.phase for each in sweeps.values()}
    assert phases == {
        RUNNING: Phase.RUNNING,
        RECEIVED: Phase.RECEIVED,
        ENDED: Phase.SUCCEEDED,
        QUARANTINED: Phase.BUILDING,
    }
    running = sweeps[RUNNING]
    assert (running.progress.best.value, running.plan.space.max_trials) == (0.25, 4)
    assert load(dump(running)) == running
    assert (await store.save(running)).version == running.version + 1
    assert {each.id for each in await store.listed()} == sweeps.keys()
    assert await store.commands(RUNNING) == [DRAIN]


async def test_queue_is_worked_off(release, redis):
    queue = Queue(redis)
    assert await queue.quarantined()
    found = []
    while lease := await queue.get(wait=0):
        found.append((lease.item.kind, lease.item.key, bool(lease.quarantined)))
        await queue.done(lease)
    assert set(found) == {
        (ItemKind.SWEEP, RUNNING, False),
        (ItemKind.SWEEP, RECEIVED, False),
        (ItemKind.SETUP, "now", False),
    }
    assert await redis.zrange("sweepbot:queue:delayed", 0, -1)


async def test_configmaps_are_read(release, cluster, redis):
    maps = {each["metadata"]["name"]: each for each in cluster.store.list("ConfigMap", "sweeps")}
    records = {name: sweep_configmap.read(each) for name, each in maps.items() if name.startswith("sweep-")}
    assert {each.id for each in records.values()} == {RUNNING, ENDED, QUARANTINED}
    results = await ResultsStore(cluster, "sweeps").get(ENDED)
    assert results.trials[0].value == 0.5
    assert snoozes.read(maps["sweepbot-keeps"])["gpus/pod"].name == "ada"
    setup = read_setup(maps["sweepbot-setup"]["data"])
    assert (setup.channels["C1"].hour, setup.people[OWNER].team) == (9, "vision")


async def test_other_state_is_read(release, redis):
    assert (await latest_digest(redis, "C1")).headline == "8 GPUs"
    assert (await Drafts(redis).last(OWNER)).options["branch"] == "main"
    [hour] = await HourlyStore(redis).between(NOW, NOW + timedelta(hours=1))
    assert hour.uses[0].sweep == ENDED
    reader = SetupReader(redis, Queue(redis), LivePolicy(CONFIG))
    await reader.refresh()
    assert (reader.loaded, await redis.exists(SETUP_KEY)) == (True, 1)


async def test_sweep_received_by_a_release_is_finished_by_this_version(release, redis):
    stored = await redis.hgetall(f"sweepbot:sweep:{RECEIVED}")
    await redis.flushall()
    simulation = SimulatedSweep(redis, Clock(None))
    record = load(stored[b"record"].replace(RECEIVED.encode(), SWEEP.encode()))
    async with simulation.started():
        await redis.flushall()
        await simulation.store.restore(record)
        while not (await simulation.record()).phase.final:
            await simulation.round()
    assert simulation.last.phase is Phase.SUCCEEDED
