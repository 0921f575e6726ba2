"""Wake sweeps when the cluster changes: at once for a first change, then every moment for those that follow.

Changes come in bursts: a trial that starts changes a Trial, a Job, and a pod several times each.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic

from redis.exceptions import RedisError

from bot.platform.storage.redis_client import REDIS_RETRY
from bot.sweep.clients import SweepClients
from k8s.api.cache import Change, Group
from k8s.objects import SWEEP_LABEL

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.2  # after a first wake; further changes of the same sweep are one wake
BUSY_SECONDS = 0.1  # after a wake that followed on another one: a long sweep changes all the time


class Wakes:
    def __init__(self, clients: SweepClients, clock: Callable[[], float] = monotonic) -> None:
        self._clients, self._clock = clients, clock
        self._pending: dict[Group, bool] = {}  # by group: whether one of its objects is live
        self._listed: set[str] = set()  # sweeps with a live object in a first list
        self._next: dict[Group, float] = {}  # not before; dropped BATCH_SECONDS later
        self._has_work = asyncio.Event()

    def add(self, change: Change) -> None:
        label, value = change.group
        if not change.initial:
            self._pending[change.group] = change.live or self._pending.get(change.group, False)
        elif change.live and label == SWEEP_LABEL:
            self._listed.add(value)
        self._has_work.set()

    async def run(self) -> None:
        """Send wakes until cancelled; keep them while Redis is unreachable."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_work.wait(), self._pause())
            self._has_work.clear()
            try:
                await self.send()
            except RedisError as error:
                log.warning("can't wake sweeps: %s", error)
                self._has_work.set()
                await asyncio.sleep(REDIS_RETRY.seconds())

    async def send(self) -> None:
        """Send the wakes that are due. Raises RedisError, and keeps them pending."""
        now = self._clock()
        self._next = {group: at for group, at in self._next.items() if now - at < BATCH_SECONDS}
        due = {group: live for group, live in self._pending.items() if self._next.get(group, now) <= now}
        listed, self._listed = self._listed, set()
        for group in due:
            del self._pending[group]
        try:
            strays = listed - await self._active(listed)  # ended; the resync wakes the others
            for sweep in await self._concerned(due) | strays:
                await self._clients.wake(sweep)
        except RedisError:
            self._listed |= listed
            for group, live in due.items():
                self._pending[group] = live or self._pending.get(group, False)
            raise
        pauses = ((group, BUSY_SECONDS if group in self._next else BATCH_SECONDS) for group in due)
        self._next |= {group: now + pause for group, pause in pauses}

    def _pause(self) -> float | None:
        """Return the seconds until the next wake is due; None if nothing is pending."""
        due = [self._next.get(group, -math.inf) - self._clock() for group in self._pending]
        return max(min(due), 0.0) if due else None

    async def _concerned(self, due: dict[Group, bool]) -> set[str]:
        """Return unfinished sweeps, and finished ones with live objects: a paused worker can submit late."""
        sweeps = {value: live for (label, value), live in due.items() if label == SWEEP_LABEL}
        found = {sweep for sweep, live in sweeps.items() if live}
        found |= await self._active(sweeps.keys() - found)
        for label, build in due:
            if label != SWEEP_LABEL:
                found |= await self._clients.store.concerned_by(build)
        return found

    async def _active(self, sweeps: Iterable[str]) -> set[str]:
        found = sorted(sweeps)
        return await self._clients.store.active_of(found) if found else set()
