"""Wake sweeps when the cluster changes: at once for a first change, then every moment for those that follow.

Changes come in bursts: a trial that starts changes a Trial, a Job, and a pod several times each.

Every worker sees every change, and the leader wakes the sweep. In the others, the change waits for
BACKUP_SECONDS, and until the next full second, so that one call looks for all whether the leader has missed
them. A worker that reconciled the sweep a moment ago looks at once: the leader may have known the change
earlier, and that reconcile may have read older objects.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from redis.exceptions import RedisError

from bot.core.work_item import WorkItem
from bot.platform.storage.redis_client import REDIS_RETRY
from bot.platform.storage.work_queue import Lease
from bot.sweep.clients import SweepClients
from k8s.api.cache import Change, Group
from k8s.objects import SWEEP_LABEL

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.2  # after a first wake; further changes of the same sweep are one wake
BUSY_SECONDS = 0.1  # after a wake that followed on another one: a long sweep changes all the time
BACKUP_SECONDS = 1.0  # from a change until a worker that doesn't lead looks whether it was missed
MAX_STARTED = 10_000  # sweeps whose last reconcile is remembered
_NEVER = -math.inf, -math.inf


@dataclass(frozen=True, slots=True)
class _Pending:
    live: bool  # one of the group's objects is
    version: float  # the greatest resourceVersion of its changes
    since: float  # when the first of them came

    def __or__(self, other: "_Pending") -> "_Pending":
        live, version = self.live or other.live, max(self.version, other.version)
        return _Pending(live, version, min(self.since, other.since))


class Wakes:
    """`leads`: this worker wakes at once."""

    def __init__(self, clients: SweepClients, clock: Callable[[], float] = monotonic) -> None:
        self._clients, self._clock = clients, clock
        self.leads = True
        self._pending: dict[Group, _Pending] = {}
        self._listed: set[str] = set()  # sweeps with a live object in a first list
        self._next: dict[Group, float] = {}  # not before; dropped BATCH_SECONDS later
        self._started: dict[str, tuple[float, float]] = {}  # reconciles here: when, by `clock` and by Redis
        self._has_work = asyncio.Event()

    def add(self, change: Change) -> None:
        label, value = change.group
        is_first = not self._pending
        if not change.initial:
            self._keep(change.group, _Pending(change.live, change.version, self._clock()))
        elif change.live and label == SWEEP_LABEL:
            self._listed.add(value)
        # The loop already waits for those before, which aren't due later than a backup that came after them.
        if change.initial or is_first or not self._waits(change.group):
            self._has_work.set()

    def started(self, lease: Lease) -> None:
        """Note that a reconcile starts here: it reads all changes of its sweep so far."""
        sweep = lease.item.key
        self._started.pop(sweep, None)
        self._started[sweep] = self._clock(), lease.since
        if len(self._started) > MAX_STARTED:
            del self._started[next(iter(self._started))]
        if not self.leads:
            self._pending.pop((SWEEP_LABEL, sweep), None)

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
        due = {group: each for group, each in self._pending.items() if self._due(group) <= now}
        listed, self._listed = self._listed, set()
        for group in due:
            del self._pending[group]
        try:
            strays = listed - await self._active(listed)  # ended; the resync wakes the others
            if woken := await self._concerned(due) | strays:
                await self._clients.queue.wake({WorkItem.sweep(each): self._why(each, due) for each in woken})
        except RedisError:
            self._listed |= listed
            for group, each in due.items():
                self._keep(group, each)
            raise
        pauses = ((group, BUSY_SECONDS if group in self._next else BATCH_SECONDS) for group in due)
        self._next |= {group: now + pause for group, pause in pauses}

    def _keep(self, group: Group, change: _Pending) -> None:
        known = self._pending.get(group)
        self._pending[group] = known | change if known else change

    def _due(self, group: Group) -> float:
        at = self._next.get(group, -math.inf)
        since = self._pending[group].since + BACKUP_SECONDS
        return max(at, math.ceil(since)) if self._waits(group) else at

    def _waits(self, group: Group) -> bool:
        """Return whether the leader's wake is waited for."""
        label, value = group
        if self.leads or label != SWEEP_LABEL:
            return False
        started, _ = self._started.get(value, _NEVER)
        return self._pending[group].since - started > BACKUP_SECONDS

    def _pause(self) -> float | None:
        """Return the seconds until the next wake is due; None if nothing is pending."""
        due = [self._due(group) - self._clock() for group in self._pending]
        return max(min(due), 0.0) if due else None

    def _why(self, sweep: str, due: Mapping[Group, _Pending]) -> tuple[float, float]:
        """Return what `Queue.wake` takes: the leader wakes in any case, the others what it missed.

        Without the lead, changes that are due came after the start of this worker's last reconcile. If that
        start followed on a wake for them, the reconcile was too early.
        """
        change, (_, started) = due.get((SWEEP_LABEL, sweep)), self._started.get(sweep, _NEVER)
        return change.version if change else math.inf, math.inf if self.leads else started

    async def _concerned(self, due: Mapping[Group, _Pending]) -> set[str]:
        """Return unfinished sweeps, and finished ones with live objects: a paused worker can submit late."""
        sweeps = {value: each.live for (label, value), each in due.items() if label == SWEEP_LABEL}
        found = {sweep for sweep, live in sweeps.items() if live}
        found |= await self._active(sweeps.keys() - found)
        for label, build in due:
            if label != SWEEP_LABEL:
                found |= await self._clients.store.concerned_by(build)
        return found

    async def _active(self, sweeps: Iterable[str]) -> set[str]:
        found = sorted(sweeps)
        return await self._clients.store.active_of(found) if found else set()
