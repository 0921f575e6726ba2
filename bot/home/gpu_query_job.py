"""Run the queue item `gpus: now`: measure, save a snapshot, and answer all queued queries."""

import logging
from datetime import timedelta
from functools import partial

from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.core.errors import UserError
from bot.digests import post
from bot.digests.post import ReadSchedules, schedule_for
from bot.gpus.billing import bill, bill_file, month
from bot.gpus.command import VIEWS, ParsedCommand, answer, parse_command
from bot.gpus.hourly_store import Hours
from bot.gpus.models import HALF_HOUR, NoGpuDataError, Snapshot, Source
from bot.gpus.snapshot_store import HOME, Question, SnapshotStore
from bot.home.load import HomeLoader
from bot.launch.drafts import Drafts
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.mrkdwn import link, plain, quoted

log = logging.getLogger(__name__)

DATA_TIMEOUT, RETRY = timedelta(seconds=15), timedelta(seconds=2)  # while there is no GPU data
RESPONSE_URL_TTL = timedelta(minutes=30)


class GpuQueryJob:
    def __init__(
        self, clients: Clients, redis: Redis, source: Source, digest_schedules: ReadSchedules
    ) -> None:
        self._clients, self._redis, self._source = clients, redis, source
        self._snapshots, self._hours, self._read_schedules = (
            SnapshotStore(redis),
            Hours(redis),
            digest_schedules,
        )
        self._billed: set[Question] = set()  # answered in text, while the CSV waits for Slack's rate limit

    async def run(self, _: str) -> timedelta | None:
        asked, trouble, fresh = await self._snapshots.asked(), "", None
        if not asked or any(self._parse(each).view in VIEWS for each in asked):
            try:
                fresh = await self._measured()
            except NoGpuDataError as why:
                trouble = f"GPU metrics are unavailable: {quoted(self._clients.mask(str(why)))}"
        later = [each for each in asked if trouble and self._clients.now() - each.at < DATA_TIMEOUT]
        tried = [await self._settle(each, fresh, trouble) for each in asked if each not in later]
        for error in filter(None, tried):
            raise error
        return RETRY if later else None

    async def _settle(self, question: Question, fresh: Snapshot | None, trouble: str) -> Exception | None:
        """Answer one question, and return its error, which is retried until the response_url expires."""
        try:
            if self._clients.now() - question.at < RESPONSE_URL_TTL:
                await self._answer(question, fresh, trouble)
        except Exception as error:  # noqa: BLE001 - must not keep others from their answers
            return error
        await self._snapshots.remove_commands([question])
        return None

    def _parse(self, question: Question) -> ParsedCommand:
        if question.text == HOME:
            return ParsedCommand(view="free")
        try:
            return parse_command(question.text, self._clients.config.teams)
        except UserError:  # the team has been removed from the configuration since
            return ParsedCommand(view="free")

    async def _measured(self) -> Snapshot:
        nodes, pods = await self._source.nodes(), await self._source.pods(HALF_HOUR)
        fresh = Snapshot(at=self._clients.now(), nodes=nodes, pods=pods)
        await self._snapshots.keep(fresh)
        return fresh

    async def _answer(self, question: Question, fresh: Snapshot | None, trouble: str) -> None:
        parsed, now = self._parse(question), self._clients.now()
        try:
            if question.text == HOME:
                await self._show_home(question.user, trouble)
            elif parsed.view == "bill":
                await self._bill(parsed, question)
            elif parsed.view == "digest":
                await self._digest(question)
            elif text := trouble or (answer(parsed.view, fresh, question.user, now) if fresh else ""):
                await self._reply(question, text)
        except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
            log.warning("can't answer /gpus: %s", error)

    async def _show_home(self, user: str, trouble: str) -> None:
        clients = self._clients
        loader = HomeLoader(
            store=clients.store,
            drafts=Drafts(self._redis),
            last_digest=partial(post.last, self._redis),
            config=clients.config,
        )
        site, latest = await clients.slack.site(), await self._snapshots.latest()
        await clients.slack.show_home(user, await loader.view(user, site, latest, trouble, clients.now()))

    async def _bill(self, parsed: ParsedCommand, question: Question) -> None:
        config, now = self._clients.config, self._clients.now()
        known = await self._hours.between(*month(parsed, now), by_sweep=True)
        if question not in self._billed:
            text = bill(parsed, known, config.prices, config.currency, now)
            text += "\nFull table sent by direct message." if known else ""
            await self._reply(question, text)
            self._billed.add(question)
        if known:
            name = f"gpus-{month(parsed, now)[0]:%Y-%m}.csv"
            await self._clients.slack.hand(
                question.user, "GPU bill", name, bill_file(parsed, known, config.prices)
            )
        self._billed.discard(question)

    async def _digest(self, question: Question) -> None:
        """Queue yesterday's digest for the channel, unless it is there already."""
        day = schedule_for(await self._read_schedules(), question.channel).day(self._clients.now())
        last = await post.last(self._redis, question.channel)
        if last and last.day == day:
            digest = link(last.link, last.headline) if last.link else plain(last.headline)
            await self._reply(question, f"Already posted: {digest}")
        else:
            await self._clients.queue.add(post.item(question.channel, day))

    async def _reply(self, question: Question, text: str) -> None:
        await self._clients.slack.post_ephemeral(question.user, text, question.response_url)
