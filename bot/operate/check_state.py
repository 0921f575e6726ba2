"""Check Redis (version, persistence, eviction), quarantined items, sweeps of a newer Sweepbot, Prometheus
with its series and alerts, and DNS.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from redis.exceptions import RedisError, ResponseError

from bot.core.finding import Finding, broken, ok, warning
from bot.core.record import Quarantine
from bot.core.stored_format import NewerFormatError
from bot.measure.gpus.models import NoGpuDataError
from bot.measure.sources.cpu_use import CPU, RAM
from bot.measure.sources.prometheus import Prometheus
from bot.measure.sources.promql import GPUS, UNNAMED_HOLDERS
from bot.operate.check_services import PROBE_TIMEOUT, Installation, ServiceCheck
from bot.platform.storage.redis_client import connect
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.text.wording import counted, listed
from k8s.nodes.dcgm import ENGINE, UTIL

OLDEST_REDIS = (6, 2)
DNS_LOOKUPS = 5  # of each name: cluster DNS often fails for some queries only
# The series that GPU figures need with PROMETHEUS_URL.
METRIC_QUERIES = {
    "dcgm-exporter": f"count({ENGINE} or {UTIL})",
    "kube-state-metrics": f"count(kube_node_status_allocatable{{{GPUS}}})",
    # Some clusters' kube-state-metrics and scrape filters drop these; idle-GPU warnings then never come.
    **{
        metric: f"count({metric})"
        for metric in (
            "kube_pod_container_resource_requests",
            "kube_pod_container_state_started",
            "kube_pod_status_phase",
        )
    },
}
CLUSTERS = f"count by (cluster) (kube_node_status_allocatable{{{GPUS}}})"  # what a central server has
Resolve = Callable[[str], Awaitable[object]]  # raises OSError for an unknown host name
CPU_USE = "CPU and memory use"
CPU_METRIC_QUERIES = {metric: f'count({metric}{{container!=""}})' for metric in (CPU, RAM)}


async def _redis(target: Installation) -> list[Finding]:
    async with connect(target.settings.redis_url) as redis:
        try:
            info = await redis.info()
        except ResponseError as error:  # some managed services forbid INFO
            await redis.ping()
            return [warning("Redis", f"reachable, but INFO isn't permitted: {error}", "")]
        except RedisError as error:
            return [broken("Redis", f"unreachable: {error}", "kubectl -n sweepbot get pods")]
        try:
            save = (await redis.config_get("save")).get("save")
        except RedisError:
            save = None
    return [redis_version(info), persistence(info, save), eviction(info)]


def redis_version(info: Mapping[str, Any]) -> Finding:
    valkey = info.get("valkey_version")
    named = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
    numbers = [int(number) for number in re.findall(r"\d+", str(info["redis_version"]))]
    if tuple(numbers[:2]) < OLDEST_REDIS:
        return broken("Redis", f"{named} is too old", "run Redis 6.2 or newer, or Valkey")
    if info.get("cluster_enabled"):
        fix = "use a single primary, with Sentinel for failover: docs/operate.md"
        return broken("Redis", f"{named} is part of a cluster", fix)
    return ok("Redis", named)


def persistence(info: Mapping[str, Any], save: str | None) -> Finding:
    """Evaluate whether a restart of Redis keeps its data.

    Args:
        info: the answer to INFO.
        save: the answer to CONFIG GET save; None if that isn't permitted.
    """
    check, fix = "Redis persistence", "redis-cli CONFIG SET appendonly yes && redis-cli CONFIG REWRITE"
    if "aof_enabled" not in info:
        return warning(check, "unknown; INFO has no aof_enabled", fix)
    if not int(info["aof_enabled"]):
        after = {None: " after the last snapshot, if any", "": ""}.get(save, " after the last snapshot")
        return broken(check, f"append-only file is off; a restart loses everything{after}", fix)
    if info.get("aof_last_write_status", "ok") != "ok":
        fix = "run df -h in its pod, and free or add disk space"
        return broken(check, "append-only file can't be written", fix)
    return ok(check, "append-only file")


def eviction(info: Mapping[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return ok("Redis eviction", policy)
    what = f"maxmemory-policy is {policy}; when memory is full, Redis can evict sweeps, leases, and the queue"
    fix = "redis-cli CONFIG SET maxmemory-policy noeviction && redis-cli CONFIG REWRITE"
    return warning("Redis eviction", what, fix)


async def _quarantine(target: Installation) -> list[Finding]:
    quarantined: Mapping[str, Quarantine] = {}
    async with connect(target.settings.redis_url) as redis:
        with suppress(RedisError):  # _redis() reports it
            quarantined = await Queue(redis).quarantined()
    return [
        warning(
            "quarantine",
            f"{item}, since {each.since:%Y-%m-%d %H:%M} UTC: {each.why}",
            f"check the worker's log and memory limit, then: /sweep release {item}",
        )
        for item, each in sorted(quarantined.items())
    ]


async def _newer_sweeps(target: Installation) -> list[Finding]:
    """Return one finding for unfinished sweeps that only a newer Sweepbot can read."""
    found: dict[str, str] = {}
    async with connect(target.settings.redis_url) as redis:
        store = Store(redis)
        with suppress(RedisError):  # _redis() reports it
            for sweep_id in await store.active():
                try:
                    await store.get(sweep_id)
                except NewerFormatError as error:
                    found[sweep_id] = str(error)
    if not found:
        return []
    first, *others = sorted(found)
    more = f"; {len(others)} more like it" if others else ""
    fix = "finish updating all pods or, after a downgrade, deploy the newer image again"
    return [broken("newer sweeps", f"{found[first]}{more}", fix)]


async def _prometheus(target: Installation) -> list[Finding]:
    """Check that Prometheus, if set, has the series that GPU figures need."""
    if not (url := target.settings.prometheus_url):
        return []
    token = target.settings.prometheus_token
    labels = target.settings.prometheus_labels or ""
    client = Prometheus(url, token.get_secret_value() if token else "", labels)
    try:
        now = datetime.now(UTC)
        queries = METRIC_QUERIES | CPU_METRIC_QUERIES
        rows = {name: await client.query(query, now) for name, query in queries.items()}
        unnamed = await client.query(UNNAMED_HOLDERS, now)
        clusters = [row.labels.get("cluster", "") for row in await client.query(CLUSTERS, now)]
        pods = await client.query("count(sweepbot_redis_up)", now)
        alerts = await client.alerts()
    except NoGpuDataError as error:
        return [broken("Prometheus", str(error), f"curl -i {url}/-/ready  # check PROMETHEUS_URL")]
    finally:
        await client.close()
    counts = {name: round(sum(row.value for row in found)) for name, found in rows.items()}
    used = {name: counts.pop(name) for name in CPU_METRIC_QUERIES}
    return [
        prometheus(url, counts, round(sum(row.value for row in unnamed)), clusters, labels),
        cpu_use(url, used),
        monitoring(round(sum(row.value for row in pods)), alerts),
    ]


def prometheus(
    url: str, counts: Mapping[str, int], unnamed: int = 0, clusters: Collection[str] = (), labels: str = ""
) -> Finding:
    """Evaluate how many series Prometheus has, by exporter or metric.

    Args:
        unnamed: running pods with GPUs, if no series of a GPU names one of them.
        clusters: the values of the label `cluster` of nodes with GPUs; "" is none.
        labels: that all series must have.
    """
    if missing := [name for name, count in counts.items() if not count]:
        fix = f"open {url}/targets  # check that {listed(missing)} is scraped and up"
        fix += f", and that its series have {labels}" if labels else ""
        return broken("Prometheus", f"no series from {listed(missing)}; GPU use is unknown", fix)
    if len(clusters) > 1:
        names = listed(sorted(each or "no name" for each in clusters))
        what = (
            f"GPU nodes of {len(clusters)} clusters ({names}); /gpus, warnings, and bills count them as one"
        )
        fix = "PROMETHEUS_LABELS=cluster=NAME  # with the name of this cluster"
        return warning("Prometheus", what, fix)
    if unnamed:
        what = (
            f"{counted(unnamed, 'pod')} with GPUs, none named by dcgm-exporter's series; GPU use is unknown"
        )
        fix = "DCGM_EXPORTER_KUBERNETES=true, and mount /var/lib/kubelet/pod-resources  # for dcgm-exporter"
        return warning("Prometheus", what, fix)
    return ok("Prometheus", ", ".join(f"{count} series from {name}" for name, count in counts.items()))


def cpu_use(url: str, counts: Mapping[str, int]) -> Finding:
    """Evaluate whether trials without GPUs can be measured, by the number of series of each metric."""
    if missing := [name for name, count in counts.items() if not count]:
        what = f"no series of {listed(missing)}; no warnings about CPUs and memory"
        return warning(CPU_USE, what, f"open {url}/targets  # is the kubelets' /metrics/cadvisor scraped?")
    return ok(CPU_USE, ", ".join(f"{count} series of {name}" for name, count in counts.items()))


def monitoring(pods: int, alerts: set[str] | None) -> Finding:
    """Evaluate whether Prometheus watches Sweepbot itself.

    Args:
        pods: that it scrapes.
        alerts: that it has loaded, of everything; None: unknown.
    """
    known = None if alerts is None else sum(name.startswith("Sweepbot") for name in alerts)
    missing = [what for what, there in (("pods", pods), ("alerts", known)) if there == 0]
    if missing:
        note = "with your label; VictoriaMetrics needs -vmalert.proxyURL: docs/operate.md#metrics-and-alerts"
        fix = f"kubectl apply -k deploy/monitoring  # {note}"
        return warning("monitoring", f"Prometheus has none of Sweepbot's {listed(missing)}", fix)
    loaded = f", {counted(known, 'alert')} loaded" if known else ""
    return ok("monitoring", f"Prometheus scrapes {counted(pods, 'pod')}{loaded}")


async def _dns(target: Installation) -> list[Finding]:
    s = target.settings
    urls = [s.slack_api_url, s.redis_url, f"https://{s.registry_api}", f"https://{s.registry_push}"]
    urls += [s.mlflow_tracking_uri, *(r.url for r in target.config.repositories)]
    names = sorted(set[str]().union(*map(hosts_to_resolve, urls)))
    with Resolver() as resolve:
        counts = await asyncio.gather(*(_successes(resolve, name) for name in names))
    return dns(dict(zip(names, counts, strict=True)))


def dns(answers: Mapping[str, int]) -> list[Finding]:
    """Evaluate how many of DNS_LOOKUPS of each name succeeded."""
    look = "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide; getent hosts {}"
    bad = [
        (warning if count else broken)(
            "DNS", f"{name} resolved {count} of {DNS_LOOKUPS} times", look.format(name)
        )
        for name, count in answers.items()
        if count < DNS_LOOKUPS
    ]
    passed = f"{listed(answers)}, {DNS_LOOKUPS} times each" if answers else "no host names in the settings"
    return bad or [ok("DNS", passed)]


def hosts_to_resolve(url: str) -> set[str]:
    """Return the host names of a URL, several of Sentinels; no IP address, and none that a proxy resolves."""
    parts = urlsplit(url)
    addresses = parts.netloc.rpartition("@")[2].split(",")
    names = {urlsplit(f"//{each}").hostname or "" for each in addresses}
    by_proxy = {name for name in names if parts.scheme in getproxies() and not proxy_bypass(name)}
    return {name for name in names - by_proxy if name and not _is_ip_address(name)}


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _successes(resolve: Resolve, name: str) -> int:
    async def once() -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await resolve(name)
        except OSError:  # TimeoutError is one
            return False
        return True

    return sum(await asyncio.gather(*(once() for _ in range(DNS_LOOKUPS))))


class Resolver:
    """Resolve names with the system's resolver, in threads: a silent server must not delay other names."""

    def __enter__(self) -> Resolve:
        self._threads = ThreadPoolExecutor(max_workers=64)
        loop = asyncio.get_running_loop()
        return lambda name: loop.run_in_executor(self._threads, socket.getaddrinfo, name, None)

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


STATE: dict[str, ServiceCheck] = {"Redis": _redis, "quarantine": _quarantine, "newer sweeps": _newer_sweeps}
AROUND: dict[str, ServiceCheck] = {"Prometheus": _prometheus, "DNS": _dns}
