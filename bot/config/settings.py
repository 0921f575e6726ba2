"""One frozen Settings from the environment; what is missing or malformed stops the start with a sentence.

Addresses and secrets come from the environment (`.env.example` lists them), people and policy from the YAML
file that SWEEPBOT_CONFIG names.
"""

import json
import os
from base64 import b64decode
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from bot.core.errors import UserError
from bot.core.masking import of_environment, of_urls
from bot.registry.auth import login

SCHEMES = ("http://", "https://", "redis://", "rediss://", "unix://")


def _url(text: str) -> str:
    if not text.startswith(SCHEMES):
        raise ValueError(f"{_public(text)} is not an address with a scheme, such as https://host")
    return text.rstrip("/")


def _shown(url: str) -> str:
    if "@" in urlsplit(url).netloc:
        raise ValueError(
            f"{_public(url)} may not have a user or a password: trials and people see the address"
        )
    return url


def _host(text: str) -> str:
    if {"/", "@"} & {*text} or not text:
        raise ValueError(f"{_public(text)} should be HOST or HOST:PORT, without scheme, user and path")
    return text


def _public(address: str) -> str:
    """Without user and password, which stand before an @."""
    return repr(address.rpartition("@")[2])


def _bot_token(token: SecretStr) -> SecretStr:
    if not token.get_secret_value().startswith("xoxb-"):
        raise ValueError("a bot token starts with xoxb-")
    return token


def _app_token(token: SecretStr) -> SecretStr:
    if not token.get_secret_value().startswith("xapp-"):
        raise ValueError("an app-level token starts with xapp-")
    return token


Url = Annotated[str, AfterValidator(_url)]
ShownUrl = Annotated[Url, AfterValidator(_shown)]
Host = Annotated[str, AfterValidator(_host)]


class PlanSettings(BaseSettings):
    """What a plan depends on. Each description is the help line in `.env.example`, kept in step by a test."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    k8s_namespace: str = Field(
        default="sweeps",
        description="the namespace of builds and records, and of trials whose channel has no other",
    )
    build_namespace: str | None = Field(
        default=None,
        description="a namespace for builds alone, with no queue or quota; K8S_NAMESPACE when empty",
    )
    image_registry: Host = Field(
        default="registry.invalid", description="the registry in image names, as nodes pull"
    )
    image_registry_push: Host | None = Field(
        default=None, description="the registry as Kaniko pushes; IMAGE_REGISTRY when empty"
    )
    image_registry_plain_http: bool = Field(
        default=False, description="true when the registry speaks http instead of https"
    )
    kaniko_image: str = Field(
        default="ghcr.io/osscontainertools/kaniko:v1.28.3",
        description="Kaniko's executor; better mirrored into your registry and pinned by digest",
    )
    base_image: str = Field(
        default="python:3.11-slim",
        description="what images start from where a repository has no Dockerfile; better pinned by digest",
    )
    image_registry_secret: str | None = Field(
        default=None,
        description="a dockerconfigjson Secret in each namespace of trials, to pull with; none when empty",
    )
    image_push_secret: str | None = Field(
        default=None,
        description="the same where builds run, that they push with; IMAGE_REGISTRY_SECRET when empty",
    )
    build_ca_configmap: str | None = Field(
        default=None,
        description="a ConfigMap where builds run: certificates that they trust for git and registries",
    )
    image_days: int | None = Field(
        default=None,
        ge=1,
        description="days without use after which the parts of images leave the registry; never when empty",
    )
    sweep_days: int = Field(
        default=30,
        ge=0,
        description="days until an ended sweep leaves the cluster, though not MLflow; never when 0",
    )
    mlflow_tracking_uri: ShownUrl = Field(
        default="http://mlflow.invalid", description="MLflow, as trials and the bot reach it"
    )

    @property
    def builds_in(self) -> str:
        return self.build_namespace or self.k8s_namespace

    @property
    def registry_push(self) -> str:
        return self.image_registry_push or self.image_registry

    @classmethod
    def read(cls) -> Self:
        """Raises UserError: a sentence for each setting missing or malformed, without any secret."""
        try:
            return cls()
        except ValidationError as error:
            raise UserError("\n".join(_sentence(cls, e) for e in error.errors(include_input=False))) from None


class Settings(PlanSettings):
    """What `serve` and `work` need besides."""

    slack_bot_token: Annotated[SecretStr, AfterValidator(_bot_token)] = Field(
        description="the app's bot token, xoxb-..."
    )
    slack_mode: Literal["socket", "http"] = Field(
        default="socket", description="socket for Socket Mode, http for signed HTTP at /slack/events"
    )
    slack_app_token: Annotated[SecretStr, AfterValidator(_app_token)] | None = Field(
        default=None, description="an app-level token with connections:write, xapp-..., for Socket Mode"
    )
    slack_signing_secret: SecretStr | None = Field(
        default=None, description="the app's signing secret, for signed HTTP"
    )
    slack_api_url: Url = Field(default="https://slack.com/api", description="Slack's Web API")
    redis_url: Url = Field(description="Redis 6.2 or newer, or Valkey; with an append-only file")
    sweepbot_config: Path = Field(description="the YAML file of repositories, limits and admins")
    sweepbot_data: Path = Field(
        default=Path("/var/cache/sweepbot"),
        description="a folder for copies of git repositories; may be lost",
    )
    image_registry: Host = Field(description="the registry in image names, as nodes pull")
    image_registry_api: Host | None = Field(
        default=None, description="the registry as the bot asks it; IMAGE_REGISTRY when empty"
    )
    mlflow_tracking_uri: ShownUrl = Field(description="MLflow, as trials and the bot reach it")
    registry_auth_file: Path | None = Field(
        default=None, description="a dockerconfigjson file with the bot's own logins to registries"
    )
    mlflow_ui_url: ShownUrl | None = Field(
        default=None, description="MLflow, as people's browsers reach it; MLFLOW_TRACKING_URI when empty"
    )
    katib_ui_url: ShownUrl | None = Field(
        default=None, description="Katib's UI, as people's browsers reach it; no link when empty"
    )
    prometheus_url: Url | None = Field(
        default=None,
        description="Prometheus with dcgm-exporter and kube-state-metrics; exporters are asked when empty",
    )
    prometheus_token: SecretStr | None = Field(
        default=None, description="a bearer token for Prometheus, where it wants one"
    )
    dcgm_scrape_seconds: int | None = Field(
        default=None,
        ge=1,
        description="seconds between two scrapes of dcgm-exporter; measured when empty",
    )
    usage_seconds: int = Field(default=30, ge=1, description="seconds between two looks at the GPUs")
    watch_seconds: int = Field(
        default=180, ge=1, description="seconds between two looks for GPUs that are held and not used"
    )
    worker_concurrency: int = Field(
        default=8, ge=1, description="how many sweeps one worker turns to at a time"
    )
    http_host: str = Field(default="::", description="the address to listen on; :: is every one, of IPv4 too")
    http_port: int = Field(
        default=8080,
        ge=0,
        le=65535,
        description="the port of /healthz, /readyz and Slack's calls; 0: a free one",
    )
    shutdown_grace: float = Field(
        default=20,
        gt=0,
        description="seconds for turns under way at SIGTERM; the pod's own grace is 10 s longer",
    )
    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="DEBUG, INFO, WARNING or ERROR"
    )
    log_format: Literal["json", "text"] = Field(default="json", description="json, or text for terminals")

    @property
    def registry_api(self) -> str:
        return self.image_registry_api or self.image_registry

    @property
    def mlflow_ui(self) -> str:
        return self.mlflow_ui_url or self.mlflow_tracking_uri

    def login(self, registry: str) -> tuple[str, str] | None:
        """Who the bot is at a registry (host or host:port). Raises UserError for an unreadable file."""
        if self.registry_auth_file is None:
            return None
        try:
            return login(self.registry_auth_file.read_text(), registry)
        except (OSError, ValueError) as error:
            raise UserError(f"REGISTRY_AUTH_FILE: {self.registry_auth_file} {error}.") from None

    def own_login(self) -> tuple[str, str] | None:
        """At the registry that images are built for, by whichever of its names the file has."""
        return self.login(self.registry_api) or self.login(self.image_registry)

    def slack_secret(self) -> str:
        """What opens Slack's door, which only `serve` needs. Raises UserError when it is not set."""
        name = "slack_signing_secret" if self.slack_mode == "http" else "slack_app_token"
        secret: SecretStr | None = getattr(self, name)
        if secret is None:
            raise UserError(_missing(type(self), name))
        return secret.get_secret_value()

    def secrets(self) -> set[str]:
        """What must never be shown: tokens, and passwords, also in addresses, our own and the proxies'."""
        values = [getattr(self, name) for name in type(self).model_fields]
        found = {value.get_secret_value() for value in values if isinstance(value, SecretStr)}
        found |= _of_registries(self.registry_auth_file) if self.registry_auth_file else set()
        found = found.union(*(of_urls(value) for value in values if isinstance(value, str)))
        return (found | of_environment(os.environ)) - {""}


def _of_registries(file: Path) -> set[str]:
    """Of a dockerconfigjson; none in a file that can't be read, which others complain about."""
    try:
        logins = list(json.loads(file.read_text())["auths"].values())
        found = {
            login.get(name, "")
            for login in logins
            for name in ("password", "identitytoken", "registrytoken", "auth")
        }
        plain = [b64decode(login.get("auth", "")).decode() for login in logins]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return set()
    return found | {login.partition(":")[2] for login in plain}


def _sentence(settings: type[PlanSettings], error: ErrorDetails) -> str:
    name = str(error["loc"][0])
    if error["type"] == "missing":
        return _missing(settings, name)
    help_line = settings.model_fields[name].description
    return f"{name.upper()} is malformed: {error['msg'].removeprefix('Value error, ')}. It is {help_line}."


def _missing(settings: type[PlanSettings], name: str) -> str:
    return f"{name.upper()} is not set. It is {settings.model_fields[name].description}."
