"""Write what this version stores in Redis and in ConfigMaps, for the tests of later versions.

`python -m tests.releases.state` writes tests/releases/<version>/, which stays as it is once that version is
released. Texts are stored as they are, other bytes in base64.
"""

import asyncio
import json
import tomllib
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from redis.asyncio import Redis

from bot.core.commands import Action, Command
from bot.core.events import Event, Progress, Result
from bot.core.record import Phase
from bot.core.work_item import DOCTOR, ItemKind, WorkItem
from bot.measure.gpus.hourly_store import HourlyStore
from bot.platform.registry.images import ImageRef
from bot.platform.storage import sweep_configmap
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import MAX_STARTS, Queue
from bot.sweep.builds import provenance
from bot.sweep.channels.models import ChannelSetup, Person, entry
from bot.sweep.channels.store import CONFIGMAP_NAME, REQUESTS, SETUP_KEY, SetupRequest
from bot.sweep.channels.store import dump as dump_setup
from bot.sweep.form.drafts import last_launch
from bot.sweep.results.store import ResultsStore
from bot.watch.digests.latest import LatestDigest, save_latest
from bot.watch.idle.alerts import Snooze
from bot.watch.idle.store import SnoozeStore
from local.kubernetes.apiserver import store as kubernetes
from local.redis import redis as server
from tests.bot.factories import NOW, OWNER, PLAN, REQUEST, SETTINGS, a_sweep
from tests.bot.measure.gpus.factories import hour, use
from tests.bot.sweep.results.factories import a_result, some_results
from tests.scenarios.fakes import DirectCluster

FOLDER = Path(__file__).parent
RUNNING, RECEIVED, ENDED, QUARANTINED = "lr-brave-otter", "lr-calm-finch", "lr-epic-eel", "lr-bold-bee"
RECENT = "sweepbot:recent"
CENTURY = 100 * 365 * 24 * 3600  # seconds: still delayed when later versions read it
DRAIN = Command(action=Action.DRAIN, user=OWNER, user_name="ada")
IMAGE = ImageRef(PLAN.image_repository, PLAN.image_tag)


def version() -> str:
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def releases() -> list[str]:
    return sorted(each.name for each in FOLDER.iterdir() if each.is_dir() and (each / "redis.json").exists())


async def load_redis(release: str, redis: Redis) -> None:
    """Fill an empty Redis with what this release left there a moment ago, without expiry times."""
    now, _ = await redis.time()
    for key, value in json.loads((FOLDER / release / "redis.json").read_text()).items():
        match value:
            case {"hash": fields}:
                await redis.hset(key, mapping={name: _bytes(each) for name, each in fields.items()})
            case {"zset": members}:
                if key == RECENT:  # times in seconds; what is older than 14 days is forgotten
                    last = max(members.values())
                    members = {sweep: at - last + now for sweep, at in members.items()}
                await redis.zadd(key, members)
            case {"set": members}:
                await redis.sadd(key, *members)
            case {"list": parts}:
                await redis.rpush(key, *map(_bytes, parts))
            case {"string": text}:
                await redis.set(key, _bytes(text))


def load_configmaps(release: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / release / "configmaps.json").read_text())
    return found


async def store_everything(redis: Redis, clients: Any) -> None:
    """Store one of everything that outlives a process."""
    store, queue, cluster = Store(redis), Queue(redis), clients.cluster
    best = Result(trial=f"{RUNNING}-t1", value=0.25, parameters={"lr": "0.1"})
    progress = Progress(waiting=1, running=2, succeeded=1, best=best)
    waits = Event(kind="restored")
    running = a_sweep(Phase.RUNNING, submitted=True, progress=progress, outbox=(waits,), version=7)
    for sweep in (
        replace(running, durable_phase=Phase.RUNNING),
        replace(running, id=QUARANTINED, request_id="trigger-3", phase=Phase.BUILDING, quarantined=True),
        replace(running, id=ENDED, request_id="trigger-4", phase=Phase.SUCCEEDED, outbox=(), submitted=True),
    ):
        await store.restore(sweep)
        await cluster.create(sweep_configmap.config_map(sweep))
    received = a_sweep(id=RECEIVED, request_id="trigger-2")
    launch = last_launch(OWNER, REQUEST, "C1")
    await store.create(received, [RECEIVED], "trigger-2", queue=queue, beside=launch)
    await store.add_command(RUNNING, DRAIN, queue=queue)
    await _fill_queue(queue)
    await ResultsStore(cluster, "sweeps").save(some_results(a_result(), sweep=ENDED, request_id="trigger-4"))
    await provenance.record(IMAGE, f"sha256:{'d' * 64}", clients)
    await SnoozeStore(clients).save({"gpus/pod": _snooze()}, NOW)
    setup = {"C1": entry(ChannelSetup(repo="digits", hour=9)), OWNER: entry(Person(team="vision"))}
    meta = {"name": CONFIGMAP_NAME, "namespace": "sweeps"}
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": setup})
    await redis.set(SETUP_KEY, json.dumps(setup))
    request = SetupRequest(user=OWNER, channel="C2", settings=ChannelSetup(repo="digits"))
    await store.add_request(str(REQUESTS), dump_setup(request), queue=queue)
    await save_latest(redis, "C1", LatestDigest(day=NOW.date(), headline="8 GPUs", link="https://x"))
    measured = hour(NOW, use(NOW, "pod-1", 2, 1, sweep=ENDED))
    await HourlyStore(redis).save(measured.columns.rows(), measured.capacity)


def _snooze() -> Snooze:
    return Snooze(until=NOW + timedelta(days=1), by=OWNER, name="ada")


async def _fill_queue(queue: Queue) -> None:
    """Items that are ready, delayed, and quarantined."""
    poisoned = WorkItem.sweep(QUARANTINED)
    for run in range(MAX_STARTS + 1):  # the last one reports the quarantine
        await queue.add(poisoned)
        while (lease := await queue.get(wait=0)) and lease.item != poisoned:
            await queue.done(lease)
        assert lease
        await (queue.fail(lease, permanent="ValueError: a bug") if run < MAX_STARTS else queue.done(lease))
    await queue.add_after(DOCTOR, CENTURY)
    for item in (WorkItem.sweep(RUNNING), WorkItem.sweep(RECEIVED), WorkItem(ItemKind.SETUP, "now")):
        await queue.add(item)


async def _written(redis: Redis) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in sorted([each.decode() async for each in redis.scan_iter()]):
        kind = (await redis.type(key)).decode()
        value: Any
        if kind == "hash":
            value = {name.decode(): _text(each) for name, each in (await redis.hgetall(key)).items()}
        elif kind == "zset":
            value = {name.decode(): score for name, score in await redis.zrange(key, 0, -1, withscores=True)}
        elif kind == "set":
            value = sorted(each.decode() for each in await redis.smembers(key))
        elif kind == "list":
            value = [_text(each) for each in await redis.lrange(key, 0, -1)]
        else:
            value = _text(await redis.get(key))
        found[key] = {kind: value}
    return found


def _text(value: bytes) -> str | list[str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return [b64encode(value).decode()]


def _bytes(value: str | list[str]) -> bytes:
    return value.encode() if isinstance(value, str) else b64decode(value[0])


async def _write() -> None:
    cluster = kubernetes.Store()
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    clients = SimpleNamespace(cluster=DirectCluster(cluster), settings=SETTINGS)
    target = FOLDER / version()
    target.mkdir(exist_ok=True)
    with server() as url:
        async with Redis.from_url(url) as redis:
            await store_everything(redis, clients)
            _dump(target / "redis.json", await _written(redis))
    maps = cluster.list("ConfigMap", "sweeps")
    kept = ("name", "namespace", "labels")
    for each in maps:
        each["metadata"] = {key: each["metadata"][key] for key in kept if key in each["metadata"]}
    _dump(target / "configmaps.json", maps)
    print(f"wrote {target}")


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    asyncio.run(_write())
