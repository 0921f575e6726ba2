"""Probe Slack, Redis, the registry, git, MLflow, Prometheus, and DNS."""

import asyncio
import ipaddress
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from redis.exceptions import RedisError, ResponseError
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.config.policy import Config
from bot.config.settings import Settings
from bot.core.errors import UserError
from bot.core.stored_format import NewerFormatError
from bot.doctor import evaluate_services as evaluate
from bot.doctor.findings import Finding, broken, ok, warning
from bot.gpus.models import NoGpuDataError
from bot.gpus.prometheus import Prometheus
from bot.registry.client import Registry, RegistryError
from bot.repos.git import Git, GitUnavailableError, logins
from bot.slack.client import error_code
from bot.storage.redis_client import connect
from bot.storage.sweeps import Store
from bot.storage.work_queue import Queue

DNS_LOOKUPS = 5  # of each name: cluster DNS often fails for some queries only
PROBE_TIMEOUT = 5.0  # seconds for one request

Resolve = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Installation:
    settings: Settings
    config: Config
    resolve: Resolve


async def _slack_token(target: Installation) -> list[Finding]:
    try:
        answer = await _call(target, target.settings.slack_bot_token.get_secret_value(), "auth.test")
    except SlackApiError as error:
        fix = f"{evaluate.APPS}: OAuth & Permissions; put the bot token into SLACK_BOT_TOKEN"
        return [broken("Slack token", error_code(error), fix)]
    except (aiohttp.ClientError, OSError) as error:
        url = target.settings.slack_api_url
        return [broken("Slack token", f"unreachable: {error}", f"curl -i {url}/api.test")]
    headers = {key.lower(): value for key, value in answer.headers.items()}
    identity = ok("Slack token", f"{answer['user']} in {answer['team']}")
    return [identity, evaluate.scopes(headers.get("x-oauth-scopes", ""))]


async def _slack_secret(target: Installation) -> list[Finding]:
    """Open a socket with Socket Mode's token. A signing secret can only be checked for presence."""
    check = "Slack signing secret" if target.settings.slack_mode == "http" else "Slack app token"
    fix = f"{evaluate.APPS}: Basic Information, App-Level Tokens, one with connections:write"
    try:
        secret = target.settings.slack_secret()
        if target.settings.slack_mode == "socket":
            await _call(target, secret, "apps.connections.open")
    except UserError as error:
        return [broken(check, str(error), f"{evaluate.APPS}: Basic Information")]
    except SlackApiError as error:
        return [broken(check, error_code(error), f"{fix}; put it into SLACK_APP_TOKEN")]
    except (aiohttp.ClientError, OSError):
        return []  # _slack_token() reports it
    return [ok(check, "set" if target.settings.slack_mode == "http" else "opens Socket Mode")]


async def _call(target: Installation, token: str, method: str) -> AsyncSlackResponse:
    return await AsyncWebClient(token=token, base_url=f"{target.settings.slack_api_url}/").api_call(method)


async def _redis(target: Installation) -> list[Finding]:
    async with connect(target.settings.redis_url) as redis:
        try:
            info = await redis.info()
        except ResponseError as error:  # some managed services forbid INFO
            await redis.ping()
            return [warning("Redis", f"reachable, but INFO is not permitted: {error}", "")]
        except RedisError as error:
            return [broken("Redis", f"unreachable: {error}", "kubectl -n sweepbot get pods")]
        try:
            save = (await redis.config_get("save")).get("save")
        except RedisError:
            save = None
    return [evaluate.redis_version(info), evaluate.persistence(info, save), evaluate.eviction(info)]


async def _quarantine(target: Installation) -> list[Finding]:
    async with connect(target.settings.redis_url) as redis:
        try:
            return evaluate.quarantine(await Queue(redis).quarantined())
        except RedisError:
            return []  # _redis() reports it


async def _newer_sweeps(target: Installation) -> list[Finding]:
    found: dict[str, str] = {}
    async with connect(target.settings.redis_url) as redis:
        store = Store(redis)
        with suppress(RedisError):  # _redis() reports it
            for sweep_id in await store.active():
                try:
                    await store.get(sweep_id)
                except NewerFormatError as error:
                    found[sweep_id] = str(error)
    return evaluate.newer_sweeps(found)


async def _registry(target: Installation) -> list[Finding]:
    host, plain = target.settings.registry_api, target.settings.image_registry_plain_http
    setting = "IMAGE_REGISTRY_API" if target.settings.image_registry_api else "IMAGE_REGISTRY"
    named = f"{host} ({setting}, used by the bot)"
    schemes = ("http", "https") if plain else ("https", "http")
    first, second = [await _registry_error(f"{scheme}://{host}") for scheme in schemes]
    if first and second:
        return [broken("registry", f"{named} unreachable: {first}", f"curl -v {schemes[0]}://{host}/v2/")]
    if first:
        fix = f"set IMAGE_REGISTRY_PLAIN_HTTP={'false' if plain else 'true'}"
        return [broken("registry", f"{named} serves {schemes[1]}, not {schemes[0]}", fix)]
    registry = Registry(host, insecure=plain, credentials=target.settings.own_login())
    try:
        await registry.digest("sweepbot/doctor", "none")
    except RegistryError as error:
        return [
            broken(
                "registry",
                str(error),
                "add credentials to the file in REGISTRY_AUTH_FILE, or allow anonymous reads",
            )
        ]
    finally:
        await registry.close()
    return [ok("registry", f"{named} reachable over {schemes[0]}")]


async def _registry_error(url: str) -> str:
    """Return why the registry is unreachable; empty if it answers. 401 is fine: it may hand out tokens."""
    try:
        async with _web() as web, web.get(f"{url}/v2/") as answer:
            return "" if answer.status in {200, 401} else f"{answer.status} {answer.reason}"
    except (aiohttp.ClientError, OSError) as error:
        return str(error) or f"no answer within {PROBE_TIMEOUT:.0f} s"


async def _git(target: Installation) -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        git = Git(Path(folder), logins(target.config, os.environ), timeout=2 * PROBE_TIMEOUT)
        repositories = target.config.repositories
        return list(await asyncio.gather(*(_repository(git, r.name, r.url) for r in repositories)))


async def _repository(git: Git, name: str, url: str) -> Finding:
    try:
        await git.check_access(url)
    except (UserError, GitUnavailableError) as error:
        return broken(f"git {name}", str(error), f"git ls-remote {url}")
    return ok(f"git {name}", f"{url} reachable")


async def _mlflow(target: Installation) -> list[Finding]:
    url = target.settings.mlflow_tracking_uri
    try:
        async with _web() as web, web.get(url + evaluate.EXPERIMENTS, headers=_mlflow_headers()) as answer:
            if answer.status == 200:
                return [ok("MLflow", url)]
            failure = f"{answer.status} {(await answer.text())[:100] or answer.reason}"
    except (aiohttp.ClientError, OSError) as error:
        failure = str(error) or f"no answer within {PROBE_TIMEOUT:.0f} s"
    return [evaluate.mlflow(url, failure)]


def _mlflow_headers() -> dict[str, str]:
    """Return the credentials that MLflow's own client takes from the environment."""
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        return {"Authorization": aiohttp.encode_basic_auth(user, password)}
    return {}


def _web() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT), trust_env=True)


async def _prometheus(target: Installation) -> list[Finding]:
    """Check that Prometheus, if set, has the series that GPU figures need."""
    if not (url := target.settings.prometheus_url):
        return []
    token = target.settings.prometheus_token
    prometheus = Prometheus(url, token.get_secret_value() if token else "")
    try:
        now = datetime.now(UTC)
        rows = {name: await prometheus.query(query, now) for name, query in evaluate.METRIC_QUERIES.items()}
    except NoGpuDataError as error:
        return [broken("Prometheus", str(error), f"curl -i {url}/-/ready  # check PROMETHEUS_URL")]
    finally:
        await prometheus.close()
    counts = {name: round(sum(row.value for row in found)) for name, found in rows.items()}
    return [evaluate.prometheus(url, counts)]


async def _dns(target: Installation) -> list[Finding]:
    s = target.settings
    urls = [s.slack_api_url, s.redis_url, f"https://{s.registry_api}", f"https://{s.registry_push}"]
    urls += [s.mlflow_tracking_uri, *(r.url for r in target.config.repositories)]
    names = sorted({name for url in urls if (name := _host_to_resolve(url))})
    counts = await asyncio.gather(*(_successes(target.resolve, name) for name in names))
    return evaluate.dns(dict(zip(names, counts, strict=True)), DNS_LOOKUPS)


def _host_to_resolve(url: str) -> str:
    """Return the URL's host name; empty for an IP address, a socket file, and hosts that a proxy resolves."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(name):
        return ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    return ""


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


CHECKS: dict[str, Callable[[Installation], Awaitable[list[Finding]]]] = {
    "Redis": _redis,
    "quarantine": _quarantine,
    "newer sweeps": _newer_sweeps,
    "Slack token": _slack_token,
    "Slack secret": _slack_secret,
    "registry": _registry,
    "git": _git,
    "MLflow": _mlflow,
    "Prometheus": _prometheus,
    "DNS": _dns,
}
