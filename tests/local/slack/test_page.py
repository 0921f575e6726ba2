"""The page's data and requests; the browser itself is in the slow tests."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from local.slack import Slack

GRACE = "U01GRACEHOP"
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def page_of(slack: Slack, person: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession(headers={"Origin": slack.url.rstrip("/")}) as session,
        session.ws_connect(f"{slack.url}live?as={person}") as page,
    ):
        yield page


async def test_page_receives_events_of_its_user_and_acts_for_them(slack: Slack) -> None:
    async with page_of(slack, "linus") as page:
        welcome = await page.receive_json()
        slack.say("ada", "vision", "not for linus")
        await page.send_json({"do": "say", "channel": "sweeps", "text": "2 < 3, @grace"})
        change = await page.receive_json()
    assert [channel["name"] for channel in welcome["channels"]] == ["sweeps", "random"]
    assert (change["type"], change["channel"]) == ("posted", "C01SWEEPS00")
    assert change["message"]["text"] == f"2 &lt; 3, <@{GRACE}>"


async def test_command_typed_on_the_page_is_answered_there_only(slack: Slack) -> None:
    async with page_of(slack, "ada") as page:
        await page.receive_json()
        await page.send_json({"do": "command", "channel": "sweeps", "command": "/sweep", "text": ""})
        change = await page.receive_json()
    assert "did not respond" in change["message"]["text"]
    assert change["to"] == "U01ADALOVEL"


async def test_other_origins_cannot_act_for_a_user(slack: Slack) -> None:
    async with aiohttp.ClientSession(headers={"Origin": "https://elsewhere.example"}) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await session.ws_connect(f"{slack.url}live?as=ada")


@pytest.mark.parametrize(
    "file", ["", "page/page.js", "page/text.js", "page/page.css", "archives/C01SWEEPS00/p17"]
)
async def test_page_loads_nothing_external(slack: Slack, file: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(slack.url + file) as response:
        assert response.status == 200
        assert re.findall(r"https?://[\w.]+", await response.text()) == []


def test_page_has_an_image_for_every_emoji_of_the_bot() -> None:
    texts = [path.read_text() for path in (ROOT / "bot").rglob("*.py")]
    used = set(re.findall(r'":([a-z]+(?:_[a-z]+)*):', "".join(texts)))
    drawn = (ROOT / "local" / "slack" / "page" / "text.js").read_text()
    assert {"package", "runner", "white_check_mark"} <= used
    assert [name for name in used if not re.search(rf'[" ]{name} ', drawn)] == []
