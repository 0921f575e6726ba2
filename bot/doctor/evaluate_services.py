"""Turn answers of Slack, Redis, MLflow, Prometheus, and DNS into findings. Pure."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from bot.core.record import Quarantine
from bot.doctor.findings import Finding, broken, ok, warning
from bot.gpus.promql import GPUS
from bot.text.wording import listed
from k8s.nodes.dcgm import ENGINE, UTIL

# The scopes in deploy/slack/manifest-*.yaml.
SCOPES = (
    "app_mentions:read",
    "chat:write",
    "commands",
    "files:write",
    "im:write",
    "users:read",
    "users:read.email",
)
OLDEST_REDIS = (6, 2)
APPS = "at https://api.slack.com/apps, your app"
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
# Queried instead of /health, which answers 200 even if the Host header is rejected.
EXPERIMENTS = "/api/2.0/mlflow/experiments/search?max_results=1"


def scopes(header: str) -> Finding:
    """Evaluate the bot token's scopes.

    Args:
        header: X-OAuth-Scopes, which Slack sends with every answer.
    """
    granted = {scope.strip() for scope in header.split(",")}
    if missing := [scope for scope in SCOPES if scope not in granted]:
        fix = f"{APPS}: OAuth & Permissions, add {listed(missing)}, Reinstall to Workspace"
        return broken("Slack scopes", f"bot token is missing {listed(missing)}", fix)
    return ok("Slack scopes", listed(SCOPES))


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
        after = (
            " after the last snapshot" if save else "" if save == "" else " after the last snapshot, if any"
        )
        return broken(check, f"append-only file is off; a restart loses everything{after}", fix)
    if info.get("aof_last_write_status", "ok") != "ok":
        return broken(
            check, "append-only file can't be written", "run df -h in its pod, and free or add disk space"
        )
    return ok(check, "append-only file")


def eviction(info: Mapping[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return ok("Redis eviction", policy)
    what = f"maxmemory-policy is {policy}; when memory is full, Redis can evict sweeps, leases, and the queue"
    fix = "redis-cli CONFIG SET maxmemory-policy noeviction && redis-cli CONFIG REWRITE"
    return warning("Redis eviction", what, fix)


def quarantine(quarantined: Mapping[str, Quarantine]) -> list[Finding]:
    """Return one finding for each quarantined item of the queue."""
    return [
        warning(
            "quarantine",
            f"{item}, since {each.since:%Y-%m-%d %H:%M} UTC: {each.why}",
            f"check the worker's log and memory limit, then: /sweep release {item}",
        )
        for item, each in sorted(quarantined.items())
    ]


def newer_sweeps(found: Mapping[str, str]) -> list[Finding]:
    """Return one finding for unfinished sweeps that only a newer Sweepbot can read.

    Args:
        found: the errors by sweep.
    """
    if not found:
        return []
    first, *others = sorted(found)
    more = f"; {len(others)} more like it" if others else ""
    fix = "finish the update of all pods, or after a downgrade deploy the newer image again"
    return [broken("newer sweeps", f"{found[first]}{more}", fix)]


def mlflow(url: str, error: str) -> Finding:
    """Report a failed request. MLflow 3.5 and newer reject Host headers missing from --allowed-hosts."""
    fix = f"curl -i '{url}{EXPERIMENTS}'"
    if "Host header" in error:
        fix = f"start MLflow with --allowed-hosts {urlsplit(url).netloc}, and the host that browsers use"
    return broken("MLflow", f"{url}: {error}", fix)


def prometheus(url: str, counts: Mapping[str, int]) -> Finding:
    """Evaluate whether Prometheus has the series that GPU figures need.

    Args:
        counts: number of series by exporter or metric.
    """
    if missing := [name for name, count in counts.items() if not count]:
        fix = f"open {url}/targets  # check that {listed(missing)} is scraped and up"
        return broken("Prometheus", f"no series from {listed(missing)}; GPU use is unknown", fix)
    return ok("Prometheus", ", ".join(f"{count} series from {name}" for name, count in counts.items()))


def dns(answers: Mapping[str, int], asked: int) -> list[Finding]:
    """Evaluate name resolution.

    Args:
        answers: how many of `asked` lookups of each name succeeded.
    """
    look = "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide; getent hosts {}"
    bad = [
        (broken if count == 0 else warning)(
            "DNS", f"{name} resolved {count} of {asked} times", look.format(name)
        )
        for name, count in answers.items()
        if count < asked
    ]
    return bad or [
        ok(
            "DNS",
            f"{listed(answers)}, {asked} times each" if answers else "no host names in the settings",
        )
    ]
