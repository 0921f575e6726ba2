"""Check the services that sweeps need now: Slack with its scopes, the registry, git, MLflow, and the search
service's entry in katib-config.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.core.errors import UserError
from bot.core.finding import Finding, broken, ok, warning
from bot.core.space import SEARCH_SERVICE
from bot.operate.check_cluster import list_controllers
from bot.operate.check_trial_kinds import KATIB, read_settings
from bot.platform.clients import own_registry
from bot.platform.config.policy import Config
from bot.platform.config.settings import Settings
from bot.platform.config.value_types import GROUP
from bot.platform.registry.auth import RegistryError
from bot.platform.repos.git import Git
from bot.platform.repos.git_commands import GitUnavailableError, logins
from bot.platform.slack.client import error_code
from bot.sweep.builds.jobs import SHARED, own_repository
from bot.text.wording import listed
from k8s.api.client import KubernetesClient
from k8s.quantities import amount

PROBE_TIMEOUT = 5.0  # seconds for one request
# The scopes in deploy/slack/manifest-*.yaml.
SCOPES = (
    "app_mentions:read",
    "chat:write",
    "commands",
    "files:write",
    "im:history",
    "im:write",
    "users:read",
    "users:read.email",
)
GROUPS_SCOPE = "usergroups:read"  # only if a team names a user group
APPS = "at https://api.slack.com/apps, your app"
# Queried instead of /health, which answers 200 even if the Host header is rejected.
EXPERIMENTS = "/api/2.0/mlflow/experiments/search?max_results=1"


@dataclass(frozen=True)
class Installation:
    settings: Settings
    config: Config


ServiceCheck = Callable[[Installation], Awaitable[list[Finding]]]


async def _slack_token(target: Installation) -> list[Finding]:
    try:
        answer = await _call(target, target.settings.slack_bot_token.get_secret_value(), "auth.test")
    except SlackApiError as error:
        fix = f"{APPS}: OAuth & Permissions; put the bot token into SLACK_BOT_TOKEN"
        return [broken("Slack token", error_code(error), fix)]
    except (aiohttp.ClientError, OSError) as error:
        url = target.settings.slack_api_url
        return [broken("Slack token", f"unreachable: {error}", f"curl -i {url}/api.test")]
    headers = {key.lower(): value for key, value in answer.headers.items()}
    identity = ok("Slack token", f"{answer['user']} in {answer['team']}")
    named = any(GROUP.fullmatch(member) for team in target.config.teams for member in team.members)
    wanted = [*SCOPES, *([GROUPS_SCOPE] if named else [])]
    return [identity, scopes(headers.get("x-oauth-scopes", ""), wanted)]


def scopes(header: str, wanted: Sequence[str] = SCOPES) -> Finding:
    """Evaluate the bot token's scopes: the header X-OAuth-Scopes of Slack's answers."""
    granted = {scope.strip() for scope in header.split(",")}
    if missing := [scope for scope in wanted if scope not in granted]:
        fix = f"{APPS}: OAuth & Permissions, add {listed(missing)}, Reinstall to Workspace"
        return broken("Slack scopes", f"bot token is missing {listed(missing)}", fix)
    return ok("Slack scopes", listed(wanted))


async def _slack_secret(target: Installation) -> list[Finding]:
    """Open a socket with Socket Mode's token. A signing secret can only be checked for presence."""
    by_http = target.settings.slack_mode == "http"
    check = "Slack signing secret" if by_http else "Slack app token"
    fix = f"{APPS}: Basic Information, App-Level Tokens, one with connections:write"
    try:
        secret = target.settings.slack_secret()
        if not by_http:
            await _call(target, secret, "apps.connections.open")
    except UserError as error:
        return [broken(check, str(error), f"{APPS}: Basic Information")]
    except SlackApiError as error:
        return [broken(check, error_code(error), f"{fix}; put it into SLACK_APP_TOKEN")]
    except (aiohttp.ClientError, OSError):
        return []  # _slack_token() reports it
    return [ok(check, "set" if by_http else "opens Socket Mode")]


async def _call(target: Installation, token: str, method: str) -> AsyncSlackResponse:
    return await AsyncWebClient(token=token, base_url=f"{target.settings.slack_api_url}/").api_call(method)


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
    registry = own_registry(target.settings)
    projects = (own_repository(each, target.settings) for each in target.config.repositories)
    try:  # those that sweeps will use: some registries grant access only to repositories that exist
        for repository in {target.settings.image_repository(SHARED), *projects}:
            await registry.digest(repository, "none")
    except RegistryError as error:
        fix = (
            "give the bot pull and push there by REGISTRY_AUTH_FILE or REGISTRY_IDENTITY: docs/registries.md"
        )
        return [broken("registry", str(error), fix)]
    finally:
        await registry.close()
    return [ok("registry", f"{named} reachable over {schemes[0]}")]


async def _registry_error(url: str) -> str:
    """Return why the registry is unreachable; empty if it answers. 401 is fine: it may hand out tokens."""
    status, failure = await _request(f"{url}/v2/")
    return "" if status in {200, 401} else failure


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
    as_workers: dict[str, Any] = {"headers": _mlflow_headers(), "allow_redirects": False}
    status, failure = await _request(url + EXPERIMENTS, 100, **as_workers)
    return [ok("MLflow", url) if status == 200 else mlflow(url, failure)]


def mlflow(url: str, error: str) -> Finding:
    """Report a failed request. MLflow 3.5 and newer reject Host headers missing from --allowed-hosts."""
    fix = f"curl -i '{url}{EXPERIMENTS}'"
    if error.startswith("3"):
        fix = "set MLFLOW_TRACKING_URI to the URL that it redirects to: redirects aren't followed"
    if "Host header" in error:
        fix = f"start MLflow with --allowed-hosts {urlsplit(url).netloc}, and the host that browsers use"
    return broken("MLflow", f"{url}: {error}", fix)


def _mlflow_headers() -> dict[str, str]:
    """Return the credentials that MLflow's own client takes from the environment."""
    user, password, token = (
        os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD", "TOKEN")
    )
    if user and password:
        return {"Authorization": aiohttp.encode_basic_auth(user, password)}
    return {"Authorization": f"Bearer {token}"} if token else {}


async def _request(url: str, quoted: int = 0, **options: Any) -> tuple[int, str]:
    """Return the status of the answer, 0 without one, and what to report if that is a failure.

    Args:
        quoted: characters of the answer's body to report instead of the reason.
    """
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as web,
            web.get(url, **options) as answer,
        ):
            body = (await answer.text())[:quoted] if quoted else ""
            return answer.status, f"{answer.status} {body or answer.reason}"
    except (aiohttp.ClientError, OSError) as error:
        return 0, str(error) or f"no answer within {PROBE_TIMEOUT:.0f} s"


SERVICES: dict[str, ServiceCheck] = {
    "Slack token": _slack_token,
    "Slack secret": _slack_secret,
    "registry": _registry,
    "git": _git,
    "MLflow": _mlflow,
}


# Its entry in katib-config belongs to Katib's installer: an upgrade of Katib that applies its own manifests
# drops the entry, and Katib then rejects each experiment of the service.
SEARCH_CHECK = "search service"
REGISTER = "register it again: docs/install.md#install-the-search-service, or set search_service: false"
LEAST_MEMORY = 300  # MiB: 133 after 1,500 trials; Katib's default is 100


async def search_service(cluster: KubernetesClient, config: Config) -> list[Finding]:
    """Return no findings unless the configuration says that it is installed. Raises ApiError."""
    if not config.search_service:
        return []
    controllers = await list_controllers(cluster)
    controller = next((each for each in controllers if each["metadata"]["name"] == KATIB.name), None)
    if controller is None:  # reported with Katib's Deployments
        return []
    namespace = controller["metadata"]["namespace"]
    settings = await read_settings(cluster, SEARCH_CHECK, namespace, KATIB.settings)
    return [settings if isinstance(settings, Finding) else evaluate_entry(settings)]


def evaluate_entry(settings: Mapping[str, Any]) -> Finding:
    """Evaluate the service's entry in katib-config."""
    runtime = settings.get("runtime")
    listed = runtime.get("suggestions") if isinstance(runtime, dict) else None
    entries = [each for each in listed or () if isinstance(each, dict)] if isinstance(listed, list) else []
    entry = next((each for each in entries if each.get("algorithmName") == SEARCH_SERVICE), None)
    if entry is None:
        what = f"katib-config has no algorithm {SEARCH_SERVICE}; Katib rejects sweeps with algorithm auto"
        return broken(SEARCH_CHECK, what, REGISTER)
    if not entry.get("image"):
        return broken(
            SEARCH_CHECK, f"{SEARCH_SERVICE} in katib-config has no image; its sweeps never start", REGISTER
        )
    if _mebibytes(entry) < LEAST_MEMORY:
        what = f"{SEARCH_SERVICE} in katib-config needs resources.limits.memory of {LEAST_MEMORY}Mi or more"
        return warning(SEARCH_CHECK, f"{what}; large sweeps stop otherwise", REGISTER)
    return ok(SEARCH_CHECK, f"registered as {SEARCH_SERVICE}, image {entry['image']}")


def _mebibytes(entry: Mapping[str, Any]) -> float:
    """Return the memory limit of the entry; 0 if it has none, or one that can't be read."""
    value: Any = entry
    for key in ("resources", "limits", "memory"):
        value = value.get(key) if isinstance(value, dict) else None
    with suppress(ValueError):
        return float(amount(str(value)) / 2**20)
    return 0
