"""What is remembered about the health of a sweep's first trials."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from bot.core.feature_state import FeatureState


class HealthStatus(StrEnum):
    """The state of a first trial. Values are stored in records."""

    WAITING = "waiting"
    UNHEALTHY = "troubled"  # it can't start, or runs without effect
    FAILED = "failed"
    RECOVERED = "recovered"


@dataclass(frozen=True, kw_only=True)
class Health:
    """The content of the message about a sweep's first trials."""

    status: HealthStatus
    key: str
    text: str
    fix: str = ""
    detail: str = ""
    cause: str = ""  # one line for a headline
    trial: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    lasting: bool = False  # final: no later state replaces it
    more: int = 0  # other trials that failed the same way


@dataclass(frozen=True, kw_only=True)
class HealthState(FeatureState):
    name: ClassVar[str] = "health"
    of_one_attempt: ClassVar[bool] = True

    shown: Health | None = None  # None: no problem so far
    ts: str | None = None  # of the message about it
    fingerprint: str = ""  # of that message in Slack
    examined: tuple[str, ...] = ()  # trials whose failure was diagnosed
    alike: dict[str, tuple[str, int]] = field(default_factory=dict)  # by cause: first trial, number of others
