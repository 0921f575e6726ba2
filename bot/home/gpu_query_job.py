"""A turn of the item `gpus: now`: measure, remember, and answer everybody who asked, by /gpus or at home."""

import logging
from datetime import timedelta
from functools import partial

from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.clients import Clients
from bot.core.errors import UserError
from bot.digests import post
from bot.digests.post import Appointments, appointed
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

PATIENCE, AGAIN = timedelta(seconds=15), timedelta(seconds=2)  # until somebody has measured
ANSWERABLE = timedelta(minutes=30)  # Slack takes an answer to a command for so long


class GpuQueryJob:
    def __init__(
        self, clients: Clients, redis: Redis, source: Source, digest_schedules: Appointments
    ) -> None:
        self._outside, self._redis, self._source = clients, redis, source
        self._known, self._hours, self._appointments = SnapshotStore(redis), Hours(redis), digest_schedules
        self._billed: set[Question] = set()  # told, while Slack has no time yet for the file

    async def run(self, _: str) -> timedelta | None:
        asked, trouble, fresh = await self._known.asked(), "", None
        if not asked or any(self._wish(each).view in VIEWS for each in asked):
            try:
                fresh = await self._measured()
            except NoGpuDataError as why:
                trouble = f"GPU use is not known at the moment: {quoted(self._outside.mask(str(why)))}"
        later = [each for each in asked if trouble and self._outside.now() - each.at < PATIENCE]
        tried = [await self._settle(each, fresh, trouble) for each in asked if each not in later]
        for error in filter(None, tried):
            raise error
        return AGAIN if later else None

    async def _settle(self, question: Question, fresh: Snapshot | None, trouble: str) -> Exception | None:
        """An error of one answer is raised when the others are given; it is tried again for half an hour."""
        try:
            if self._outside.now() - question.at < ANSWERABLE:
                await self._tell(question, fresh, trouble)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about this question
            return error
        await self._known.remove_commands([question])
        return None

    def _wish(self, question: Question) -> ParsedCommand:
        if question.text == HOME:
            return ParsedCommand(view="free")
        try:
            return parse_command(question.text, self._outside.config.teams)
        except UserError:  # of a team that the configuration has lost since
            return ParsedCommand(view="free")

    async def _measured(self) -> Snapshot:
        nodes, pods = await self._source.nodes(), await self._source.pods(HALF_HOUR)
        fresh = Snapshot(at=self._outside.now(), nodes=nodes, pods=pods)
        await self._known.keep(fresh)
        return fresh

    async def _tell(self, question: Question, fresh: Snapshot | None, trouble: str) -> None:
        parsed, now = self._wish(question), self._outside.now()
        try:
            if question.text == HOME:
                await self._show_home(question.user, trouble)
            elif parsed.view == "bill":
                await self._bill(parsed, question)
            elif parsed.view == "digest":
                await self._digest(question)
            elif text := trouble or (answer(parsed.view, fresh, question.user, now) if fresh else ""):
                await self._whisper(question, text)
        except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
            log.warning("Slack does not take an answer about GPUs: %s", error)

    async def _show_home(self, user: str, trouble: str) -> None:
        clients = self._outside
        showing = HomeLoader(
            store=clients.store,
            drafts=Drafts(self._redis),
            last_digest=partial(post.last, self._redis),
            config=clients.config,
        )
        site, latest = await clients.slack.site(), await self._known.latest()
        await clients.slack.show_home(user, await showing.view(user, site, latest, trouble, clients.now()))

    async def _bill(self, parsed: ParsedCommand, question: Question) -> None:
        config, now = self._outside.config, self._outside.now()
        known = await self._hours.between(*month(parsed, now), by_sweep=True)
        if question not in self._billed:
            text = bill(parsed, known, config.prices, config.currency, now)
            text += "\nThe whole table comes as a direct message." if known else ""
            await self._whisper(question, text)
            self._billed.add(question)
        if known:
            name = f"gpus-{month(parsed, now)[0]:%Y-%m}.csv"
            await self._outside.slack.hand(
                question.user, "The bill as a table", name, bill_file(parsed, known, config.prices)
            )
        self._billed.discard(question)

    async def _digest(self, question: Question) -> None:
        """Into the channel where it was asked for, unless it is there."""
        day = appointed(await self._appointments(), question.channel).day(self._outside.now())
        last = await post.last(self._redis, question.channel)
        if last and last.day == day:
            there = link(last.link, last.headline) if last.link else plain(last.headline)
            await self._whisper(question, f"Already posted: {there}")
        else:
            await self._outside.queue.add(post.item(question.channel, day))

    async def _whisper(self, question: Question, text: str) -> None:
        await self._outside.slack.post_ephemeral(question.user, text, question.response_url)
