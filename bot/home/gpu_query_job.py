"""Run the queue item `gpus: now`: measure, save a snapshot, and answer all queued queries."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.clusters.snapshots import snapshots_elsewhere
from bot.config.clusters import remote
from bot.core.errors import UserError
from bot.core.plan import HOME_CLUSTER
from bot.digests import post
from bot.digests.latest import latest_digest
from bot.digests.post import ReadSchedules, schedule_for
from bot.form.drafts import Drafts
from bot.gpus.billing import bill, bill_file, by_cluster, month
from bot.gpus.command import RESERVATION_VIEWS, VIEWS, ParsedCommand, answer, parse_command
from bot.gpus.hourly_store import HourlyStore
from bot.gpus.models import HALF_HOUR, NoGpuDataError, Snapshot, Source
from bot.gpus.snapshot_store import HOME_TAB, GpuQuery, SnapshotStore
from bot.gpus.sums import Totals
from bot.home.all_clusters import answer_of_all
from bot.home.load import HomeLoader
from bot.home.other_clusters import gpus_elsewhere
from bot.reservations.answer import answer_reservations, reserved_line
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.mrkdwn import link, plain, quoted

log = logging.getLogger(__name__)

DATA_TIMEOUT, RETRY_DELAY = timedelta(seconds=15), timedelta(seconds=2)  # while there is no GPU data
RESPONSE_URL_TTL = timedelta(minutes=30)


class GpuQueryJob:
    def __init__(
        self, clients: Clients, redis: Redis, source: Source, digest_schedules: ReadSchedules
    ) -> None:
        self._clients, self._redis, self._source = clients, redis, source
        self._snapshots, self._hours, self._read_schedules = (
            SnapshotStore(redis),
            HourlyStore(redis),
            digest_schedules,
        )
        self._billed: set[GpuQuery] = set()  # answered in text, while the CSV waits for Slack's rate limit

    async def run(self, _: str) -> timedelta | None:
        queries, error, fresh = await self._snapshots.queries(), "", None
        if not queries or any(self._parse(each).view in VIEWS for each in queries):
            try:
                fresh = await self._measured()
            except NoGpuDataError as why:
                error = f"GPU metrics are unavailable: {quoted(self._clients.mask(str(why)))}"
        later = [each for each in queries if error and self._clients.now() - each.at < DATA_TIMEOUT]
        failures = [await self._settle(each, fresh, error) for each in queries if each not in later]
        for failure in filter(None, failures):
            raise failure
        return RETRY_DELAY if later else None

    async def _settle(self, query: GpuQuery, fresh: Snapshot | None, error: str) -> Exception | None:
        """Answer one query, and return what failed, which is retried until the response_url expires."""
        try:
            if self._clients.now() - query.at < RESPONSE_URL_TTL:
                await self._answer(query, fresh, error)
        except Exception as failure:  # noqa: BLE001 - must not keep others from their answers
            return failure
        await self._snapshots.remove_queries([query])
        return None

    def _parse(self, query: GpuQuery) -> ParsedCommand:
        if query.text == HOME_TAB:
            return ParsedCommand(view="free")
        try:
            return parse_command(query.text, self._clients.config.teams)
        except UserError:  # the team has been removed from the configuration since
            return ParsedCommand(view="free")

    async def _measured(self) -> Snapshot:
        measure, clients = self._source.snapshot(HALF_HOUR), self._clients
        if remote(clients.config.clusters):
            fresh, others = await asyncio.gather(measure, gpus_elsewhere(clients))
        else:
            fresh, others = await measure, ()
        fresh = replace(fresh, reserved=await reserved_line(clients), others=others)
        await self._snapshots.save(fresh)
        return fresh

    async def _answer(self, query: GpuQuery, fresh: Snapshot | None, error: str) -> None:
        parsed, now = self._parse(query), self._clients.now()
        try:
            if query.text == HOME_TAB:
                await self._show_home(query.user, error)
            elif parsed.view == "bill":
                await self._bill(parsed, query)
            elif parsed.view in RESERVATION_VIEWS:
                await self._reservations(parsed, query)
            elif parsed.view == "digest":
                await self._digest(query)
            elif text := error or (answer(parsed.view, fresh, query.user, now) if fresh else ""):
                await self._reply(query, await self._of_all_clusters(parsed.view, text, fresh, query.user))
        except (NotInChannelError, MessageRejectedError, SlackApiError) as refusal:
            log.warning("can't answer /gpus: %s", refusal)

    async def _of_all_clusters(self, view: str, text: str, fresh: Snapshot | None, user: str) -> str:
        """Return the answer about all clusters, where the configuration has some, or else `text`."""
        clients = self._clients
        if fresh is None or view == "free" or not remote(clients.config.clusters):
            return text
        others = await snapshots_elsewhere(clients.config, self._redis, clients.now)
        return answer_of_all(view, fresh, others, user, clients.now())

    async def _show_home(self, user: str, error: str) -> None:
        clients = self._clients
        loader = HomeLoader(
            store=clients.store,
            drafts=Drafts(self._redis),
            last_digest=partial(latest_digest, self._redis),
            config=clients.config,
        )
        site, latest = await clients.slack.workspace_url(), await self._snapshots.latest()
        await clients.slack.publish_home(user, await loader.view(user, site, latest, error, clients.now()))

    async def _bill(self, parsed: ParsedCommand, query: GpuQuery) -> None:
        config, now = self._clients.config, self._clients.now()
        by_name = await self._totals(*month(parsed, now))
        totals = Totals.all(by_name.values()) if len(by_name) > 1 else by_name[HOME_CLUSTER]
        if query not in self._billed:
            place = config.environments.namespace if config.environments else ""
            figures = (parsed, totals, config.prices, config.currency, now, place)
            text = await asyncio.to_thread(bill, *figures)
            if len(by_name) > 1 and totals.groups:
                text += f"\n{by_cluster(parsed, by_name, config.prices, config.currency)}"
            text += "\nFull table sent by direct message." if totals.groups else ""
            await self._reply(query, text)
            self._billed.add(query)
        if totals.groups:
            name = f"gpus-{month(parsed, now)[0]:%Y-%m}.csv"
            table = await asyncio.to_thread(bill_file, parsed, by_name, config.prices)
            await self._clients.slack.send_file(query.user, "GPU bill", name, table)
        self._billed.discard(query)

    async def _reservations(self, parsed: ParsedCommand, query: GpuQuery) -> None:
        who = {"user": query.user, "channel": query.channel}
        text = await answer_reservations(
            parsed.view, parsed.rest, **who, asked_at=query.at, clients=self._clients
        )
        await self._reply(query, self._clients.mask(text))

    async def _totals(self, start: datetime, end: datetime) -> dict[str, Totals]:
        """Return the sums of the home cluster and each other one, by name; of a removed one if it has any."""
        names = [HOME_CLUSTER, *(each.name for each in remote(self._clients.config.clusters))]
        every = dict.fromkeys([*names, *await self._hours.clusters(start)])
        found = {name: await self._hours.at(name).totals(start, end) for name in every}
        return {name: each for name, each in found.items() if name in names or each.groups}

    async def _digest(self, query: GpuQuery) -> None:
        """Queue yesterday's digest for the channel, unless it is there already."""
        day = schedule_for(await self._read_schedules(), query.channel).day(self._clients.now())
        latest = await latest_digest(self._redis, query.channel)
        if latest and latest.day == day:
            digest = link(latest.link, latest.headline) if latest.link else plain(latest.headline)
            await self._reply(query, f"Already posted: {digest}")
        else:
            await self._clients.queue.add(post.item(query.channel, day))

    async def _reply(self, query: GpuQuery, text: str) -> None:
        await self._clients.slack.post_ephemeral(query.user, text, query.response_url)
