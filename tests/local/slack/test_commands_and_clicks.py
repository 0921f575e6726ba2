"""A person types and presses; a real Bolt app answers over Socket Mode."""

import asyncio
from typing import Any

import aiohttp
import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local.slack import Slack, serve

STOP = {
    "type": "button",
    "action_id": "stop",
    "value": "lr-brave-otter",
    "style": "danger",
    "text": {"type": "plain_text", "text": "Stop"},
}
BUTTONS = [{"type": "actions", "block_id": "what", "elements": [STOP]}]


async def pressed(slack: Slack, web: AsyncWebClient, channel: str = "C01SWEEPS00", **where: str) -> str:
    ts: str = (await web.chat_postMessage(channel=channel, text="Sweep", blocks=BUTTONS, **where))["ts"]
    assert await slack.click("ada", channel, ts, "stop") is None
    return ts


async def test_command_reaches_the_app_and_its_reply_the_user(slack: Slack, app: AsyncApp) -> None:
    received: list[dict[str, Any]] = []

    @app.command("/sweep")
    async def sweep(ack: Any, body: dict[str, Any], say: Any) -> None:
        received.append(body)
        await ack("Starting")
        await say("Sweep lr started")

    assert await slack.command("ada", "sweeps", "/sweep", "branch=main gpus=1") == "Starting"

    assert [post_ephemeral["text"] for post_ephemeral in slack.ephemerals("ada")] == ["Starting"]
    assert slack.ephemerals("grace") == []
    assert [message["text"] for message in slack.messages("sweeps")] == ["Sweep lr started"]
    assert received[0].pop("response_url").startswith(slack.url + "commands/T01LOCALLAB/")
    assert received[0].pop("trigger_id")
    assert received[0] == {
        "token": "local-verification-token",
        "api_app_id": "A01SWEEPBOT",
        "team_id": "T01LOCALLAB",
        "team_domain": "local-lab",
        "is_enterprise_install": "false",
        "channel_id": "C01SWEEPS00",
        "channel_name": "sweeps",
        "user_id": "U01ADALOVEL",
        "user_name": "ada",
        "command": "/sweep",
        "text": "branch=main gpus=1",
    }


async def test_late_ack_is_shown_as_no_response(slack: Slack, app: AsyncApp) -> None:
    late = asyncio.Event()

    @app.command("/sweep")
    async def sweep(ack: Any) -> None:
        await late.wait()
        await ack("Too late")

    slack.sockets.ack_seconds = 0.1
    assert await slack.command("ada", "sweeps", "/sweep", "") is None
    late.set()
    [post_ephemeral] = slack.ephemerals("ada")
    assert post_ephemeral["user"] == "USLACKBOT"
    assert post_ephemeral["text"].startswith("/sweep failed because the app did not respond.")


async def test_command_without_an_app_fails_at_once(slack: Slack) -> None:
    assert await slack.command("ada", "sweeps", "/sweep", "") is None
    assert "did not respond" in slack.ephemerals("ada")[0]["text"]


async def test_unknown_command_never_reaches_the_app(slack: Slack, app: AsyncApp) -> None:
    assert await slack.command("ada", "sweeps", "/swoop", "") is None
    assert slack.ephemerals("ada")[0]["text"].startswith("`/swoop` is not a valid command.")


async def test_invalid_reply_is_an_invalid_command_response(slack: Slack, app: AsyncApp) -> None:
    @app.command("/sweep")
    async def sweep(ack: Any) -> None:
        await ack(blocks=[{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}])

    assert await slack.command("ada", "sweeps", "/sweep", "") is None
    assert slack.ephemerals("ada")[0]["text"] == '/sweep failed with the error "invalid_command_response"'


async def test_click_contains_its_message(slack: Slack, app: AsyncApp, web: AsyncWebClient) -> None:
    received: list[dict[str, Any]] = []

    @app.action("stop")
    async def stop(ack: Any, body: dict[str, Any]) -> None:
        received.append(body)
        await ack()

    parent = (await web.chat_postMessage(channel="C01SWEEPS00", text="Sweep"))["ts"]
    ts = await pressed(slack, web, thread_ts=parent)

    [body] = received
    [action] = body["actions"]
    assert action.pop("action_ts")
    assert action == STOP | {"block_id": "what", "text": STOP["text"] | {"emoji": True}}
    assert body["message"] == slack.messages("sweeps", parent)[1]
    assert body["container"] == {
        "type": "message",
        "message_ts": ts,
        "channel_id": "C01SWEEPS00",
        "is_ephemeral": False,
        "thread_ts": parent,
    }
    assert body["user"] == {
        "id": "U01ADALOVEL",
        "username": "ada",
        "name": "ada",
        "team_id": "T01LOCALLAB",
    }
    assert (body["channel"], body["state"]) == ({"id": "C01SWEEPS00", "name": "sweeps"}, {"values": {}})
    assert body["team"] == {"id": "T01LOCALLAB", "domain": "local-lab"}


async def test_click_without_ack_shows_a_warning(slack: Slack, app: AsyncApp, web: AsyncWebClient) -> None:
    ts = (await web.chat_postMessage(channel="C01SWEEPS00", text="Sweep", blocks=BUTTONS))["ts"]
    slack.sockets.ack_seconds = 0.1
    assert "did not respond" in (await slack.click("ada", "sweeps", ts, "stop") or "")
    with pytest.raises(LookupError):
        await slack.click("ada", "sweeps", ts, "start")


async def test_response_url_replaces_the_clicked_message(
    slack: Slack, app: AsyncApp, web: AsyncWebClient
) -> None:
    @app.action("stop")
    async def stop(ack: Any, respond: Any) -> None:
        await ack()
        await respond("Stopped", replace_original=True)

    ts = await pressed(slack, web)
    [message] = slack.messages("sweeps")
    assert (message["ts"], message["text"], "blocks" in message) == (ts, "Stopped", False)


async def test_response_url_replaces_and_removes_an_ephemeral_message(slack: Slack, app: AsyncApp) -> None:
    answers = iter(
        [{"text": "Sure?", "blocks": BUTTONS, "replace_original": True}, {"delete_original": True}]
    )

    @app.command("/sweep")
    async def sweep(ack: Any) -> None:
        await ack("Stop?", blocks=BUTTONS)

    @app.action("stop")
    async def stop(ack: Any, body: dict[str, Any], respond: Any) -> None:
        assert "message" not in body
        await ack()
        await respond(**next(answers))

    await slack.command("ada", "sweeps", "/sweep", "")
    [post_ephemeral] = slack.ephemerals("ada")
    await slack.click("ada", "sweeps", post_ephemeral["ts"], "stop")
    assert [again["text"] for again in slack.ephemerals("ada")] == ["Sure?"]
    await slack.click("ada", "sweeps", post_ephemeral["ts"], "stop")
    assert slack.ephemerals("ada") == []


async def test_response_url_works_in_a_channel_without_the_bot(slack: Slack, app: AsyncApp) -> None:
    @app.command("/sweep")
    async def sweep(ack: Any, say: Any, respond: Any) -> None:
        await ack()
        with pytest.raises(SlackApiError, match="not_in_channel"):
            await say("Sweep started")
        await respond("Type /invite @sweepbot first", response_type="in_channel")

    assert await slack.command("ada", "random", "/sweep", "") == ""
    assert [message["text"] for message in slack.messages("random")] == ["Type /invite @sweepbot first"]


async def test_response_url_works_five_times_and_thirty_minutes() -> None:
    now = [0.0]
    slack = await serve(ack_seconds=1, clock=lambda: now[0])
    urls: list[str] = []

    async def answer(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
        async with session.post(url, json={"text": "Hello"}) as response:
            return response.status, await response.text()

    async with aiohttp.ClientSession() as session, session.ws_connect(await opened(slack)) as socket:
        await socket.receive_json()
        for _ in range(2):
            typed = asyncio.create_task(slack.command("ada", "sweeps", "/sweep", ""))
            envelope = await socket.receive_json()
            assert (envelope["type"], envelope["accepts_response_payload"]) == ("slash_commands", True)
            urls.append(envelope["payload"]["response_url"])
            await socket.send_json({"envelope_id": envelope["envelope_id"]})
            await typed
        answers = [await answer(session, urls[0]) for _ in range(6)]
        now[0] = 30 * 60 + 1
        answers.append(await answer(session, urls[1]))
    await slack.close()
    assert answers[:5] == [(200, "ok")] * 5
    assert answers[5] == (404, '{"ok": false, "error": "used_url"}')
    assert answers[6] == (410, '{"ok": false, "error": "expired_url"}')


async def opened(slack: Slack) -> str:
    client = AsyncWebClient(base_url=slack.api_url)
    url: str = (await client.apps_connections_open(app_token=slack.app_token))["url"]
    return url


async def test_payload_goes_to_one_of_several_connections(slack: Slack) -> None:
    async with aiohttp.ClientSession() as session:
        sockets = [await session.ws_connect(await opened(slack)) for _ in range(10)]
        hellos = [await socket.receive_json() for socket in sockets]
        assert [hello["num_connections"] for hello in hellos] == list(range(1, 11))
        assert hellos[0]["connection_info"] == {"app_id": "A01SWEEPBOT"}

        one_too_many = await session.ws_connect(await opened(slack))
        assert (await one_too_many.receive_json())["reason"] == "too_many_websockets"

        receiving = {asyncio.create_task(socket.receive_json()): socket for socket in sockets}
        answering = asyncio.create_task(slack.command("ada", "sweeps", "/sweep", ""))
        [received], _ = await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED)
        ack = {"envelope_id": received.result()["envelope_id"], "payload": {"text": "Here"}}
        await receiving[received].send_json(ack)
        assert await answering == "Here"
        assert [task for task in receiving if task.done()] == [received]
        await slack.sockets.drop()
        await asyncio.gather(*receiving, return_exceptions=True)


async def test_app_reconnects_after_a_closed_connection(slack: Slack, app: AsyncApp, until: Any) -> None:
    @app.command("/sweep")
    async def sweep(ack: Any) -> None:
        await ack("Here")

    await slack.sockets.drop()
    await until("connected again", lambda: slack.sockets.connections)
    assert await slack.command("ada", "sweeps", "/sweep", "") == "Here"
