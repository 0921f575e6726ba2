"""One frozen Settings from the environment; what is missing or malformed stops the start with a sentence.

Addresses and secrets come from the environment (`.env.example` lists them), people and policy from the YAML
file that SWEEPBOT_CONFIG names.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from bot.models import UserError

SCHEMES = ("http://", "https://", "redis://", "rediss://", "unix://")


def _url(text: str) -> str:
    if not text.startswith(SCHEMES):
        raise ValueError(f"{text!r} is not an address with a scheme, such as https://host")
    return text.rstrip("/")


def _host(text: str) -> str:
    if "/" in text or not text:
        raise ValueError(f"{text!r} should be HOST or HOST:PORT, without scheme and path")
    return text


def _bot_token(token: SecretStr) -> SecretStr:
    if not token.get_secret_value().startswith("xoxb-"):
        raise ValueError("a bot token starts with xoxb-")
    return token


def _app_token(token: SecretStr) -> SecretStr:
    if not token.get_secret_value().startswith("xapp-"):
        raise ValueError("an app-level token starts with xapp-")
    return token


Url = Annotated[str, AfterValidator(_url)]
Host = Annotated[str, AfterValidator(_host)]


class PlanSettings(BaseSettings):
    """What a plan depends on. Each description is the help line in `.env.example`, kept in step by a test."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    k8s_namespace: str = Field(default="sweeps", description="the namespace of builds and experiments")
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
    mlflow_tracking_uri: Url = Field(
        default="http://mlflow.invalid", description="MLflow, as trials and the bot reach it"
    )

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
    slack_app_token: Annotated[SecretStr, AfterValidator(_app_token)] = Field(
        description="an app-level token with connections:write, xapp-..., for Socket Mode"
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
    mlflow_tracking_uri: Url = Field(description="MLflow, as trials and the bot reach it")
    mlflow_ui_url: Url | None = Field(
        default=None, description="MLflow, as people's browsers reach it; MLFLOW_TRACKING_URI when empty"
    )
    katib_ui_url: Url | None = Field(
        default=None, description="Katib's UI, as people's browsers reach it; no link when empty"
    )
    worker_turns: int = Field(default=8, ge=1, description="how many sweeps one worker turns to at a time")
    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="DEBUG, INFO, WARNING or ERROR"
    )

    @property
    def registry_api(self) -> str:
        return self.image_registry_api or self.image_registry

    @property
    def mlflow_ui(self) -> str:
        return self.mlflow_ui_url or self.mlflow_tracking_uri


def _sentence(settings: type[PlanSettings], error: ErrorDetails) -> str:
    name = str(error["loc"][0])
    help_line = settings.model_fields[name].description
    if error["type"] == "missing":
        return f"{name.upper()} is not set. It is {help_line}."
    return f"{name.upper()} is malformed: {error['msg'].removeprefix('Value error, ')}. It is {help_line}."
