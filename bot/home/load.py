"""Load the data of a home tab: for the handler when it is opened, and for the worker after a measurement."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from bot.config.policy import Config
from bot.digests.latest import LatestDigest
from bot.form.drafts import Drafts
from bot.gpus.command import answer
from bot.gpus.models import Snapshot
from bot.home.view import HomeFacts, home, shown
from bot.slack.blocks import View
from bot.storage.sweeps import Store


@dataclass(frozen=True, kw_only=True)
class HomeLoader:
    """`last_digest` returns a channel's latest digest. `view` raises RedisError."""

    store: Store
    drafts: Drafts
    last_digest: Callable[[str], Awaitable[LatestDigest | None]]
    config: Config

    async def view(
        self, user: str, site: str, gpus: Snapshot | None, note: str, now: datetime, cancelled: str = ""
    ) -> View:
        """`note` appears below the GPU data or in its place; `cancelled`: a sweep whose cancel is queued."""
        last = await self.drafts.last(user)
        channels = [last.channel] if last else []
        channels += [each.channel for each in self.config.digests]
        digests = [found for channel in dict.fromkeys(channels) if (found := await self.last_digest(channel))]
        free = answer("free", gpus, user, now) if gpus else ""
        sweeps = await self.store.listed()
        records = await self.store.records(shown(user, sweeps, self.config))
        seen = HomeFacts(
            sweeps=sweeps,
            records={record.id: record for record in records},
            gpus="\n".join(line for line in (free, note) if line),
            digest=digests[0].headline if digests else "",
            digest_link=digests[0].link if digests else "",
            site=site,
            cancelled=cancelled,
        )
        return home(user, seen, self.config)
