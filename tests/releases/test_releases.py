"""Every released version's Redis and ConfigMaps are read by this one."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from bot.core.record import Phase, dump, load
from bot.core.work_item import ItemKind
from bot.measure.gpus.hourly_store import HourlyStore
from bot.platform.clusters.connections import Identities
from bot.platform.config.live_policy import LivePolicy
from bot.platform.registry.images import ImageRef
from bot.platform.storage import sweep_configmap
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.builds import provenance
from bot.sweep.channels.models import read as read_setup
from bot.sweep.channels.store import SETUP_KEY, SetupReader
from bot.sweep.form.drafts import Drafts
from bot.sweep.results.store import ResultsStore
from bot.watch.digests.latest import latest_digest
from bot.watch.digests.post import Digests
from bot.watch.idle.alerts import Snooze
from bot.watch.idle.store import SnoozeStore
from tests.bot.factories import CONFIG, NOW, OWNER, SETTINGS
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
from tests.scenarios.fakes import DirectCluster, FakeRegistry
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
    clients = SimpleNamespace(cluster=cluster, settings=SETTINGS)
    assert (await SnoozeStore(clients).all())["gpus/pod"].name == "ada"
    setup = read_setup(maps["sweepbot-setup"]["data"])
    assert (setup.channels["C1"].hour, setup.people[OWNER].team) == (9, "vision")


STORED = {
    "image.sweepbot.digits.abc": {"image": "sweepbot/digits:abc", "digest": f"sha256:{'d' * 64}"},
    "sweepbot-clusters": {"west": "0f1c"},
    "sweepbot-digests": {
        "C1": '{"day":"2026-11-21","tries":1,"ts":"1.5","chart":"F1","details":true,"chart_attempts":0,'
        '"week":false,"done":true,"missed":["2026-11-20"]}',
        "C2": "damaged",
    },
    "sweepbot-keeps": {
        "keeps": '{"sweeps/a":{"until":"2026-11-22T12:00:00Z","by":"U1","name":"ada"},"sweeps/b":{"until":1}}'
    },
}


def clients_with(stored):
    """Clients of a cluster with these ConfigMaps."""
    store = kubernetes.Store()
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    for name, data in stored.items():
        meta = {"name": name, "namespace": "sweeps"}
        store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    cluster, registry = DirectCluster(store), FakeRegistry()
    return SimpleNamespace(cluster=cluster, settings=SETTINGS, registry=registry, now=lambda: NOW)


async def test_small_records_of_earlier_versions_are_read_and_a_damaged_one_stops_only_itself():
    """As 0.1.0 and its successors stored them: what is added to a record has a default."""
    clients = clients_with(STORED)
    cluster, registry = clients.cluster, clients.registry
    registry.pushed.add(f"sweepbot/digits@sha256:{'d' * 64}")
    assert await provenance.recorded(ImageRef("sweepbot/digits", "abc"), clients) == f"sha256:{'d' * 64}"
    assert await Identities(cluster, "sweeps").known("west", "another") == "0f1c"

    digests = Digests(clients, None, None, None, None)
    assert await digests.run("C1 2026-11-20") is None, "a later one is stored"
    with pytest.raises(ValueError, match="Invalid JSON"):
        await digests.run("C2 2026-11-21")

    day = NOW + timedelta(days=1)
    assert await SnoozeStore(clients).all() == {"sweeps/a": Snooze(until=day, by="U1", name="ada")}


async def test_other_state_is_read(release, redis):
    assert (await latest_digest(redis, "C1")).headline == "8 GPUs"
    assert (await Drafts(redis).last(OWNER)).options["branch"] == "main"
    [hour] = await HourlyStore(redis).between(NOW, NOW + timedelta(hours=1))
    assert hour.columns.sweep[0] == ENDED
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
