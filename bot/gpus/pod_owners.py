"""Whose a pod is: by its labels while it lives, and remembered: hours are told when their pods are gone.

usage:<cluster>:owners:<2026-11-20>   hash: namespace/pod -> owner, team, sweep, trial; expires after 9 days
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from bot.config.teams import Team, team_of
from k8s.katib.spec import TRIAL_LABEL
from k8s.objects import OWNER_LABEL, SWEEP_LABEL, TEAM_LABEL

KEPT = timedelta(days=9)  # hours that were missed are filled in eight days later at most

Place = tuple[str, str]  # namespace and pod


@dataclass(frozen=True, kw_only=True)
class Ownership:
    owner: str = ""
    team: str = ""
    sweep: str = ""
    trial: str = ""


NOBODYS = Ownership()


def by_labels(labels: Mapping[str, str]) -> Ownership:
    return Ownership(
        owner=labels.get(OWNER_LABEL, ""),
        team=labels.get(TEAM_LABEL, ""),
        sweep=labels.get(SWEEP_LABEL, ""),
        trial=labels.get(TRIAL_LABEL, ""),
    )


def merged(first: Ownership, second: Ownership) -> Ownership:
    """Return each field as the first says, else as the second."""
    return Ownership(**{name: value or getattr(second, name) for name, value in vars(first).items()})


class Owners:
    def __init__(self, redis: Redis, teams: tuple[Team, ...], cluster: str = "main") -> None:
        self._redis, self._teams, self._prefix = redis, teams, f"usage:{cluster}:owners:"

    async def remember(self, at: datetime, pods: Mapping[Place, Ownership]) -> None:
        known: dict[Any, Any] = {"/".join(p): json.dumps(vars(w)) for p, w in pods.items() if w != NOBODYS}
        if not known:
            return
        async with self._redis.pipeline(transaction=True) as steps:
            steps.hset(self._key(at), mapping=known)
            steps.expire(self._key(at), KEPT)
            await steps.execute()

    async def of(
        self, at: datetime, places: Iterable[Place], said: Mapping[Place, Ownership]
    ) -> dict[Place, Ownership]:
        """Of that day's pods, by field: as `said`, else as remembered; the team by namespace or person.

        kube-state-metrics exports only the labels that it is told to, so one that is there proves nothing of
        the others. Just after midnight that is as they were the day before, until somebody has looked again.
        """
        names = {"/".join(place): place for place in places}
        days = (at, at - timedelta(days=1))
        kept = [await self._redis.hmget(self._key(day), list(names)) for day in days] if names else ((), ())
        found = {}
        for place, today, before in zip(names.values(), *kept, strict=True):
            text = today or before
            remembered = Ownership(**json.loads(text)) if text else NOBODYS
            whose = merged(said.get(place, NOBODYS), remembered)
            found[place] = replace(whose, team=whose.team or team_of(self._teams, place[0], whose.owner))
        return found

    def _key(self, at: datetime) -> str:
        return f"{self._prefix}{at.astimezone(UTC):%Y-%m-%d}"
