"""Read the metrics of running trials: per sweep and period one search in MLflow, or a piece of each log.

A reconcile gets the last reading from Redis and never waits for the next one. If the next reading is due, it
starts it; a reading with new values wakes the sweep. All workers share the readings and the period.

    live:<id>        the last reading                  RETENTION
    live-log:<id>    by trial: how far it was read     RETENTION
    live-due:<id>    set until the next one is due     PERIOD
    live-soon:<id>   the same, of trials without value SOON
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.curves import MAX_FAILURES, Curve, LiveReading, Point
from bot.core.plan import SweepPlan
from bot.core.space import SearchSpace
from bot.core.stopping import at_rungs
from bot.core.stored_format import cached, late_adapter
from bot.platform.storage.work_queue import text
from bot.sweep.results.log_curves import LogCurve, LogQuery, LogReader, LogSource
from bot.sweep.results.tracking_api import TrackingApi, TrackingError

log = logging.getLogger(__name__)

SOON = timedelta(seconds=15)  # of the logs of trials without a value
MAX_SOON = 5  # such logs in one reading
PERIOD = timedelta(minutes=1)  # Katib's collector of TensorBoard's files reports once, at the end
RETENTION = timedelta(hours=1)
MAX_READINGS = 50  # at once, per worker; the others are read in their next period
ON_DEMAND_TIMEOUT = 8.0  # seconds until a command is answered without curves
MAX_CURVES = 100  # in one chart
READING_POINTS = 500  # of one curve
MAX_WANTED = 100  # curves in one reading; the next one, a minute later, has the others

# Returns whether each reading is due, and the last one. A pipeline takes the client twice the CPU time.
_LOOK = """
local due, soon, last = unpack(redis.call('MGET', unpack(KEYS)))
due = not due and redis.call('SET', KEYS[1], 1, 'EX', ARGV[1])
soon = not soon and redis.call('SET', KEYS[2], 1, 'EX', ARGV[2])
return {due, soon, last}
"""
_READING, _LOG = late_adapter(LiveReading), late_adapter(LogCurve)
T = TypeVar("T")
# Returns the trials whose curves to read, given each trial's latest point.
Wanted = Callable[[Mapping[str, Point]], set[str]]


class LiveValues:
    """`wake` queues a sweep, by its ID, when a reading has new values."""

    def __init__(
        self,
        redis: Redis,
        api: TrackingApi,
        logs: LogReader,
        wake: Callable[[str], Awaitable[None]],
    ) -> None:
        self._redis, self._api, self._logs, self._wake = redis, api, logs, wake
        self._look = redis.register_script(_LOOK)
        # Separate threads: a server that doesn't answer must not block the threads of name resolution.
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="mlflow-live")
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by sweep

    async def read(
        self,
        sweep_id: str,
        plan: SweepPlan,
        wanted: Wanted,
        query: LogQuery | None = None,
        *,
        url: str = "",
        since: float = 0.0,
    ) -> LiveReading:
        """Return the last reading, and start the next one if it is due: of the logs if there is a query.

        Args:
            url: of the sweep's runs in MLflow, or "".
            since: Unix seconds when the oldest active trial started. Of trials that had ended by the last
                reading, MLflow isn't asked again.
        """
        keys = [self._key(name, sweep_id) for name in ("live-due", "live-soon", "live")]
        due, soon, stored = await self._look(keys, [int(each.total_seconds()) for each in (PERIOD, SOON)])
        before = cached(_READING, stored) or LiveReading()
        partly = bool(soon and not due and query and query.new - before.latest.keys())
        if (due or partly) and sweep_id not in self._tasks and len(self._tasks) < MAX_READINGS:
            call = partial(self._reading, plan, wanted, before, url, since)
            task = asyncio.create_task(self._next(sweep_id, call, before, wanted, query, partly=partly))
            self._tasks[sweep_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(sweep_id))
        return before

    async def curves(
        self, plan: SweepPlan, metric: str, points: int, url: str = ""
    ) -> tuple[dict[str, Curve], frozenset[str]]:
        """Return the curves of the MAX_CURVES trials that logged last, and the names of all that they log.

        Raises TrackingError, also if MLflow doesn't answer within ON_DEMAND_TIMEOUT seconds. `points`: of a
        curve at most. `url`: of the sweep's runs, or "".
        """
        return await self._on_demand(partial(self._curves, plan, metric, points, url))

    async def logged(self, sweep_id: str, query: LogQuery, other: str = "") -> dict[str, LogCurve]:
        """Return what is in these logs, read for up to ON_DEMAND_TIMEOUT seconds. Raises RedisError.

        `other`: read this metric instead of those of the query, the only ones that are remembered.
        """
        known: dict[str, LogCurve] = {}
        if other:
            query = replace(query, metric=other, more=(), strategy="latest", rungs=frozenset())
        else:
            known = await self._in_thread(partial(_parsed_logs, await self._stored_logs(sweep_id)))
        read = await self._logs.read(known, query, time.monotonic() + ON_DEMAND_TIMEOUT)
        return {trial: each for trial, each in read.items() if trial in query.trials}

    async def curves_of(self, trials: Mapping[str, str], metric: str, points: int) -> dict[str, Curve]:
        """Return the curves of these runs, as `curves` does. `trials`: by run ID."""
        return await self._on_demand(partial(self._api.curves, trials, metric, most=points))

    async def _on_demand(self, call: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(ON_DEMAND_TIMEOUT):
                return await self._in_thread(call)
        except TimeoutError:
            why = f"no answer within {ON_DEMAND_TIMEOUT:g} s; runs with many metrics take longer"
            raise TrackingError(why) from None

    def _curves(
        self, plan: SweepPlan, metric: str, points: int, url: str
    ) -> tuple[dict[str, Curve], frozenset[str]]:
        runs = self._api.runs(plan.results_name, metric, url).values()
        last = sorted(runs, key=lambda run: run.latest.at, reverse=True)[:MAX_CURVES]
        curves = self._api.curves({run.id: run.trial for run in last}, metric, most=points)
        return curves, frozenset(name for run in last for name in run.names)

    async def _next(
        self,
        sweep_id: str,
        of_mlflow: Callable[[], LiveReading],
        before: LiveReading,
        wanted: Wanted,
        query: LogQuery | None,
        *,
        partly: bool,
    ) -> None:
        """Read on, and store the reading. `partly`: only the logs of some new trials without a value."""
        at = time.time()
        try:
            try:
                if query and partly:
                    some = replace(query, sources=_without_value(query, before))
                    found = await self._from_logs(sweep_id, some, lambda _: set())
                    # Early stopping compares trials, and needs a reading of all.
                    reading, at = replace(before, latest=found.latest), before.at
                elif query:
                    reading = await self._from_logs(sweep_id, query, wanted)
                else:
                    reading = await self._in_thread(of_mlflow)
            except TrackingError as error:
                log.warning("no live values of %s: %s", sweep_id, error)
                failures = before.failures + 1
                reading = LiveReading(latest=before.latest, since=before.since, failures=failures)
            new = _READING.dump_json(replace(reading, at=at))
            await self._redis.set(self._key("live", sweep_id), new, px=RETENTION)
            if _values(reading) != _values(before) and reading.failures in {0, MAX_FAILURES}:
                await self._wake(sweep_id)
        except RedisError as error:
            log.warning("live values of %s are read again later: %s", sweep_id, error)

    def _reading(
        self, plan: SweepPlan, wanted: Wanted, before: LiveReading, url: str, since: float
    ) -> LiveReading:
        metric = plan.space.metric
        runs = self._api.runs(plan.results_name, metric, url, before.since)
        latest = {trial: run.latest for trial, run in runs.items()}
        trials = {runs[trial].id: trial for trial in sorted(wanted(latest))}
        found = self._api.curves(trials, metric, most=READING_POINTS) if trials else {}
        return LiveReading(
            read=True,
            latest={**before.latest, **latest},
            curves=_at_rungs(plan.space, found),
            since=before.since if len(trials) >= MAX_WANTED else since,  # some curves are still to be read
        )

    async def _from_logs(self, sweep_id: str, query: LogQuery, wanted: Wanted) -> LiveReading:
        key = self._key("live-log", sweep_id)
        stored = await self._stored_logs(sweep_id)
        read = await self._logs.read(await self._in_thread(partial(_parsed_logs, stored)), query)
        changed = await self._in_thread(partial(_changed_logs, read, stored))
        async with self._redis.pipeline(transaction=False) as both:
            for trial, new in changed.items():
                both.hset(key, trial, new)
            both.pexpire(key, RETENTION)
            await both.execute()
        latest = {trial: each.latest for trial, each in read.items() if each.latest}
        curves = {trial: read[trial].points for trial in sorted(wanted(latest))}
        return LiveReading(read=True, latest=latest, curves=curves)

    async def _stored_logs(self, sweep_id: str) -> dict[str, bytes | str]:
        found = await self._redis.hgetall(self._key("live-log", sweep_id))
        return {text(trial): each for trial, each in found.items()}

    async def _in_thread(self, call: Callable[[], T]) -> T:
        run = copy_context().run  # the call belongs to this sweep, too
        return await asyncio.get_running_loop().run_in_executor(self._threads, run, call)

    def _key(self, name: str, sweep_id: str) -> str:
        return f"sweepbot:{name}:{sweep_id}"


def _without_value(query: LogQuery, before: LiveReading) -> tuple[LogSource, ...]:
    waiting = query.new - before.latest.keys()
    return tuple(islice((s for s in query.sources if s.trial in waiting), MAX_SOON))


def _at_rungs(space: SearchSpace, curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return what a reconcile needs of the curves: it parses the reading on the event loop."""
    rule, strategy = space.stopping, space.strategies[space.metric]
    return {trial: at_rungs(rule, strategy, curve) for trial, curve in curves.items()} if rule else {}


def _values(reading: LiveReading) -> bytes:
    """Return what a reading says, whenever it was made; as text, because NaN differs from itself."""
    return _READING.dump_json(reading, exclude={"at", "since"})


def _parsed_logs(stored: Mapping[str, bytes | str]) -> dict[str, LogCurve]:
    """Parse each trial's on its own: thousands in one call would block the interpreter's other threads."""
    found = {trial: cached(_LOG, each) for trial, each in stored.items()}
    return {trial: curve for trial, curve in found.items() if curve}


def _changed_logs(read: Mapping[str, LogCurve], stored: Mapping[str, bytes | str]) -> dict[str, bytes]:
    """Return what differs from the stored form; as text, because NaN differs from itself."""
    texts = {trial: _LOG.dump_json(curve) for trial, curve in read.items()}
    return {trial: each for trial, each in texts.items() if stored.get(trial) != each}
