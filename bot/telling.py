"""A turn of the item `gpus: now`: measure, remember, and answer everybody who asked, by /gpus or at home."""

import logging
from datetime import timedelta
from functools import partial

from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot import digests
from bot.bill import bill, bill_file, month
from bot.digests import Appointments, appointed
from bot.drafts import Drafts
from bot.gpus import VIEWS, Wish, answer, read_wish
from bot.hours import Hours
from bot.known import HOME, Known, Question
from bot.models import UserError
from bot.mrkdwn import link, plain, quoted
from bot.outside import Outside
from bot.showing import Showing
from bot.slack import NotInChannel, NotTaken
from bot.usage import HALF_HOUR, Snapshot, Source, Unmeasured

log = logging.getLogger(__name__)

PATIENCE, AGAIN = timedelta(seconds=15), timedelta(seconds=2)  # until somebody has measured
ANSWERABLE = timedelta(minutes=30)  # Slack takes an answer to a command for so long


class Telling:
    def __init__(self, outside: Outside, redis: Redis, source: Source, appointments: Appointments) -> None:
        self._outside, self._redis, self._source = outside, redis, source
        self._known, self._hours, self._appointments = Known(redis), Hours(redis), appointments
        self._billed: set[Question] = set()  # told, while Slack has no time yet for the file

    async def turn(self, _: str) -> timedelta | None:
        asked, trouble, fresh = await self._known.asked(), "", None
        if not asked or any(self._wish(each).view in VIEWS for each in asked):
            try:
                fresh = await self._measured()
            except Unmeasured as why:
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
        await self._known.answered([question])
        return None

    def _wish(self, question: Question) -> Wish:
        if question.text == HOME:
            return Wish(view="free")
        try:
            return read_wish(question.text, self._outside.config.teams)
        except UserError:  # of a team that the configuration has lost since
            return Wish(view="free")

    async def _measured(self) -> Snapshot:
        nodes, pods = await self._source.nodes(), await self._source.pods(HALF_HOUR)
        fresh = Snapshot(at=self._outside.now(), nodes=nodes, pods=pods)
        await self._known.keep(fresh)
        return fresh

    async def _tell(self, question: Question, fresh: Snapshot | None, trouble: str) -> None:
        wish, now = self._wish(question), self._outside.now()
        try:
            if question.text == HOME:
                await self._show_home(question.user, trouble)
            elif wish.view == "bill":
                await self._bill(wish, question)
            elif wish.view == "digest":
                await self._digest(question)
            elif text := trouble or (answer(wish.view, fresh, question.user, now) if fresh else ""):
                await self._whisper(question, text)
        except (NotInChannel, NotTaken, SlackApiError) as error:
            log.warning("Slack does not take an answer about GPUs: %s", error)

    async def _show_home(self, user: str, trouble: str) -> None:
        outside = self._outside
        showing = Showing(
            store=outside.store,
            drafts=Drafts(self._redis),
            last_digest=partial(digests.last, self._redis),
            config=outside.config,
        )
        site, latest = await outside.slack.site(), await self._known.latest()
        await outside.slack.show_home(user, await showing.view(user, site, latest, trouble, outside.now()))

    async def _bill(self, wish: Wish, question: Question) -> None:
        config, now = self._outside.config, self._outside.now()
        known = await self._hours.between(*month(wish, now), by_sweep=True)
        if question not in self._billed:
            text = bill(wish, known, config.prices, config.currency, now)
            text += "\nThe whole table comes as a direct message." if known else ""
            await self._whisper(question, text)
            self._billed.add(question)
        if known:
            name = f"gpus-{month(wish, now)[0]:%Y-%m}.csv"
            await self._outside.slack.hand(
                question.user, "The bill as a table", name, bill_file(wish, known, config.prices)
            )
        self._billed.discard(question)

    async def _digest(self, question: Question) -> None:
        """Into the channel where it was asked for, unless it is there."""
        day = appointed(await self._appointments(), question.channel).day(self._outside.now())
        last = await digests.last(self._redis, question.channel)
        if last and last.day == day:
            there = link(last.link, last.headline) if last.link else plain(last.headline)
            await self._whisper(question, f"Already posted: {there}")
        else:
            await self._outside.queue.add(digests.item(question.channel, day))

    async def _whisper(self, question: Question, text: str) -> None:
        await self._outside.slack.whisper(question.user, text, question.response_url)
