"""Slack is down, or limits the rate, while a sweep ends: missed messages are sent later, once."""

from slack_sdk.errors import SlackApiError

from bot.core.record import Phase
from bot.platform.slack.rate_limit import Rate
from bot.sweep.model.texts import CANCEL
from k8s.retry import Retry
from local.slack import DOWN
from tests.scenarios.slack_session import CHANNEL, open_session


async def test_end_is_reported_and_shown_in_the_parent(redis, monkeypatch):
    """Whatever Slack answers before: one trouble after the other."""
    troubles = (DOWN, "rate_limited", "message_limit_exceeded", "update_failed")
    monkeypatch.setattr("bot.platform.slack.client.RETRY", Retry(base=0.01))
    for name in ("POSTS", "EDITS"):
        monkeypatch.setattr(f"bot.platform.slack.client.{name}", Rate(gap=0.01, burst=20))
    async with open_session(redis, image=True) as here:
        await here.until(Phase.RUNNING)
        posts = here.slack.stumble("chat.postMessage", *troubles)
        edits = here.slack.stumble("chat.update", *troubles)
        await here.until(Phase.SUCCEEDED)
        while (sweep := await here.simulation.record()).outbox or sweep.shown.phase is not sweep.phase:
            await here.rounds()
        assert ["Finished:" in text for text in here.thread()].count(True) == 1
        end = next(place for place, text in enumerate(here.thread()) if "Finished:" in text)
        assert [text.split()[0] for text in here.thread()[end + 1 :]] == ["Results"]
        assert "Finished" in here.parent()["text"]
        assert posts == edits == []


async def test_parent_posted_with_an_error_response_loses_its_buttons_at_the_first_click(redis, monkeypatch):
    monkeypatch.setattr("bot.platform.slack.client.POSTS", Rate(gap=0.01, burst=20))
    async with open_session(redis, image=True, endless=True) as here:
        slack = here.simulation.clients.slack
        post = slack.open_thread

        async def posted_and_500(*args):
            await post(*args)
            slack.open_thread = post
            raise SlackApiError("", {"error": "internal_error"})

        slack.open_thread = posted_and_500
        await here.until(Phase.RUNNING)
        orphan, parent = [m for m in here.slack.messages(CHANNEL) if m.get("thread_ts", m["ts"]) == m["ts"]]
        assert await here.slack.click("ada", CHANNEL, orphan["ts"], CANCEL) is None
        await here.until(Phase.CANCELLED)
        [orphan] = [m for m in here.slack.messages(CHANNEL) if m["ts"] == orphan["ts"]]
        assert "Duplicate" in orphan["text"]
        assert not orphan.get("blocks")
        assert parent["ts"] == (await here.simulation.record()).thread
