"""Who can start sweeps, and the most that one can request: `limits:` and `launch:` of the configuration."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bot.platform.config.rules import Key, Several
from bot.platform.config.section import Section
from bot.platform.config.value_types import Channel, Member, Number, Whole

A_MINUTE, MAX_HOURS = 1 / 60, 2**31 // 3600  # hours; Kubernetes rejects deadlines of 2**31 seconds or more


def _hours(hours: float) -> float:
    if hours < A_MINUTE:
        raise ValueError(f"must be at least {A_MINUTE:.3f} (one minute); got {hours:g}")
    if hours > MAX_HOURS:
        raise ValueError(f"must be at most {MAX_HOURS}. Omit it for no limit.")
    return hours


Hours = Annotated[
    Number,
    AfterValidator(_hours),
    WithJsonSchema({"type": "number", "minimum": A_MINUTE, "maximum": MAX_HOURS}),
]


@dataclass(frozen=True, kw_only=True)
class Limits(Section):
    """Maximum request of one sweep."""

    gpus_per_trial: Annotated[Whole, Key("4", least=0)] = 8
    """Maximum GPUs of one trial on each of its nodes."""
    nodes_per_trial: Annotated[Whole, Key("16", least=1)] = 8
    """Maximum nodes of one trial."""
    parallel: Annotated[Whole, Key("8", least=1)] = 16
    """Maximum parallel trials of one sweep; `parallel=auto` grows up to it."""
    trials: Annotated[Whole, Key("200", least=1)] = 500
    """Maximum trials of one sweep."""
    trial_hours: Annotated[Hours | None, Key("24", "no limit")] = None
    """Maximum run time of one trial, in hours."""
    # From SIGTERM to SIGKILL; GPUs stay allocated meanwhile.
    grace_seconds: Annotated[Whole, Key("900", least=1)] = 600
    """Maximum `trials.grace_seconds` of a space file."""


@dataclass(frozen=True, kw_only=True)
class Launch(Section):
    """Who can start sweeps and where; empty allows everyone everywhere. Admins always can."""

    channels: Annotated[Several[Channel], Key("[C012ABC]", "all")] = ()
    """Slack channels where sweeps can be started."""
    people: Annotated[Several[Member], Key("[U012ABC]", "everyone")] = ()
    """Slack users who can start sweeps."""
    gpus: Annotated[Whole | None, Key("16", "no limit", least=0)] = None
    """Maximum peak GPUs of one sweep: parallel trials × nodes × GPUs per node."""
    gpus_per_person: Annotated[Whole | None, Key("32", "no limit", least=0)] = None
    """Maximum peak GPUs of all active sweeps of one person."""
