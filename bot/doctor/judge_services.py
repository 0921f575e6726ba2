"""What the answers of Slack, Redis, MLflow and DNS say about an installation, as findings. Pure."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from bot.core.record import Quarantine
from bot.core.wording import listed
from bot.doctor.findings import Finding, broken, ok, warning
from bot.gpus.promql import GPUS
from k8s.gpus import ENGINE, UTIL

# What the app in deploy/slack asks for.
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
# What GPU use is made of, where Prometheus is asked.
SERIES = {
    "dcgm-exporter": f"count({ENGINE} or {UTIL})",
    "kube-state-metrics": f"count(kube_node_status_allocatable{{{GPUS}}})",
    # Some clusters' own kube-state-metrics, and filters of scrapes, leave these out; nobody is warned then.
    **{
        metric: f"count({metric})"
        for metric in (
            "kube_pod_container_resource_requests",
            "kube_pod_container_state_started",
            "kube_pod_status_phase",
        )
    },
}
# Asked instead of /health, which is always well.
EXPERIMENTS = "/api/2.0/mlflow/experiments/search?max_results=1"


def scopes(header: str) -> Finding:
    """`header`: X-OAuth-Scopes, which Slack sends with every answer."""
    granted = {scope.strip() for scope in header.split(",")}
    if missing := [scope for scope in SCOPES if scope not in granted]:
        fix = f"{APPS}: OAuth & Permissions, add {listed(missing)}, Reinstall to Workspace"
        return broken("Slack scopes", f"the bot token lacks {listed(missing)}", fix)
    return ok("Slack scopes", listed(SCOPES))


def redis_version(info: Mapping[str, Any]) -> Finding:
    valkey = info.get("valkey_version")
    named = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
    numbers = [int(number) for number in re.findall(r"\d+", str(info["redis_version"]))]
    if tuple(numbers[:2]) < OLDEST_REDIS:
        return broken("Redis", f"{named} is too old", "run Redis 6.2 or newer, or Valkey")
    return ok("Redis", named)


def persistence(info: Mapping[str, Any], save: str | None) -> Finding:
    """`info`: INFO persistence; `save`: CONFIG GET save, None when that may not be asked."""
    check, fix = "Redis persistence", "redis-cli CONFIG SET appendonly yes && redis-cli CONFIG REWRITE"
    if "aof_enabled" not in info:
        return warning(check, "unknown: this Redis does not say", fix)
    if not int(info["aof_enabled"]):
        loses = "only its last snapshot" if save else "nothing" if save == "" else "at most a snapshot"
        return broken(check, f"there is no append-only file: a restart keeps {loses}", fix)
    if info.get("aof_last_write_status", "ok") != "ok":
        return broken(
            check, "the append-only file can't be written", "look for a full disk: df -h in its pod"
        )
    return ok(check, "append-only file")


def eviction(info: Mapping[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "not told"))
    if policy == "noeviction":
        return ok("Redis eviction", policy)
    what = f"maxmemory-policy is {policy}: when memory is full, Redis may forget sweeps, leases and the queue"
    fix = "redis-cli CONFIG SET maxmemory-policy noeviction && redis-cli CONFIG REWRITE"
    return warning("Redis eviction", what, fix)


def quarantine(held: Mapping[str, Quarantine]) -> list[Finding]:
    """One finding for each item that the queue gives no more turns."""
    return [
        warning(
            "quarantine",
            f"{item}, since {each.since:%Y-%m-%d %H:%M} UTC: {each.why}",
            f"check the worker's log and memory limit, then: /sweep release {item}",
        )
        for item, each in sorted(held.items())
    ]


def mlflow(url: str, said: str) -> Finding:
    """Since 3.5 it refuses whoever calls it by a name it was not told."""
    fix = f"curl -i '{url}{EXPERIMENTS}'"
    if "Host header" in said:
        fix = f"start it with --allowed-hosts {urlsplit(url).netloc}, and the name that browsers use"
    return broken("MLflow", f"{url}: {said}", fix)


def prometheus(url: str, counts: Mapping[str, int]) -> Finding:
    """`counts`: series, by who exports them."""
    if missing := [name for name, count in counts.items() if not count]:
        fix = f"open {url}/targets: are {listed(missing)} there, and up?"
        return broken("Prometheus", f"has no series of {listed(missing)}: GPU use stays unknown", fix)
    return ok("Prometheus", ", ".join(f"{count} series of {name}" for name, count in counts.items()))


def dns(remove_commands: Mapping[str, int], asked: int) -> list[Finding]:
    """`remove_commands`: how many of `asked` questions for each name were answered."""
    look = "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide; getent hosts {}"
    bad = [
        (broken if count == 0 else warning)(
            "DNS", f"{name} was resolved {count} times of {asked}", look.format(name)
        )
        for name, count in remove_commands.items()
        if count < asked
    ]
    return bad or [
        ok(
            "DNS",
            f"{listed(remove_commands)}, {asked} times each" if remove_commands else "no names to resolve",
        )
    ]
