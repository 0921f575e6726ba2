"""What an answer of Slack means for what was to be said: said later, or never."""

import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack import SOME_SECONDS, Busy, NotInChannel, NotTaken, Slack, why
from local.serving import listen

PAGE = "<html>Service Unavailable</html>"


@pytest.fixture
async def told():
    """What a post came to when Slack answered this."""
    servers = []

    async def tell(status, kind, body, **headers):
        async def answer(_):
            return web.Response(status=status, content_type=kind, text=body, headers=headers)

        app = web.Application()
        app.add_routes([web.post("/{method}", answer)])
        servers.append(server := await listen(app, 0))
        slack = Slack(AsyncWebClient(token="xoxb-1", base_url=f"{server.url}/", retry_handlers=[]))
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the question
            await slack.say("C1", "1.0", "hello")
        return caught.value

    yield tell
    for server in servers:
        await server.close()


@pytest.mark.parametrize(
    ("status", "kind", "body", "word"),
    [
        (503, "text/html", PAGE, "HTTP 503"),
        (502, "text/plain", "bad gateway", "HTTP 502"),
        (500, "application/json", "", "HTTP 500"),
        (500, "application/json", "null", "HTTP 500"),
        (503, "application/json", '{"ok": false, "error": "of_tomorrow"}', "of_tomorrow"),
        (200, "text/html", PAGE, "HTTP 200"),
        (
            200,
            "application/json",
            '{"ok": false, "error": "message_limit_exceeded"}',
            "message_limit_exceeded",
        ),
        (200, "application/json", '{"ok": false, "error": "team_added_to_org"}', "team_added_to_org"),
        (200, "application/json", '{"ok": false, "error": "update_failed"}', "update_failed"),
    ],
)
async def test_trouble_that_passes_is_raised_as_it_is_so_that_the_turn_is_repeated(
    told, status, kind, body, word
):
    error = await told(status, kind, body)
    assert isinstance(error, SlackApiError)
    assert why(error) == word


@pytest.mark.parametrize(
    ("status", "kind", "body", "headers", "seconds"),
    [
        (429, "application/json", '{"ok": false, "error": "ratelimited"}', {"Retry-After": "7"}, 7),
        (429, "application/json", '{"ok": false, "error": "rate_limited"}', {"Retry-After": "7"}, 7),
        (200, "application/json", '{"ok": false, "error": "rate_limited"}', {}, SOME_SECONDS),
        (429, "text/plain", "slower", {"Retry-After": "30"}, 30),
        (429, "text/html", PAGE, {"Retry-After": "30"}, 30),
        (429, "application/json", "", {"Retry-After": "30"}, 30),
    ],
)
async def test_a_rate_limit_is_one_however_it_is_said(told, status, kind, body, headers, seconds):
    error = await told(status, kind, body, **headers)
    assert isinstance(error, Busy)
    assert error.seconds == seconds


@pytest.mark.parametrize(("word", "kind"), [("is_archived", NotInChannel), ("no_text", NotTaken)])
async def test_what_slack_refuses_is_not_said_again(told, word, kind):
    assert isinstance(await told(200, "application/json", f'{{"ok": false, "error": "{word}"}}'), kind)
