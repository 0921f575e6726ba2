"""When digests are due: every worker has a clock, and all of them only queue the same item.

What is due was queued by the turn of the hour; looked for again every few minutes for some hours, it also
comes when nobody ran at that hour, or when Redis lost it. The turn knows what was posted already.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from redis.exceptions import RedisError

from bot.config.digest_times import DigestSchedule
from bot.digests.post import Appointments, item
from bot.storage.work_queue import Queue
from k8s.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)
logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it would tell each look

GRACE = timedelta(hours=3)  # later a digest is no news; the next one says that it is missing
LOOK = timedelta(minutes=10)


class Schedule:
    def __init__(self, queue: Queue, digest_schedules: Appointments, now: Callable[[], datetime]) -> None:
        self._queue, self._appointments, self._now = queue, digest_schedules, now
        defaults = {"coalesce": True, "misfire_grace_time": round(GRACE.total_seconds())}
        self._clock = AsyncIOScheduler(timezone=UTC, job_defaults=defaults)

    async def run(self) -> None:
        """Until cancelled."""
        self._clock.add_job(self.look, IntervalTrigger(seconds=round(LOOK.total_seconds())))
        self._clock.start()
        try:
            await self.look()
            await asyncio.Event().wait()
        finally:
            self._clock.shutdown(wait=False)

    async def look(self) -> None:
        """Whose digests there are by now, and which of them are due."""
        try:
            known = {each.channel: each for each in await self._appointments()}
            for gone in {job.id for job in self._clock.get_jobs() if job.args} - set(known):
                self._clock.remove_job(gone)
            for channel, each in known.items():
                trigger = CronTrigger(hour=each.hour, minute=0, timezone=each.zone)
                self._clock.add_job(self.queue, trigger, [each], id=channel, replace_existing=True)
                if self._due(each):
                    await self.queue(each)
        except (ApiError, UnreachableError, RedisError) as error:
            log.warning("digests can't be scheduled: %s", error)

    def _due(self, one: DigestSchedule) -> bool:
        today = self._now().astimezone(one.zone).date()
        hour = datetime.combine(today, time(one.hour), one.zone)
        return timedelta(0) <= self._now() - hour.astimezone(UTC) < GRACE

    async def queue(self, one: DigestSchedule) -> None:
        try:
            await self._queue.add(item(one.channel, one.day(self._now())))
        except RedisError as error:
            log.warning("a digest can't be queued, and is in some minutes: %s", error)
