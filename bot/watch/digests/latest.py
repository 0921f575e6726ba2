"""Each channel's latest digest, kept in Redis for the home tab and `/gpus digest`."""

from dataclasses import dataclass
from datetime import date, timedelta

from redis.asyncio import Redis

from bot.core.stored_format import cached, late_adapter
from bot.platform.slack.mrkdwn import link, plain

RETENTION = timedelta(days=40)


@dataclass(frozen=True, kw_only=True)
class LatestDigest:
    day: date
    headline: str  # plain text
    link: str

    @property
    def linked(self) -> str:
        """The headline in mrkdwn, which links to the digest."""
        return link(self.link, self.headline) if self.link else plain(self.headline)


_LATEST = late_adapter(LatestDigest)


async def latest_digest(redis: Redis, channel: str) -> LatestDigest | None:
    """Return the channel's latest digest; None if none was posted within 40 days."""
    return cached(_LATEST, await redis.get(_key(channel)))


async def save_latest(redis: Redis, channel: str, digest: LatestDigest) -> None:
    await redis.set(_key(channel), _LATEST.dump_json(digest), ex=RETENTION)


def _key(channel: str) -> str:
    return f"sweepbot:digest:{channel}"
