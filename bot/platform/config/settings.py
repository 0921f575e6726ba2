"""Read the settings from the environment: URLs, secrets, and intervals.

People and policy come from the YAML file that SWEEPBOT_CONFIG names. `make reference` writes
.env.example and the environment reference in docs/configuration.md from the descriptions here.
"""

import json
import os
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from bot.core.errors import UserError
from bot.platform.registry.auth import Login, RegistryError, login
from bot.platform.registry.images import DNS_LABEL, PATH_COMPONENT
from bot.text.masking import Mask, secrets_in_environment, secrets_in_urls

# Of images: a ConfigMap's name and Kubernetes' limit for image names have to hold what follows.
REGISTRY = re.compile(rf"{DNS_LABEL}(?:[.]{DNS_LABEL})*(?::[0-9]{{1,5}})?(?:/{PATH_COMPONENT})*", re.ASCII)
MAX_REGISTRY = 120  # characters
REDIS_SCHEMES = ("redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "unix://")

WHERE = (
    "Set these variables; .env.example lists all. In a cluster, run the command in a worker: "
    "kubectl -n sweepbot exec deployment/sweepbot-work -- sweepbot doctor"
)
# By pydantic's type of the error; other errors are sentences of ours.
REASONS = {
    "bool_parsing": "must be true or false",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
}


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"must be a URL such as https://host; got {_public(text)}")
    return text.rstrip("/")


def _redis_url(text: str) -> str:
    if not text.startswith(REDIS_SCHEMES):
        raise ValueError(f"must be a URL such as redis://host:6379/0; got {_public(text)}")
    return text.rstrip("/")


def _shown(url: str) -> str:
    if "@" in urlsplit(url).netloc:
        raise ValueError(
            f"must not contain a user or a password, because trials and people see it; got {_public(url)}"
        )
    return url


def _host(text: str) -> str:
    if {"/", "@"} & {*text} or not text:
        raise ValueError(f"must be HOST or HOST:PORT without scheme, user, or path; got {_public(text)}")
    return text


def _registry(text: str) -> str:
    if len(text) > MAX_REGISTRY or not REGISTRY.fullmatch(text.rstrip("/")):
        raise ValueError(
            "must be HOST[:PORT][/PREFIX] without scheme or user, such as ghcr.io/acme, in lowercase; "
            f"got {_public(text)}"
        )
    return text.rstrip("/")


def _public(url: str) -> str:
    """Return the URL without user and password, which precede an @."""
    return repr(url.rpartition("@")[2])


def _bot_token(token: SecretStr) -> SecretStr:
    if not token.get_secret_value().startswith("xoxb-"):
        raise ValueError("must start with xoxb-")
    return token


def _app_token(token: SecretStr) -> SecretStr:
    if not token.get_secret_value().startswith("xapp-"):
        raise ValueError("must start with xapp-")
    return token


Url = Annotated[str, AfterValidator(_url)]
ShownUrl = Annotated[Url, AfterValidator(_shown)]
Host = Annotated[str, AfterValidator(_host)]
ImageRegistry = Annotated[str, AfterValidator(_registry)]


class PlanSettings(BaseSettings):
    """Settings that a plan depends on, for `sweepbot plan` too."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    k8s_namespace: str = Field(
        default="sweeps",
        description="namespace for builds, records, and trials (unless the channel sets another)",
    )
    build_namespace: str | None = Field(
        default=None,
        description="namespace for builds only, without a queue or quota; default: K8S_NAMESPACE",
        examples=["sweepbot-builds"],
    )
    image_registry: ImageRegistry = Field(
        default="registry.invalid",
        description="registry of built images, HOST[:PORT][/PREFIX]; nodes pull from it",
        examples=["registry.example:5000"],
    )
    image_registry_push: Host | None = Field(
        default=None,
        description="registry host Kaniko pushes to; default: IMAGE_REGISTRY",
        examples=["registry.registry.svc:5000"],
    )
    image_registry_plain_http: bool = Field(
        default=False, description="use http instead of https for the registry"
    )
    kaniko_image: str = Field(
        default="ghcr.io/osscontainertools/kaniko:v1.28.3",
        description="Kaniko executor image; mirror it in your registry and pin it by digest",
    )
    base_image: str = Field(
        default="python:3.11-slim",
        description="base image for repositories without a Dockerfile; pin it by digest",
    )
    micromamba_image: str = Field(
        default="mambaorg/micromamba:2.5.0",
        description="image of which builds of environment.yml copy micromamba; pin it by digest",
    )
    image_registry_secret: str | None = Field(
        default=None,
        description="Secret (dockerconfigjson) for pulling, in each namespace of trials",
        examples=["registry-pull"],
    )
    image_push_secret: str | None = Field(
        default=None,
        description="Secret (dockerconfigjson) for pushing, where builds run; default: IMAGE_REGISTRY_SECRET",
        examples=["registry-push"],
    )
    build_service_account: str | None = Field(
        default=None,
        description="ServiceAccount with a cloud's identity, which pushes without a Secret, where builds run",
        examples=["sweepbot-builds"],
    )
    build_network_secret: str | None = Field(
        default=None,
        description="Secret with HTTP_PROXY, HTTPS_PROXY, NO_PROXY, pip.conf, uv.toml, and condarc.yaml "
        "(each if needed), where builds run",
        examples=["build-network"],
    )
    build_ca_configmap: str | None = Field(
        default=None,
        description="ConfigMap with CA certificates for git and registries, where builds run",
        examples=["company-ca"],
    )
    image_days: int | None = Field(
        default=None,
        ge=1,
        description="delete image parts unused for this many days; default: never",
        examples=["30"],
    )
    sweep_days: int = Field(
        default=30,
        ge=0,
        description="delete ended sweeps from the cluster (not from MLflow) after this many days; 0: never",
    )
    mlflow_tracking_uri: ShownUrl = Field(
        default="http://mlflow.invalid",
        description="MLflow URL for trials and the bot",
        examples=["http://mlflow.mlflow.svc:5000"],
    )
    mlflow_secret: str | None = Field(
        default=None,
        description="Secret in each namespace of trials with MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN; default: trials have no MLflow credentials",
        examples=["mlflow-login"],
    )

    metrics_reader_image: str | None = Field(
        default=None,
        description="Sweepbot's image, by digest, as a sidecar that reads TensorBoard files in trials (needs "
        "Kubernetes 1.29); default: Katib's collector",
        examples=["registry.example:5000/sweepbot@sha256:..."],
    )
    katib_db_manager: Host = Field(
        default="katib-db-manager.kubeflow:6789",
        description="HOST:PORT of Katib's database manager, for METRICS_READER_IMAGE",
    )

    @property
    def builds_in(self) -> str:
        return self.build_namespace or self.k8s_namespace

    @property
    def registry_host(self) -> str:
        return self.image_registry.partition("/")[0]

    @property
    def registry_push(self) -> str:
        return self.image_registry_push or self.registry_host

    def image_repository(self, name: str) -> str:
        """Return the repository for images of this name, in the registry's layout.

        With a prefix, only one part follows it: Docker Hub has no third one.
        """
        prefix = self.image_registry.partition("/")[2]
        return f"{prefix}/sweepbot-{name}" if prefix else f"sweepbot/{name}"

    @classmethod
    def read(cls) -> Self:
        """Raise UserError with one line for each missing or invalid setting, without any secret."""
        try:
            return cls()
        except ValidationError as error:
            text = error_text(cls.model_fields, error.errors(include_input=False))
            raise UserError(text) from None


class Settings(PlanSettings):
    """All settings, for `serve` and `work`."""

    slack_bot_token: Annotated[SecretStr, AfterValidator(_bot_token)] = Field(
        description="bot token of the Slack app (xoxb-...)", examples=["xoxb-..."]
    )
    slack_mode: Literal["socket", "http"] = Field(
        default="socket",
        description="how Slack reaches the bot: socket (Socket Mode), or http (signed HTTP at /slack/events)",
    )
    slack_app_token: Annotated[SecretStr, AfterValidator(_app_token)] | None = Field(
        default=None,
        description="app-level token with connections:write (xapp-...), for Socket Mode",
        examples=["xapp-..."],
    )
    slack_signing_secret: SecretStr | None = Field(
        default=None, description="signing secret of the Slack app, for signed HTTP"
    )
    slack_api_url: Url = Field(default="https://slack.com/api", description="Slack Web API URL")
    redis_url: Annotated[str, AfterValidator(_redis_url)] = Field(
        description="URL of Redis 6.2+ or Valkey, with an append-only file; TLS, Sentinel: docs/operate.md",
        examples=["redis://sweepbot-redis:6379/0"],
    )
    sweepbot_config: Path = Field(
        description="path of the configuration file", examples=["/etc/sweepbot/config.yaml"]
    )
    sweepbot_data: Path = Field(
        default=Path("/var/cache/sweepbot"),
        description="directory for git caches; can be deleted at any time",
    )
    sweepbot_unconfirmed: Path = Field(
        default=Path("/var/lib/sweepbot"),
        description="directory for what `serve` acknowledged and no worker has; it must outlive a container",
    )
    image_registry: ImageRegistry = Field(
        description="registry of built images, HOST[:PORT][/PREFIX]; nodes pull from it",
        examples=["registry.example:5000"],
    )
    image_registry_api: Host | None = Field(
        default=None,
        description="registry host the bot queries; default: IMAGE_REGISTRY",
        examples=["registry.registry.svc:5000"],
    )
    mlflow_tracking_uri: ShownUrl = Field(
        description="MLflow URL for trials and the bot", examples=["http://mlflow.mlflow.svc:5000"]
    )
    registry_auth_file: Path | None = Field(
        default=None,
        description="path of a dockerconfigjson file with the bot's registry credentials",
        examples=["/etc/sweepbot/registry/config.json"],
    )
    registry_identity: Literal["aws", "azure", "google"] | None = Field(
        default=None,
        description="cloud whose identity of the pod is the bot's login, instead of a file: aws (ECR), azure "
        "(ACR), google (Artifact Registry)",
        examples=["aws"],
    )
    mlflow_ui_url: ShownUrl | None = Field(
        default=None,
        description="MLflow URL for people's browsers; default: MLFLOW_TRACKING_URI",
        examples=["https://mlflow.example"],
    )
    katib_ui_url: ShownUrl | None = Field(
        default=None,
        description="Katib UI URL for people's browsers; default: no link",
        examples=["https://kubeflow.example"],
    )
    runbook_url: ShownUrl | None = Field(
        default=None,
        description="URL of docs/operate.md for people's browsers, to which alerts link; default: no link",
        examples=["https://docs.example/sweepbot/operate.html"],
    )
    prometheus_url: Url | None = Field(
        default=None,
        description="Prometheus URL, with dcgm-exporter and kube-state-metrics; default: query dcgm-exporter",
        examples=["http://prometheus-operated.monitoring.svc:9090"],
    )
    prometheus_token: SecretStr | None = Field(default=None, description="bearer token for Prometheus")
    dcgm_scrape_seconds: int | None = Field(
        default=None,
        ge=1,
        description="seconds between scrapes of dcgm-exporter; default: measured",
        examples=["30"],
    )
    usage_seconds: int = Field(default=30, ge=1, description="seconds between GPU samples")
    watch_seconds: int = Field(default=180, ge=1, description="seconds between checks for idle GPUs")
    worker_concurrency: int = Field(default=8, ge=1, description="sweeps one worker handles concurrently")
    http_host: str = Field(default="::", description="address to listen on; :: means all, IPv4 included")
    http_port: int = Field(
        default=8080,
        ge=0,
        le=65535,
        description="port of /healthz, /readyz, /metrics, and Slack's requests; 0: any free port",
    )
    sweepbot_api_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="port of the HTTP API (docs/api.md), on HTTP_HOST; 0: any free port; default: off",
        examples=["8081"],
    )
    shutdown_grace: float = Field(
        default=20,
        gt=0,
        description="seconds to finish running work after SIGTERM; keep the pod's grace period 10 s longer",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="log level: DEBUG, INFO, WARNING, or ERROR"
    )
    log_format: Literal["json", "text"] = Field(
        default="json", description="log format: json, or text for terminals"
    )

    @property
    def registry_api(self) -> str:
        return self.image_registry_api or self.registry_host

    @property
    def mlflow_ui(self) -> str:
        return self.mlflow_ui_url or self.mlflow_tracking_uri

    def login(self, registry: str) -> Login | None:
        """Return the bot's user and password for a registry (HOST[:PORT][/PREFIX]), as the file is now.

        `mask` has the file's logins from then on. Raises RegistryError if it can't be read.
        """
        if self.registry_auth_file is None:
            return None
        try:
            document = self.registry_auth_file.read_text()
            self.mask.add(_of_registries(document))
            return login(document, registry)
        except (OSError, ValueError) as error:
            raise RegistryError(f"REGISTRY_AUTH_FILE: {self.registry_auth_file} {error}") from None

    def slack_secret(self) -> str:
        """Return the secret of the Slack mode, which only `serve` needs. Raises UserError if not set."""
        name = "slack_signing_secret" if self.slack_mode == "http" else "slack_app_token"
        secret: SecretStr | None = getattr(self, name)
        if secret is None:
            raise UserError(missing(type(self).model_fields, name))
        return secret.get_secret_value()

    @cached_property
    def mask(self) -> Mask:
        """The process's mask of its secrets, and of those that renew them, in all text that it shows."""
        return Mask(self.secrets())

    def secrets(self) -> set[str]:
        """Return all values to mask from the start: tokens and passwords, also those in URLs."""
        values = [getattr(self, name) for name in type(self).model_fields]
        found = {value.get_secret_value() for value in values if isinstance(value, SecretStr)}
        with suppress(OSError, ValueError):  # which `login` reports
            found |= _of_registries(self.registry_auth_file.read_text()) if self.registry_auth_file else set()
        found = found.union(*(secrets_in_urls(value) for value in values if isinstance(value, str)))
        return (found | secrets_in_environment(os.environ)) - {""}


def _of_registries(document: str) -> set[str]:
    """Return the secrets in a dockerconfigjson document; none if it isn't one, which `login` reports."""
    try:
        logins = list(json.loads(document)["auths"].values())
        found = {
            login.get(name, "")
            for login in logins
            for name in ("password", "identitytoken", "registrytoken", "auth")
        }
        plain = [b64decode(login.get("auth", "")).decode() for login in logins]
    except (ValueError, KeyError, AttributeError, TypeError):
        return set()
    return found | {login.partition(":")[2] for login in plain}


def error_text(fields: Mapping[str, FieldInfo], errors: Iterable[ErrorDetails]) -> str:
    """Return one line for each setting, and where to set it. Values aren't shown: they can be secrets."""
    return "\n".join([*(_line(fields, each) for each in errors), WHERE])


def missing(fields: Mapping[str, FieldInfo], name: str) -> str:
    return f"{name.upper()} isn't set ({fields[name].description})."


def _line(fields: Mapping[str, FieldInfo], error: ErrorDetails) -> str:
    name = str(error["loc"][0])
    if error["type"] == "missing":
        return missing(fields, name)
    reason = REASONS.get(error["type"], "").format(**error.get("ctx", {}))
    reason = reason or error["msg"].removeprefix("Value error, ")
    return f"{name.upper()} is invalid: {reason} ({fields[name].description})."
