"""Messages under a rate limit: a burst, then one at a time, in order."""

import asyncio
import time

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.slack import client
from bot.platform.slack.client import Slack, SlackBusyError
from bot.platform.slack.message import File, Message
from bot.platform.slack.rate_limit import EDITS, POSTS, Rate, RateLimiter
from local.slack import Rate as Limit
from local.slack import serve

SLOW = Rate(gap=10, burst=2)
QUICK = Rate(gap=0.05, burst=1)
SWEEPS, RANDOM = "C01SWEEPS00", "C01VISION00"

pytestmark = pytest.mark.usefixtures("no_litter")


@pytest.fixture
def pace(redis):
    return RateLimiter(redis)


async def test_burst_is_sent_at_once_and_the_rest_spaced_in_its_channel_only(pace):
    waits = [await pace.wait("c", f"s{n}", SLOW) for n in range(5)]
    assert waits[:2] == [0, 0]
    assert [round(wait, -1) for wait in waits[2:]] == [10, 20, 30]
    await pace.hold("c", 60)
    assert await pace.wait("c", "s", QUICK) > 59
    assert await pace.wait("c", "s2", SLOW) > 60, "a place that was given before the hold"
    assert await pace.wait("d", "s", QUICK) == 0


async def test_edits_without_room_are_looked_up_again_when_there_can_be_room(pace, redis, monkeypatch):
    now, looked, slack = 0.0, [], Slack(AsyncWebClient(), pace)
    look = pace.until_half_free
    monkeypatch.setattr(client, "monotonic", lambda: 1000 + now)
    monkeypatch.setattr(pace, "until_half_free", lambda *line: looked.append(line) or look(*line))
    assert await slack.until_room_for_edits() == 0
    await pace.hold("edits", 60)
    most = EDITS.gap * EDITS.burst
    assert await slack.until_room_for_edits() == most
    now = most - 1
    assert await slack.until_room_for_edits() == 1
    assert len(looked) == 2
    now = most
    assert await slack.until_room_for_edits() == most
    await redis.flushall()
    now = 2 * most
    assert await slack.until_room_for_edits() == 0


async def test_early_retry_keeps_its_place(pace):
    for n in range(3):
        await pace.wait("c", f"s{n}", SLOW)
    assert 9 < await pace.wait("c", "s2", SLOW) <= 10
    assert 19 < await pace.wait("c", "s3", SLOW) <= 20


async def test_waiting_message_is_sent_when_due(pace):
    await pace.wait("c", "first", QUICK)
    wait = await pace.wait("c", "second", QUICK)
    await asyncio.sleep(wait + 0.01)
    assert await pace.wait("c", "second", QUICK) == 0


@pytest.mark.parametrize("rate", [POSTS, EDITS], ids=["posts", "edits"])
async def test_calls_at_their_reserved_times_stay_within_the_limits_of_slack(pace, rate):
    clock = [0.0]
    slack = await serve(clock=lambda: clock[0])
    try:
        web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        ts = (await web.chat_postMessage(channel=SWEEPS, text="first"))["ts"]
        for n in range(120):
            clock[0] = 1000 + time.monotonic() + await pace.wait("c", f"s{n}", rate)
            if rate is POSTS:
                await web.chat_postMessage(channel=SWEEPS, text=f"{n}")  # raises SlackApiError if refused
            else:
                await web.chat_update(channel=SWEEPS, ts=ts, text=f"{n}")
    finally:
        await slack.close()


async def test_retry_after_applies_to_all_workers_in_one_channel(redis):
    slack = await serve(rates={"chat.postMessage": Limit(per_minute=6, burst=1)})
    try:
        web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        one, other = (Slack(web, RateLimiter(redis)) for _ in range(2))
        ts = await one.open_thread(SWEEPS, Message(text="first"))
        with pytest.raises(SlackBusyError):
            await one.open_thread(SWEEPS, Message(text="second"))
        with pytest.raises(SlackBusyError) as busy:
            await other.reply(SWEEPS, ts, "third")
        assert busy.value.seconds > 5
        assert await other.open_thread(RANDOM, Message(text="elsewhere"))
        await other.update(SWEEPS, ts, Message(text="an edit"))
    finally:
        await slack.close()


async def test_message_with_rejected_blocks_is_sent_as_text():
    slack = await serve()
    try:
        web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        await Slack(web).open_thread(SWEEPS, Message(text="words", blocks=({"type": "hologram"},)))
        [message] = slack.messages("sweeps")
        assert message["text"] == "words"
        assert not message.get("blocks")
    finally:
        await slack.close()


async def test_reply_with_a_file_is_sent_once_in_a_busy_channel(redis, monkeypatch):
    """A file that waits would repeat the text on every retry."""
    monkeypatch.setattr("bot.platform.slack.client.POSTS", Rate(gap=0.2, burst=4))
    slack = await serve()
    try:
        web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        ours = Slack(web, RateLimiter(redis))
        ts = await ours.open_thread(SWEEPS, Message(text="a sweep"))
        for number in range(3):
            await ours.open_thread(SWEEPS, Message(text=f"{number} others"))
        while True:
            try:
                await ours.reply(SWEEPS, ts, "the end of the log")
                log = File(name="a.log", content="lines")
                await ours.upload_files(SWEEPS, ts, "the whole log", [log], at_once=True)
                break
            except SlackBusyError as busy:
                await asyncio.sleep(busy.seconds + 0.02)
        reported = [message["text"] for message in slack.messages("sweeps", ts)]
        assert reported == ["a sweep", "the end of the log", "the whole log"]
    finally:
        await slack.close()


async def test_reply_that_cannot_be_posted_becomes_a_direct_message(unused_tcp_port):
    slack = await serve()
    try:
        web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        await Slack(web).post_ephemeral("U01ADALOVEL", "a secret", f"http://127.0.0.1:{unused_tcp_port}/gone")
        direct = slack.workspace.channels["D01ADALOVEL"].messages.values()
        assert [message["text"] for message in direct] == ["a secret"]
    finally:
        await slack.close()
