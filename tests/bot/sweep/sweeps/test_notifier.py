"""When the parent message of a running sweep is edited, beside others."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import AsyncMock

from slack_sdk.web.async_client import AsyncWebClient

from bot.core.record import Phase, Shown
from bot.platform.slack.client import Slack
from bot.platform.slack.message import Message
from bot.platform.slack.rate_limit import EDITS, RateLimiter
from bot.platform.storage.sweeps import Store
from bot.sweep.sweeps.notifier import UPDATE_SHARE, Notifier
from local.slack import serve
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep

OTHERS = 40


async def test_sweep_among_many_is_edited_twice_and_then_after_seconds_until_edits_are_scarce(redis):
    store, limiter, slack = Store(redis), RateLimiter(redis), await serve()
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    clients = replace(
        SimulatedSweep(redis, Clock(None)).clients, store=store, slack=Slack(web, limiter), now=lambda: NOW
    )

    async def save(sweep):
        return sweep

    try:
        sweep = a_sweep(Phase.RUNNING, plan=PLAN, submitted=True, id="lr-calm-fox")
        requester = replace(sweep.requester, channel="C01SWEEPS00")
        ts = await clients.slack.open_thread(requester.channel, Message(text="a sweep"))
        sweep = replace(sweep, requester=requester, thread=ts)
        shown = Shown(fingerprint="x", at=NOW - timedelta(seconds=11), phase=Phase.RUNNING)
        for number in range(OTHERS):
            await store.restore(replace(sweep, id=f"lr-{number}", request_id=f"{number}"))

        notifier = Notifier(clients, save)
        for at in (NOW - timedelta(seconds=5), NOW):
            edited = await notifier.update_parent(replace(sweep, shown=shown))
            assert (notifier.redraw, edited.shown.at) == (None, at)
            shown = replace(edited.shown, fingerprint="x")
        await notifier.update_parent(replace(sweep, shown=shown))
        assert notifier.redraw == timedelta(seconds=5)

        for number in range(EDITS.burst):  # half of them take 12 s to come back
            await limiter.wait("edits", f"{number}", EDITS)
        await notifier.update_parent(replace(sweep, shown=shown))
        assert timedelta(seconds=14) < notifier.redraw <= UPDATE_SHARE * OTHERS / 2  # sooner than its share
        for running, at_least, at_most in ((4, 5, 5), (6, 7.2, 7.2), (100, 30, 60)):
            store.active_count = AsyncMock(return_value=running)
            await notifier.update_parent(replace(sweep, shown=shown))
            assert at_least <= notifier.redraw.total_seconds() <= at_most

        store.active_count = AsyncMock(return_value=100)
        ahead = replace(
            shown, at=NOW + timedelta(seconds=1), phase=Phase.PENDING
        )  # by another worker's clock
        await notifier.update_parent(replace(sweep, shown=ahead))
        assert notifier.redraw == timedelta(seconds=1)
    finally:
        await slack.close()
