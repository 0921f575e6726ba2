"""Each alert fires on the metrics of a Sweepbot with the fault that the alert names.

Every world here is the product's own code on something that doesn't work; promtool evaluates the rules on
the values that it then reports, for 40 simulated minutes.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.events import Event
from bot.core.metrics import LEADER, REGISTRY
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.measure.gpus.models import HOUR, HourCapacity, NoGpuDataError
from bot.platform.config.live_policy import LivePolicy
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.client import Registry
from bot.platform.storage.leader import lead
from bot.platform.storage.queue_state import Figures
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import MAX_STARTS, Queue
from bot.sweep.sweeps.informer import SweepInformer
from bot.sweep.sweeps.unconfirmed import UnconfirmedRequests
from k8s.api.cache import Caches
from k8s.api.errors import UnreachableError
from tests.bot.factories import CONFIG, SETTINGS, a_sweep
from tests.bot.measure.sources.test_collector import NOON, collecting
from tests.deploy.test_monitoring import HEALTHY, RULES, firing, needs_prometheus, promtool

Series = dict[str, str]
ITEM = WorkItem.sweep("lr-brave-otter")


def sample(name: str, **labels: str) -> float:
    value = REGISTRY.get_sample_value(name, labels)
    assert value is not None, f"{name} {labels} isn't reported"
    return value


def constant(name: str, value: float) -> Series:
    return {name: f"{value}x60"}


async def redis_is_down(_: Redis, __: Path) -> Series:
    with suppress(RedisError):
        await Figures(Redis.from_url("redis://127.0.0.1:1")).refresh()
    return constant("sweepbot_redis_up", sample("sweepbot_redis_up"))


async def no_worker_takes_work(redis: Redis, _: Path) -> Series:
    queue = Queue(redis)
    await queue.add(ITEM)
    seconds, _ = await redis.time()
    await redis.zadd(f"{queue.prefix}:ready", {str(ITEM): (seconds - 300) * 1000})  # five minutes pass
    await Figures(redis).refresh()
    return constant("sweepbot_queue_oldest_ready_seconds", sample("sweepbot_queue_oldest_ready_seconds"))


class DownAfterList:
    """An API server that answers a list, and then nothing."""

    def __init__(self) -> None:
        self.watches, self.down = 0, asyncio.Event()

    async def pages(self, *_: Any, **__: Any) -> Any:
        if self.watches:
            self.down.set()
            raise UnreachableError("no route to host")
        yield [], "1"

    async def watch(self, *_: Any, **__: Any) -> Any:
        self.watches += 1
        if self.watches > 1:
            self.down.set()
        raise UnreachableError("no route to host")
        yield

    async def is_ready(self) -> bool:
        self.down.set()
        return False


async def api_server_is_down(redis: Redis, _: Path) -> Series:
    cluster = DownAfterList()
    clients: Any = type("Some", (), {})()
    clients.cluster, clients.settings, clients.config, clients.caches = cluster, SETTINGS, CONFIG, Caches()
    informer = SweepInformer(redis, clients)
    cache = next(cache for cache in clients.caches if (cache.kind, cache.namespace) == ("Pod", "sweeps"))
    following = asyncio.create_task(informer._follow(cache))
    async with asyncio.timeout(60):
        await cluster.down.wait()
    following.cancel()
    await asyncio.wait([following])
    answered = sample("sweepbot_watch_last_response_timestamp_seconds", kind="Pod", namespace="sweeps")
    name = 'sweepbot_watch_last_response_timestamp_seconds{kind="Pod", namespace="sweeps"}'
    return constant(name, round(answered - time()))  # promtool's time starts at 0


async def registry_is_down(_: Redis, __: Path) -> Series:
    labels = {"service": "registry", "result": "error"}
    registry, before = Registry("127.0.0.1:1", insecure=True), 0.0
    for call in range(30):
        with suppress(RegistryError):
            await registry.digest("lab/x", "1")
        before = before if call else sample("sweepbot_calls_total", **labels)
    await registry.close()
    rate = sample("sweepbot_calls_total", **labels) - before
    return {'sweepbot_calls_total{service="registry", result="error"}': f"0+{rate}x60"}


async def slack_takes_no_messages(redis: Redis, _: Path) -> Series:
    waiting = (Event(kind="restored"),) * 60
    await Store(redis).restore(replace(a_sweep(Phase.RUNNING), outbox=waiting))
    await Figures(redis).refresh()
    return constant("sweepbot_messages_waiting", sample("sweepbot_messages_waiting"))


async def sweep_hits_a_bug(redis: Redis, _: Path) -> Series:
    queue = Queue(redis)
    for _ in range(MAX_STARTS + 1):
        await queue.add(ITEM)
        lease = await queue.get(wait=0)
        assert lease
        await queue.fail(lease, permanent="KeyError")
    await Figures(redis).refresh()
    value = sample("sweepbot_queue_items", state="quarantined")
    return constant('sweepbot_queue_items{state="quarantined"}', value)


async def configuration_is_broken(_: Redis, folder: Path) -> Series:
    (file := folder / "config.yaml").write_text("repositories: {x: {url: https://git.example/x.git}}\n")
    policy = LivePolicy.read(file)
    file.write_text("repositories: 5\n")
    await policy.refresh()
    await policy.refresh()
    name = "sweepbot_config_last_reload_successful"
    return constant(name, sample(name))


async def disk_cannot_be_written(redis: Redis, folder: Path) -> Series:
    (folder / "file").touch()
    queue = Queue(redis)
    unconfirmed = UnconfirmedRequests(Store(redis), queue, lambda: NOON, folder / "file")
    await unconfirmed.add_sweep(a_sweep())
    return constant("sweepbot_unconfirmed_unsaved", sample("sweepbot_unconfirmed_unsaved"))


async def lease_cannot_be_acquired(_: Redis, __: Path) -> Series:
    LEADER.labels("sweepbot:resync").set(1)  # until now this process had it
    waiting = asyncio.create_task(
        lead(Redis.from_url("redis://127.0.0.1:1"), "sweepbot:resync", 15, asyncio.Event().wait)  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    value = sample("sweepbot_leader", lease="sweepbot:resync")
    waiting.cancel()
    await asyncio.wait([waiting])
    return constant('sweepbot_leader{lease="sweepbot:resync"}', value)


class FailingSource:
    """Prometheus that has lost the GPU exporter since `until`."""

    def __init__(self, until: datetime) -> None:
        self.until = until

    async def hour(self, start: datetime) -> Any:
        if start >= self.until:
            raise NoGpuDataError("no series from dcgm-exporter")
        given = {"capacity": 8, "allocated": 8, "unhealthy": 0, "coverage": 1.0}
        return (), HourCapacity(hour=start, observed=8.0, **given)


async def exporter_is_gone(redis: Redis, _: Path) -> Series:
    now = NOON + timedelta(minutes=10)
    await collecting(redis, FailingSource(now), now - 5 * HOUR, prometheus_url="http://p").write_hours()
    broken = collecting(redis, FailingSource(now - 5 * HOUR), now, prometheus_url="http://p")
    with suppress(NoGpuDataError):
        await broken.write_hours()
    latest = sample("sweepbot_gpu_figures_timestamp_seconds", figures="hours")
    age = now.astimezone(UTC).timestamp() - latest
    return constant('sweepbot_gpu_figures_timestamp_seconds{figures="hours"}', -age)


async def all_pods_are_down(_: Redis, __: Path) -> Series:
    return {}


WORLDS = {
    "SweepbotAbsent": all_pods_are_down,
    "SweepbotRedisDown": redis_is_down,
    "SweepbotQueueStuck": no_worker_takes_work,
    "SweepbotWatchSilent": api_server_is_down,
    "SweepbotCallsFail": registry_is_down,
    "SweepbotMessagesWaiting": slack_takes_no_messages,
    "SweepbotQuarantine": sweep_hits_a_bug,
    "SweepbotConfigRejected": configuration_is_broken,
    "SweepbotUnconfirmedUnsaved": disk_cannot_be_written,
    "SweepbotNoLeader": lease_cannot_be_acquired,
    "SweepbotGpuFiguresOld": exporter_is_gone,
}


def test_each_alert_has_a_broken_world() -> None:
    assert set(WORLDS) == {rule["alert"] for rule in RULES["groups"][0]["rules"]}


@needs_prometheus
@pytest.mark.parametrize("alert", WORLDS)
async def test_alert_fires_in_a_world_that_is_broken_so(alert: str, redis: Redis, tmp_path: Path) -> None:
    broken = await WORLDS[alert](redis, tmp_path)
    series = HEALTHY | broken if broken else {}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": firing(tmp_path, series, alert, 40),
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests))
    promtool(tmp_path, "test", "rules", "test.yaml")
