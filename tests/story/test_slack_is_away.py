"""Slack is down, or has enough of us, while a sweep ends: what it missed is told afterwards, and once."""

import pytest

from bot.models import Phase
from bot.pace import Rate
from local.slack import DOWN
from tests.story.chat import chat


@pytest.mark.parametrize("trouble", [DOWN, "rate_limited", "message_limit_exceeded", "update_failed"])
async def test_the_end_is_told_and_the_parent_shows_it(redis, monkeypatch, trouble):
    monkeypatch.setattr("bot.slack.SOME_SECONDS", 0.01)
    for name in ("POSTS", "EDITS"):
        monkeypatch.setattr(f"bot.slack.{name}", Rate(gap=0.01, burst=20))
    async with chat(redis, image=True) as here:
        await here.until(Phase.RUNNING)
        posts = here.slack.stumble("chat.postMessage", *[trouble] * 2)
        edits = here.slack.stumble("chat.update", *[trouble] * 2)
        await here.until(Phase.SUCCEEDED)
        while (sweep := await here.life.record()).unsaid or sweep.shown_phase is not sweep.phase:
            await here.rounds()
        assert [text.startswith(":tada:") for text in here.thread()].count(True) == 1
        assert here.thread()[-1].startswith(":tada:")
        assert "Finished" in here.parent()["text"]
        assert posts == edits == []
