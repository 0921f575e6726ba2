"""Who can start sweeps, and the most that one can request: `limits:` and `launch:` of the configuration."""

from dataclasses import dataclass

from bot.config.policy_keys import (
    A_MINUTE,
    LAUNCH_KEYS,
    LIMIT_KEYS,
    MAX_GPUS_PER_TRIAL,
    MAX_GRACE_SECONDS,
    MAX_HOURS,
    MAX_NODES_PER_TRIAL,
    MAX_PARALLEL,
    MAX_TRIALS,
)
from bot.config.teams import read_channel, read_member
from bot.config.yaml_reader import Node, entries


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Maximum request of one sweep."""

    gpus_per_trial: int = MAX_GPUS_PER_TRIAL  # on each of its nodes
    nodes_per_trial: int = MAX_NODES_PER_TRIAL
    parallel: int = MAX_PARALLEL
    trials: int = MAX_TRIALS
    trial_hours: float | None = None
    grace_seconds: int = MAX_GRACE_SECONDS  # from SIGTERM to SIGKILL; GPUs stay allocated meanwhile


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Who can start sweeps and where; empty allows everyone everywhere. Admins always can."""

    channels: tuple[str, ...] = ()  # Slack channel ids
    people: tuple[str, ...] = ()  # Slack user ids
    gpus: int | None = None  # peak of one sweep; a team's own limit takes precedence
    gpus_per_person: int | None = None  # peak of all active sweeps of one person


def read_limits(node: Node | None) -> Limits:
    """Return `limits:`; each limit that is missing has its default."""
    keys = node.mapping(LIMIT_KEYS) if node else {}
    default = Limits()
    return Limits(
        gpus_per_trial=_limit(keys.get("gpus_per_trial"), 0, default.gpus_per_trial),
        nodes_per_trial=_limit(keys.get("nodes_per_trial"), 1, default.nodes_per_trial),
        parallel=_limit(keys.get("parallel"), 1, default.parallel),
        trials=_limit(keys.get("trials"), 1, default.trials),
        trial_hours=read_hours(keys.get("trial_hours"), default.trial_hours),
        grace_seconds=_limit(keys.get("grace_seconds"), 1, default.grace_seconds),
    )


def read_launch(node: Node | None) -> Launch:
    """Return `launch:`; without it, everyone can start sweeps everywhere."""
    keys = node.mapping(LAUNCH_KEYS) if node else {}
    return Launch(
        channels=tuple(read_channel(item) for item in entries(keys.get("channels"))),
        people=tuple(read_member(item) for item in entries(keys.get("people"))),
        gpus=_limit(keys["gpus"], 0, 0) if "gpus" in keys else None,
        gpus_per_person=_limit(keys["gpus_per_person"], 0, 0) if "gpus_per_person" in keys else None,
    )


def _limit(node: Node | None, least: int, default: int) -> int:
    if node is None:
        return default
    before, limit = len(node.errors), node.whole()
    if limit < least and len(node.errors) == before:
        node.error(f"must be at least {least}; got {limit}")
    return limit


def read_hours(node: Node | None, most: float | None) -> float | None:
    """Return the run time limit of a trial in hours: `most` by default, and never more."""
    if node is None:
        return most
    before = len(node.errors)
    hours = float(node.number())
    if len(node.errors) > before:
        return most
    if hours < A_MINUTE:
        node.error(f"must be at least {A_MINUTE:.3f} (one minute); got {hours:g}")
    elif hours > MAX_HOURS:
        node.error(f"must be at most {MAX_HOURS}. Omit it for no limit.")
    elif most and hours > most:
        node.error(f"can be at most {most:g} on this cluster (limits.trial_hours); got {hours:g}")
    return hours
