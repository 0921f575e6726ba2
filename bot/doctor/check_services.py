"""What the doctor asks of Slack, Redis, the registry, git, MLflow and DNS."""

import asyncio
import ipaddress
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
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
from bot.doctor import judge_services as judge
from bot.doctor.findings import Finding, broken, ok, warning
from bot.gpus.models import NoGpuDataError
from bot.gpus.prometheus import Prometheus
from bot.registry.client import Registry, RegistryError
from bot.repos.git import Git, GitUnavailableError, logins
from bot.slack.client import why
from bot.storage.redis_client import connect
from bot.storage.work_queue import Queue

TIMES = 5  # a name is asked: failing now and then is a known fault of cluster DNS
SHORT = 5.0  # seconds for one question

Resolve = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Installation:
    settings: Settings
    config: Config
    resolve: Resolve


async def _slack_token(one: Installation) -> list[Finding]:
    try:
        answer = await _call(one, one.settings.slack_bot_token.get_secret_value(), "auth.test")
    except SlackApiError as error:
        fix = f"{judge.APPS}: OAuth & Permissions; put the bot token into SLACK_BOT_TOKEN"
        return [broken("Slack token", why(error), fix)]
    except (aiohttp.ClientError, OSError) as error:
        url = one.settings.slack_api_url
        return [broken("Slack token", f"Slack does not answer: {error}", f"curl -i {url}/api.test")]
    headers = {key.lower(): value for key, value in answer.headers.items()}
    who = ok("Slack token", f"{answer['user']} in {answer['team']}")
    return [who, judge.scopes(headers.get("x-oauth-scopes", ""))]


async def _slack_door(one: Installation) -> list[Finding]:
    """Socket Mode's token opens a socket; whether a signing secret is right only Slack's calls tell."""
    check = "Slack signing secret" if one.settings.slack_mode == "http" else "Slack app token"
    fix = f"{judge.APPS}: Basic Information, App-Level Tokens, one with connections:write"
    try:
        secret = one.settings.slack_secret()
        if one.settings.slack_mode == "socket":
            await _call(one, secret, "apps.connections.open")
    except UserError as error:
        return [broken(check, str(error), f"{judge.APPS}: Basic Information")]
    except SlackApiError as error:
        return [broken(check, why(error), f"{fix}; put it into SLACK_APP_TOKEN")]
    except (aiohttp.ClientError, OSError):
        return []  # the other token's check tells that Slack does not answer
    return [ok(check, "is set" if one.settings.slack_mode == "http" else "opens Socket Mode")]


async def _call(one: Installation, token: str, method: str) -> AsyncSlackResponse:
    return await AsyncWebClient(token=token, base_url=f"{one.settings.slack_api_url}/").api_call(method)


async def _redis(one: Installation) -> list[Finding]:
    async with connect(one.settings.redis_url) as redis:
        try:
            info = await redis.info()
        except ResponseError as error:  # managed ones may forbid it
            await redis.ping()
            return [warning("Redis", f"answers, but does not say how it is kept: {error}", "")]
        except RedisError as error:
            return [broken("Redis", f"does not answer: {error}", "kubectl -n sweepbot get pods")]
        try:
            save = (await redis.config_get("save")).get("save")
        except RedisError:
            save = None
    return [judge.redis_version(info), judge.persistence(info, save), judge.eviction(info)]


async def _quarantine(one: Installation) -> list[Finding]:
    async with connect(one.settings.redis_url) as redis:
        try:
            return judge.quarantine(await Queue(redis).quarantined())
        except RedisError:
            return []  # the check of Redis tells


async def _registry(one: Installation) -> list[Finding]:
    host, plain = one.settings.registry_api, one.settings.image_registry_plain_http
    setting = "IMAGE_REGISTRY_API" if one.settings.image_registry_api else "IMAGE_REGISTRY"
    named = f"{host} ({setting}, as the bot asks)"
    schemes = ("http", "https") if plain else ("https", "http")
    first, second = [await _registry_answers(f"{scheme}://{host}") for scheme in schemes]
    if first and second:
        return [broken("registry", f"{named} does not answer: {first}", f"curl -v {schemes[0]}://{host}/v2/")]
    if first:
        fix = f"set IMAGE_REGISTRY_PLAIN_HTTP={'false' if plain else 'true'}"
        return [broken("registry", f"{named} answers over {schemes[1]}, not {schemes[0]}", fix)]
    registry = Registry(host, insecure=plain, credentials=one.settings.own_login())
    try:
        await registry.digest("sweepbot/doctor", "none")
    except RegistryError as error:
        return [
            broken(
                "registry",
                str(error),
                "is its login in the file that REGISTRY_AUTH_FILE names, or may all read?",
            )
        ]
    finally:
        await registry.close()
    return [ok("registry", f"{named} answers over {schemes[0]}")]


async def _registry_answers(url: str) -> str:
    """Why it does not; empty when it does. 401 is an answer: it may give out tokens."""
    try:
        async with _web() as web, web.get(f"{url}/v2/") as answer:
            return "" if answer.status in {200, 401} else f"{answer.status} {answer.reason}"
    except (aiohttp.ClientError, OSError) as error:
        return str(error) or f"nothing within {SHORT:.0f} s"


async def _git(one: Installation) -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        git = Git(Path(folder), logins(one.config, os.environ), timeout=2 * SHORT)
        repositories = one.config.repositories
        return list(await asyncio.gather(*(_repository(git, r.name, r.url) for r in repositories)))


async def _repository(git: Git, name: str, url: str) -> Finding:
    try:
        await git.reach(url)
    except (UserError, GitUnavailableError) as error:
        return broken(f"git {name}", str(error), f"git ls-remote {url}")
    return ok(f"git {name}", f"{url} answers")


async def _mlflow(one: Installation) -> list[Finding]:
    url = one.settings.mlflow_tracking_uri
    try:
        async with _web() as web, web.get(url + judge.EXPERIMENTS, headers=_mlflow_login()) as answer:
            if answer.status == 200:
                return [ok("MLflow", url)]
            said = f"{answer.status} {(await answer.text())[:100] or answer.reason}"
    except (aiohttp.ClientError, OSError) as error:
        said = str(error) or f"nothing within {SHORT:.0f} s"
    return [judge.mlflow(url, said)]


def _mlflow_login() -> dict[str, str]:
    """As MLflow's own client takes it from the environment."""
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        return {"Authorization": aiohttp.encode_basic_auth(user, password)}
    return {}


def _web() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SHORT), trust_env=True)


async def _prometheus(one: Installation) -> list[Finding]:
    """Where one is set: does it have the series that figures are made of?"""
    if not (url := one.settings.prometheus_url):
        return []
    token = one.settings.prometheus_token
    prometheus = Prometheus(url, token.get_secret_value() if token else "")
    try:
        now = datetime.now(UTC)
        rows = {name: await prometheus.ask(query, now) for name, query in judge.SERIES.items()}
    except NoGpuDataError as why:
        return [broken("Prometheus", str(why), f"curl -i {url}/-/ready; is PROMETHEUS_URL right?")]
    finally:
        await prometheus.close()
    counts = {name: round(sum(row.value for row in found)) for name, found in rows.items()}
    return [judge.prometheus(url, counts)]


async def _dns(one: Installation) -> list[Finding]:
    s = one.settings
    urls = [s.slack_api_url, s.redis_url, f"https://{s.registry_api}", f"https://{s.registry_push}"]
    urls += [s.mlflow_tracking_uri, *(r.url for r in one.config.repositories)]
    names = sorted({name for url in urls if (name := _name_to_ask(url))})
    counts = await asyncio.gather(*(_times(one.resolve, name) for name in names))
    return judge.dns(dict(zip(names, counts, strict=True)), TIMES)


def _name_to_ask(url: str) -> str:
    """Empty for a number, a socket file, and what a proxy resolves for us."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(name):
        return ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    return ""


async def _times(resolve: Resolve, name: str) -> int:
    async def once() -> bool:
        try:
            async with asyncio.timeout(SHORT):
                await resolve(name)
        except OSError:  # TimeoutError is one
            return False
        return True

    return sum(await asyncio.gather(*(once() for _ in range(TIMES))))


class Resolver:
    """The system's own, in threads of its own: a silent server must not hold up the other names."""

    def __enter__(self) -> Resolve:
        self._threads = ThreadPoolExecutor(max_workers=64)
        loop = asyncio.get_running_loop()
        return lambda name: loop.run_in_executor(self._threads, socket.getaddrinfo, name, None)

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


CHECKS: dict[str, Callable[[Installation], Awaitable[list[Finding]]]] = {
    "Redis": _redis,
    "quarantine": _quarantine,
    "Slack token": _slack_token,
    "Slack door": _slack_door,
    "registry": _registry,
    "git": _git,
    "MLflow": _mlflow,
    "Prometheus": _prometheus,
    "DNS": _dns,
}
