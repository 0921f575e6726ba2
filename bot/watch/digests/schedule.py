"""Queue digests when they are due: every worker has a clock, and all of them queue the same item.

A due digest is queued on the hour, and again every few minutes during the grace period, in case no worker ran
at that hour or Redis lost the item. The job itself checks what was already posted.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from redis.exceptions import RedisError

from bot.platform.config.digest_times import DigestSchedule
from bot.platform.storage.work_queue import Queue
from bot.watch.digests.post import ReadSchedules, item
from k8s.api.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)
logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it would log each check

GRACE = timedelta(hours=3)  # after that, a digest is skipped and listed as missed in the next one
CHECK_INTERVAL = timedelta(minutes=10)


class Schedule:
    def __init__(self, queue: Queue, digest_schedules: ReadSchedules, now: Callable[[], datetime]) -> None:
        self._queue, self._read_schedules, self._now = queue, digest_schedules, now
        defaults = {"coalesce": True, "misfire_grace_time": round(GRACE.total_seconds())}
        self._clock = AsyncIOScheduler(timezone=UTC, job_defaults=defaults)

    async def run(self) -> None:
        """Queue digests until cancelled."""
        self._clock.add_job(self.refresh, IntervalTrigger(seconds=round(CHECK_INTERVAL.total_seconds())))
        self._clock.start()
        try:
            await self.refresh()
            await asyncio.Event().wait()
        finally:
            self._clock.shutdown(wait=False)

    async def refresh(self) -> None:
        """Reload the schedules, and queue each digest that is due."""
        try:
            known = {each.channel: each for each in await self._read_schedules()}
            for gone in {job.id for job in self._clock.get_jobs() if job.args} - set(known):
                self._clock.remove_job(gone)
            for channel, each in known.items():
                trigger = CronTrigger(hour=each.hour, minute=0, timezone=each.zone)
                self._clock.add_job(self.queue, trigger, [each], id=channel, replace_existing=True)
                await self.queue(each)
        except (ApiError, UnreachableError, RedisError) as error:
            log.warning("can't schedule digests: %s", error)

    async def queue(self, one: DigestSchedule) -> None:
        """Queue the digest that is due, if one is."""
        if (day := self._due(one)) is None:
            return
        try:
            await self._queue.add(item(one.channel, day))
        except RedisError as error:
            log.warning("can't queue a digest; next attempt in %s: %s", CHECK_INTERVAL, error)

    def _due(self, one: DigestSchedule) -> date | None:
        """Return the day that the due digest is about. The grace period can last beyond midnight."""
        now = self._now()
        yesterday = one.day(now)
        for day in (yesterday, yesterday - timedelta(days=1)):
            hour = datetime.combine(day + timedelta(days=1), time(one.hour), one.zone)
            if timedelta(0) <= now - hour.astimezone(UTC) < GRACE:
                return day
        return None
