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
from bot.platform.storage.work_queue import Lease, Wake
from bot.sweep.clients import SweepClients
from k8s.api.cache import Change, Group
from k8s.objects import SWEEP_LABEL

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.2  # after a first wake; further changes of the same sweep are one wake
BUSY_SECONDS = 0.1  # after a wake that followed on another one: a long sweep changes all the time
BACKUP_SECONDS = 1.0  # from a change until a worker that doesn't lead looks whether it was missed
MAX_STARTED = 10_000  # sweeps whose last reconcile is remembered
_NEVER = -math.inf, -math.inf
_UNKNOWN = {"": math.inf}  # versions


@dataclass(slots=True)
class _Pending:
    live: bool  # one of the group's objects is
    versions: Mapping[str, float]  # the greatest resourceVersion of its changes, by kind
    since: float  # when the first of them came

    def __or__(self, other: "_Pending") -> "_Pending":
        newer = {kind: max(each, self.versions.get(kind, each)) for kind, each in other.versions.items()}
        return _Pending(self.live or other.live, {**self.versions, **newer}, min(self.since, other.since))


def _keep(groups: dict[Group, _Pending], group: Group, change: _Pending) -> None:
    known = groups.get(group)
    groups[group] = known | change if known else change


def _backup_at(held: _Pending) -> int:
    return math.ceil(held.since + BACKUP_SECONDS)


class Wakes:
    """`leads`: this worker wakes at once."""

    def __init__(self, clients: SweepClients, clock: Callable[[], float] = monotonic) -> None:
        self._clients, self._clock = clients, clock
        self.leads = True
        self._pending: dict[Group, _Pending] = {}  # to be woken as soon as `_next` allows
        self._held: dict[Group, _Pending] = {}  # those that wait for the leader, the oldest first
        self._listed: set[str] = set()  # sweeps with a live object in a first list
        self._next: dict[Group, float] = {}  # not before; dropped BATCH_SECONDS later
        self._started: dict[str, tuple[float, float]] = {}  # reconciles here: when, by `clock` and by Redis
        self._has_work = asyncio.Event()

    def add(self, change: Change) -> None:
        label, value = change.group
        now, loop_waits = self._clock(), bool(self._held)  # for an older one
        pending = _Pending(change.live, {change.kind: change.version}, now)
        if change.initial:
            if change.live and label == SWEEP_LABEL:
                self._listed.add(value)
        elif self._waits(change.group, now):
            _keep(self._held, change.group, pending)
            if loop_waits:
                return
        else:
            _keep(self._pending, change.group, pending)
        self._has_work.set()

    def started(self, lease: Lease) -> None:
        """Note that a reconcile starts here: it reads all changes of its sweep so far."""
        sweep = lease.item.key
        self._started.pop(sweep, None)
        self._started[sweep] = self._clock(), lease.since
        if len(self._started) > MAX_STARTED:
            del self._started[next(iter(self._started))]
        self._held.pop((SWEEP_LABEL, sweep), None)
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
        if self._held_until() <= now:
            for group, each in [*self._held.items()]:
                if self.leads or _backup_at(each) <= now:
                    _keep(self._pending, group, self._held.pop(group))
        due = {group: each for group, each in self._pending.items() if self._next.get(group, now) <= now}
        listed, self._listed = self._listed, set()
        for group in due:
            del self._pending[group]
        try:
            strays = listed - await self._active(listed)  # ended; the resync wakes the others
            if found := await self._concerned(due) | dict.fromkeys(strays, _UNKNOWN):
                await self._clients.queue.wake(self._wakes(found))
        except RedisError:
            self._listed |= listed
            for group, each in due.items():
                _keep(self._pending, group, each)
            raise
        pauses = ((group, BUSY_SECONDS if group in self._next else BATCH_SECONDS) for group in due)
        self._next |= {group: now + pause for group, pause in pauses}

    def _waits(self, group: Group, now: float) -> bool:
        """Return whether the leader's wake is waited for."""
        label, value = group
        if self.leads or label != SWEEP_LABEL or group in self._pending:
            return False
        started, _ = self._started.get(value, _NEVER)
        return now - started > BACKUP_SECONDS

    def _held_until(self) -> float:
        oldest = next(iter(self._held.values()), None)
        if oldest is None:
            return math.inf
        return -math.inf if self.leads else _backup_at(oldest)

    def _pause(self) -> float | None:
        """Return the seconds until the next wake is due; None if nothing is pending."""
        due = min((self._next.get(group, -math.inf) for group in self._pending), default=math.inf)
        due = min(due, self._held_until())
        return max(due - self._clock(), 0.0) if due < math.inf else None

    def _wakes(self, found: Mapping[str, Mapping[str, float]]) -> list[Wake]:
        """Return what `Queue.wake` takes: the leader wakes in any case, the others what it missed.

        Without the lead, changes that are due came after the start of this worker's last reconcile. If that
        start followed on a wake for them, the reconcile was too early.
        """
        return [
            Wake(WorkItem.sweep(sweep), versions, math.inf if self.leads else started)
            for sweep, versions in found.items()
            for _, started in [self._started.get(sweep, _NEVER)]
        ]

    async def _concerned(self, due: Mapping[Group, _Pending]) -> dict[str, Mapping[str, float]]:
        """Return unfinished sweeps, and finished ones with live objects: a paused worker can submit late.

        Each has the versions for which it is woken.
        """
        changed = {value: each for (label, value), each in due.items() if label == SWEEP_LABEL}
        live = {sweep for sweep, each in changed.items() if each.live}
        woken = live | await self._active(changed.keys() - live)
        found = {sweep: changed[sweep].versions for sweep in woken}
        for label, build in due:
            if label != SWEEP_LABEL:
                found |= dict.fromkeys(await self._clients.store.concerned_by(build), _UNKNOWN)
        return found

    async def _active(self, sweeps: Iterable[str]) -> set[str]:
        found = sorted(sweeps)
        return await self._clients.store.active_of(found) if found else set()
