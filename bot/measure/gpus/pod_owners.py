"""Store who owns each pod: hours are measured when their pods, and the pods' labels, are gone.

usage:<cluster>:owners:<2026-11-20>   hash: namespace/pod -> owner, team, sweep, trial; expires after 9 days
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from redis.asyncio import Redis

from bot.core.stored_format import cached
from bot.platform.config.teams import Team, team_of
from k8s.objects import OWNER_LABEL, SWEEP_LABEL, TEAM_LABEL
from k8s.trial_kinds import TRIAL_LABEL

RETENTION = timedelta(days=9)  # missing hours are measured at most eight days later

PodKey = tuple[str, str]  # namespace and pod


@dataclass(frozen=True, kw_only=True)
class Ownership:
    owner: str = ""
    team: str = ""
    sweep: str = ""
    trial: str = ""


UNOWNED = Ownership()
_OWNERSHIP: TypeAdapter[Ownership] = TypeAdapter(Ownership)


def by_labels(labels: Mapping[str, str]) -> Ownership:
    return Ownership(
        owner=labels.get(OWNER_LABEL, ""),
        team=labels.get(TEAM_LABEL, ""),
        sweep=labels.get(SWEEP_LABEL, ""),
        trial=labels.get(TRIAL_LABEL, ""),
    )


def merged(first: Ownership, second: Ownership) -> Ownership:
    """Return each field from the first, or from the second if it is empty there."""
    return Ownership(**{name: value or getattr(second, name) for name, value in vars(first).items()})


class OwnerStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, teams: Callable[[], tuple[Team, ...]], cluster: str = "main") -> None:
        self._redis, self._teams, self._prefix = redis, teams, f"usage:{cluster}:owners:"

    async def save(self, at: datetime, pods: Mapping[PodKey, Ownership]) -> None:
        """Add to the owners of that day."""
        known: dict[Any, Any] = {"/".join(p): json.dumps(vars(o)) for p, o in pods.items() if o != UNOWNED}
        if not known:
            return
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(self._key(at), mapping=known)
            steps.expire(self._key(at), RETENTION)
            await steps.execute()

    async def owners(
        self, at: datetime, pods: Iterable[PodKey], labeled: Mapping[PodKey, Ownership]
    ) -> dict[PodKey, Ownership]:
        """Return the owners of that day's pods; each field from `labeled`, or else as stored.

        kube-state-metrics exports only the labels that it is configured to, so one label doesn't prove that
        the others are absent. The day before counts too: just after midnight, nothing is stored yet. A pod
        without a team has the team of its namespace, or else of its owner.
        """
        known = list(pods)
        names, days = ["/".join(pod) for pod in known], (at, at - timedelta(days=1))
        stored = [await self._redis.hmget(self._key(day), names) for day in days] if names else ((), ())
        texts = [today or before for today, before in zip(*stored, strict=True)]
        return await asyncio.to_thread(self._combined, known, texts, labeled)

    def _combined(
        self, pods: list[PodKey], texts: list[bytes | None], labeled: Mapping[PodKey, Ownership]
    ) -> dict[PodKey, Ownership]:
        found = {}
        for pod, text in zip(pods, texts, strict=True):
            saved = cached(_OWNERSHIP, text) or UNOWNED
            owner = merged(labeled.get(pod, UNOWNED), saved)
            found[pod] = replace(owner, team=owner.team or team_of(self._teams(), pod[0], owner.owner))
        return found

    def _key(self, at: datetime) -> str:
        return f"{self._prefix}{at.astimezone(UTC):%Y-%m-%d}"
