"""Read the settings from the environment: URLs, images, intervals, days until deletions, and secrets, with
those of registries' logins, which are masked; say which one is missing or invalid.

People and policy come from the YAML file that SWEEPBOT_CONFIG names. `make reference` writes
.env.example and the environment reference in docs/configuration.md from the descriptions here.
"""

import json
import os
import re
from base64 import b64decode
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from bot.core.errors import UserError
from bot.platform.config.docstrings import docstrings
from bot.platform.registry.auth import Login, RegistryError, login
from bot.platform.registry.images import DNS_LABEL, PATH_COMPONENT
from bot.text.masking import Mask, secrets_in_environment, secrets_in_urls
from bot.text.wording import listed

# Of images: a ConfigMap's name and Kubernetes' limit for image names have to hold what follows.
REGISTRY = re.compile(rf"{DNS_LABEL}(?:[.]{DNS_LABEL})*(?::[0-9]{{1,5}})?(?:/{PATH_COMPONENT})*", re.ASCII)
MAX_REGISTRY = 120  # characters
A_DAY, MAX_DAYS = 86_400, 36_500  # seconds; a hundred years
REGISTRY_SECRETS = ("password", "identitytoken", "registrytoken", "auth")
QUOTED = re.compile(r"""(["']).*\1""", re.DOTALL)
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
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
}


MATCHERS = re.compile(r"""([a-zA-Z_]\w*=[^\s"',={}\\]+(,(?!$)|$))+""", re.ASCII)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = text.startswith(("http://", "https://")) and parts.hostname and " " not in parts.netloc
        _ = parts.port  # ValueError if it isn't a number
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"must be a URL such as https://host; got {_public(text)}")
    return text.rstrip("/")


def _redis_url(text: str) -> str:
    if not text.startswith(REDIS_SCHEMES):
        raise ValueError("must be a URL such as redis://host:6379/0")
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


def _matchers(text: str) -> str:
    """Return PromQL's matchers of labels."""
    if not MATCHERS.fullmatch(text):
        raise ValueError(f"must be NAME=VALUE, or several with commas, such as cluster=lab; got {text!r}")
    return re.sub(r"=([^,]+)", r'="\1"', text)


def _public(url: str) -> str:
    """Return the URL without user and password, which precede an @."""
    return repr(url.rpartition("@")[2])


def _token(start: str) -> AfterValidator:
    def check(token: SecretStr) -> SecretStr:
        if not token.get_secret_value().startswith(start):
            raise ValueError(f"must start with {start}")
        return token

    return AfterValidator(check)


Url = Annotated[str, AfterValidator(_url)]
ShownUrl = Annotated[Url, AfterValidator(_shown)]
Host = Annotated[str, AfterValidator(_host)]
Matchers = Annotated[str, AfterValidator(_matchers)]
ImageRegistry = Annotated[str, AfterValidator(_registry)]


class PlanSettings(BaseModel):
    """Settings that a plan depends on, for `sweepbot plan` too."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)

    k8s_namespace: str = "sweeps"
    """namespace for builds, records, and trials (unless the channel sets another)"""
    build_namespace: str | None = Field(None, examples=["sweepbot-builds"])
    """namespace for builds only, without a queue or quota; default: K8S_NAMESPACE"""
    image_registry: ImageRegistry = Field("registry.invalid", examples=["registry.example:5000"])
    """registry of built images, HOST[:PORT][/PREFIX]; nodes pull from it"""
    image_registry_push: Host | None = Field(None, examples=["registry.registry.svc:5000"])
    """registry host Kaniko pushes to; default: IMAGE_REGISTRY"""
    image_registry_plain_http: bool = False
    """use http instead of https for the registry"""
    kaniko_image: str = "ghcr.io/osscontainertools/kaniko:v1.28.3"
    """Kaniko executor image; mirror it in your registry and pin it by digest"""
    base_image: str = "python:3.11-slim"
    """base image for repositories without a Dockerfile; pin it by digest"""
    micromamba_image: str = "mambaorg/micromamba:2.5.0"
    """image of which builds of environment.yml copy micromamba; pin it by digest"""
    image_registry_secret: str | None = Field(None, examples=["registry-pull"])
    """Secret (dockerconfigjson) for pulling, in each namespace of trials"""
    image_push_secret: str | None = Field(None, examples=["registry-push"])
    """Secret (dockerconfigjson) for pushing, where builds run; default: IMAGE_REGISTRY_SECRET"""
    build_service_account: str | None = Field(None, examples=["sweepbot-builds"])
    """ServiceAccount with a cloud's identity, which pushes without a Secret, where builds run"""
    build_network_secret: str | None = Field(None, examples=["build-network"])
    """Secret with HTTP_PROXY, HTTPS_PROXY, NO_PROXY, pip.conf, uv.toml, and condarc.yaml (each if
    needed), where builds run"""
    build_ca_configmap: str | None = Field(None, examples=["company-ca"])
    """ConfigMap with CA certificates for git and registries, where builds run"""
    image_days: int | None = Field(None, ge=1, le=MAX_DAYS, examples=["30"])
    """delete image parts unused for this many days; default: never"""
    sweep_days: int = Field(30, ge=0, le=MAX_DAYS)
    """delete ended sweeps from the cluster (not from MLflow) after this many days; 0: never"""
    mlflow_tracking_uri: ShownUrl = Field("http://mlflow.invalid", examples=["http://mlflow.mlflow.svc:5000"])
    """MLflow URL for trials and the bot"""
    mlflow_secret: str | None = Field(None, examples=["mlflow-login"])
    """Secret in each namespace of trials with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or
    MLFLOW_TRACKING_TOKEN; default: trials have no MLflow credentials"""
    metrics_reader_image: str | None = Field(None, examples=["registry.example:5000/sweepbot@sha256:..."])
    """Sweepbot's image, by digest, as a sidecar that reads TensorBoard files in trials (needs Kubernetes
    1.29); default: Katib's collector"""
    katib_db_manager: Host = "katib-db-manager.kubeflow:6789"
    """HOST:PORT of Katib's database manager, for METRICS_READER_IMAGE"""

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
        """Read the environment; what is empty counts as not set, and space around a value doesn't count.

        Raises UserError with one line for each missing or invalid setting, without any secret.
        """
        given = {name.lower(): value.strip() for name, value in os.environ.items() if value.strip()}
        if quoted := [name.upper() for name in cls.model_fields if QUOTED.fullmatch(given.get(name, ""))]:
            raise UserError(f"{listed(quoted)}: remove the quotes, which `docker run --env-file` doesn't.")
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            text = error_text(error.errors(include_input=False))
            raise UserError(text) from None


class Settings(PlanSettings):
    """All settings, for `serve` and `work`."""

    slack_bot_token: Annotated[SecretStr, _token("xoxb-")] = Field(examples=["xoxb-..."])
    """bot token of the Slack app (xoxb-...)"""
    slack_mode: Literal["socket", "http"] = "socket"
    """how Slack reaches the bot: socket (Socket Mode), or http (signed HTTP at /slack/events)"""
    slack_app_token: Annotated[SecretStr, _token("xapp-")] | None = Field(None, examples=["xapp-..."])
    """app-level token with connections:write (xapp-...), for Socket Mode"""
    slack_signing_secret: SecretStr | None = None
    """signing secret of the Slack app, for signed HTTP"""
    slack_api_url: Url = "https://slack.com/api"
    """Slack Web API URL"""
    redis_url: Annotated[str, AfterValidator(_redis_url)] = Field(examples=["redis://sweepbot-redis:6379/0"])
    """URL of Redis 6.2+ or Valkey, with an append-only file; TLS, Sentinel: docs/operate.md"""
    sweepbot_config: Path = Field(examples=["/etc/sweepbot/config.yaml"])
    """path of the configuration file"""
    sweepbot_data: Path = Path("/var/cache/sweepbot")
    """directory for git caches; can be deleted at any time"""
    sweepbot_unconfirmed: Path = Path("/var/lib/sweepbot")
    """directory for what `serve` acknowledged and no worker has; it must outlive a container"""
    image_registry: ImageRegistry = Field(examples=["registry.example:5000"])
    """registry of built images, HOST[:PORT][/PREFIX]; nodes pull from it"""
    image_registry_api: Host | None = Field(None, examples=["registry.registry.svc:5000"])
    """registry host the bot queries; default: IMAGE_REGISTRY"""
    mlflow_tracking_uri: ShownUrl = Field(examples=["http://mlflow.mlflow.svc:5000"])
    """MLflow URL for trials and the bot"""
    registry_auth_file: Path | None = Field(None, examples=["/etc/sweepbot/registry/config.json"])
    """path of a dockerconfigjson file with the bot's registry credentials"""
    registry_identity: Literal["aws", "azure", "google"] | None = Field(None, examples=["aws"])
    """cloud whose identity of the pod is the bot's login, instead of a file: aws (ECR), azure (ACR),
    google (Artifact Registry)"""
    mlflow_ui_url: ShownUrl | None = Field(None, examples=["https://mlflow.example"])
    """MLflow URL for people's browsers; default: MLFLOW_TRACKING_URI"""
    katib_ui_url: ShownUrl | None = Field(None, examples=["https://kubeflow.example"])
    """Katib UI URL for people's browsers; default: no link"""
    runbook_url: ShownUrl | None = Field(None, examples=["https://docs.example/sweepbot/operate.html"])
    """URL of docs/operate.md for people's browsers, to which alerts link; default: no link"""
    prometheus_url: Url | None = Field(None, examples=["http://prometheus-operated.monitoring.svc:9090"])
    """Prometheus URL, with dcgm-exporter and kube-state-metrics; default: query dcgm-exporter"""
    prometheus_token: SecretStr | None = None
    """bearer token for Prometheus"""
    prometheus_labels: Matchers | None = Field(None, examples=["cluster=lab"])
    """labels of this cluster's series, by commas, if Prometheus has several clusters; default: none"""
    dcgm_scrape_seconds: int | None = Field(None, ge=1, le=A_DAY, examples=["30"])
    """seconds between scrapes of dcgm-exporter; default: measured"""
    usage_seconds: int = Field(30, ge=1, le=A_DAY)
    """seconds between GPU samples"""
    watch_seconds: int = Field(180, ge=1, le=A_DAY)
    """seconds between checks for idle GPUs"""
    worker_concurrency: int = Field(8, ge=1, le=1000)
    """sweeps one worker handles concurrently"""
    http_host: str = "::"
    """address to listen on; :: means all, IPv4 included"""
    http_port: int = Field(8080, ge=0, le=65535)
    """port of /healthz, /readyz, /metrics, and Slack's requests; 0: any free port"""
    sweepbot_api_port: int | None = Field(None, ge=0, le=65535, examples=["8081"])
    """port of the HTTP API (docs/api.md), on HTTP_HOST; 0: any free port; default: off"""
    shutdown_grace: float = Field(20, gt=0, le=A_DAY)
    """seconds to finish running work after SIGTERM; keep the pod's grace period 10 s longer"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """log level: DEBUG, INFO, WARNING, or ERROR"""
    log_format: Literal["json", "text"] = "json"
    """log format: json, or text for terminals"""

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
            raise UserError(missing(name))
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
    found = set[str]()
    with suppress(ValueError, KeyError, AttributeError, TypeError):
        for login in json.loads(document)["auths"].values():
            with suppress(ValueError, AttributeError, TypeError):  # one that is damaged hides no other's
                found |= {login.get(name) or "" for name in REGISTRY_SECRETS}
                found.add(b64decode(login.get("auth") or "").decode().partition(":")[2])
    return found


def error_text(errors: Iterable[ErrorDetails]) -> str:
    """Return one line for each setting, and where to set it. Values aren't shown: they can be secrets."""
    return "\n".join([*map(_line, errors), WHERE])


def description_of(name: str) -> str:
    """Return the docstring of a setting on one line."""
    return docstrings(Settings)[name]


def missing(name: str) -> str:
    return f"{name.upper()} isn't set ({description_of(name)})."


def _line(error: ErrorDetails) -> str:
    name = str(error["loc"][0])
    if error["type"] == "missing":
        return missing(name)
    reason = REASONS.get(error["type"], "").format(**error.get("ctx", {}))
    reason = reason or error["msg"].removeprefix("Value error, ")
    return f"{name.upper()} is invalid: {reason} ({description_of(name)})."
