"""The Web API through the real client: what it does and what it refuses."""

from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local.slack import Rate, Slack, serve

SWEEPS, RANDOM, VISION = "C01SWEEPS00", "C01RANDOM00", "C01VISION00"
ADA = "U01ADALOVEL"


def section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def button(**more: Any) -> dict[str, Any]:
    return {"type": "button", "text": {"type": "plain_text", "text": "Stop"}, **more}


def actions(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


async def refusal(call: Any) -> dict[str, Any]:
    with pytest.raises(SlackApiError) as caught:
        await call
    data: dict[str, Any] = caught.value.response.data
    return data


async def test_thread_counts_its_replies(slack: Slack, web: AsyncWebClient) -> None:
    parent = (await web.chat_postMessage(channel=SWEEPS, text="Sweep lr"))["ts"]
    await web.chat_postMessage(channel=SWEEPS, text="Build started", thread_ts=parent)
    slack.say("ada", "sweeps", "Thanks!", parent)

    [found] = slack.messages("sweeps")
    assert (found["reply_count"], found["reply_users"]) == (2, ["U01SWEEPBOT", ADA])
    thread = [message["text"] for message in slack.messages("sweeps", parent)]
    assert thread == ["Sweep lr", "Build started", "Thanks!"]

    await web.chat_delete(channel=SWEEPS, ts=slack.messages("sweeps", parent)[1]["ts"])
    assert slack.messages("sweeps")[0]["reply_count"] == 1


async def test_deleted_parent_is_a_note_above_its_replies_and_without_them_gets_none(
    slack: Slack, web: AsyncWebClient
) -> None:
    parent, other = [(await web.chat_postMessage(channel=SWEEPS, text="Sweep"))["ts"] for _ in range(2)]
    slack.say("ada", "sweeps", "Thanks!", parent)
    for ts in (parent, other):
        await web.chat_delete(channel=SWEEPS, ts=ts)
        posted = await web.chat_postMessage(channel=SWEEPS, text="Done", thread_ts=ts)
        assert posted["message"].get("thread_ts") == (ts if ts == parent else None)
    error = await refusal(web.chat_update(channel=SWEEPS, ts=parent, text="Sweep"))
    assert error["error"] == "cant_update_message"
    shown = [message["text"] for message in slack.messages("sweeps", parent)]
    assert shown == ["This message was deleted.", "Thanks!", "Done"]


@pytest.mark.parametrize(
    ("change", "text", "kinds"),
    [
        ({"text": "new"}, "new", []),
        ({"blocks": [{"type": "divider"}]}, "old", ["divider"]),
        ({"text": "new", "blocks": [{"type": "divider"}]}, "new", ["divider"]),
        ({"blocks": []}, "old", []),
    ],
)
async def test_update_replaces_the_named_fields(
    slack: Slack, web: AsyncWebClient, change: dict[str, Any], text: str, kinds: list[str]
) -> None:
    ts = (await web.chat_postMessage(channel=SWEEPS, text="old", blocks=[section("*old*")]))["ts"]
    await web.chat_update(channel=SWEEPS, ts=ts, **change)
    [message] = slack.messages("sweeps")
    assert (message["text"], [block["type"] for block in message.get("blocks", [])]) == (text, kinds)
    assert message["edited"]["user"] == "U01SWEEPBOT"


async def test_bot_has_a_name_permalinks_and_timestamps_that_increase(
    web: AsyncWebClient, slack: Slack
) -> None:
    me = await web.auth_test()
    assert (me["user_id"], me["bot_id"], me["team_id"]) == ("U01SWEEPBOT", "B01SWEEPBOT", "T01LOCALLAB")
    assert "chat:write" in me.headers["x-oauth-scopes"]
    parent = (await web.chat_postMessage(channel=SWEEPS, text="Sweep"))["ts"]
    reply = (await web.chat_postMessage(channel=SWEEPS, text="Build", thread_ts=parent))["ts"]
    link = (await web.chat_getPermalink(channel=SWEEPS, message_ts=reply))["permalink"]
    assert link == f"{slack.url}archives/{SWEEPS}/p{reply.replace('.', '')}?thread_ts={parent}&cid={SWEEPS}"
    stamps = [slack.say("ada", "sweeps", str(number))["ts"] for number in range(1000)]
    assert stamps == sorted(set(stamps))
    assert [len(part) for part in stamps[0].split(".")] == [10, 6]
    answer = await web.chat_postMessage(channel=ADA, text="Your sweep is done")
    assert answer["channel"] == "D01ADALOVEL"
    assert slack.messages("D01ADALOVEL")[0]["text"] == "Your sweep is done"


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("chat.postMessage", {"channel": RANDOM, "text": "hi"}, "not_in_channel"),
        ("chat.postMessage", {"channel": "#sweeps", "text": "hi"}, "channel_not_found"),
        ("chat.postMessage", {"channel": SWEEPS}, "no_text"),
        ("chat.postMessage", {"channel": SWEEPS, "text": "hi", "blocks": {}}, "invalid_blocks_format"),
        ("chat.postMessage", {"channel": SWEEPS, "text": "hi", "thread_ts": "soon"}, "invalid_thread_ts"),
        ("chat.postMessage", {"channel": SWEEPS, "blocks": [section("x" * 2900)] * 5}, "msg_blocks_too_long"),
        ("chat.update", {"channel": SWEEPS, "ts": "1763740800.000100", "text": "hi"}, "message_not_found"),
        ("chat.getPermalink", {"channel": SWEEPS, "message_ts": "1763740800.000100"}, "message_not_found"),
        ("chat.whisper", {}, "unknown_method"),
        ("apps.connections.open", {}, "not_allowed_token_type"),
    ],
)
async def test_errors_have_slacks_names(
    web: AsyncWebClient, method: str, arguments: dict[str, Any], error: str
) -> None:
    assert (await refusal(web.api_call(method, json=arguments)))["error"] == error


@pytest.mark.parametrize(("token", "error"), [(None, "not_authed"), ("xoxb-other", "invalid_auth")])
async def test_invalid_token_is_rejected(slack: Slack, token: str | None, error: str) -> None:
    assert (await refusal(AsyncWebClient(token, base_url=slack.api_url).auth_test()))["error"] == error


async def test_delete_removes_only_the_bots_messages(slack: Slack, web: AsyncWebClient) -> None:
    mine = (await web.chat_postMessage(channel=SWEEPS, text="x"))["ts"]
    theirs = slack.say("ada", "sweeps", "hello")["ts"]
    await web.chat_delete(channel=SWEEPS, ts=mine)
    assert [message["ts"] for message in slack.messages("sweeps")] == [theirs]
    assert (await refusal(web.chat_delete(channel=SWEEPS, ts=mine)))["error"] == "message_not_found"
    assert (await refusal(web.chat_delete(channel=SWEEPS, ts=theirs)))["error"] == "cant_delete_message"


async def test_update_is_rejected_if_too_long_or_not_the_bots(slack: Slack, web: AsyncWebClient) -> None:
    mine = (await web.chat_postMessage(channel=SWEEPS, text="x" * 40_001))["ts"]
    assert len(slack.messages("sweeps")[0]["text"]) == 40_000
    assert (await refusal(web.chat_update(channel=SWEEPS, ts=mine, text="x" * 4001)))[
        "error"
    ] == "msg_too_long"
    theirs = slack.say("ada", "sweeps", "hello")["ts"]
    assert (await refusal(web.chat_update(channel=SWEEPS, ts=theirs, text="x")))[
        "error"
    ] == "cant_update_message"


CONFIRM = {key: {"type": "plain_text", "text": "Stop?"} for key in ("title", "text", "confirm", "deny")}
PLAIN = {"type": "plain_text", "text": "x"}


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        ([section("x" * 3001)], "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"),
        ([section("")], "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
        ([{"type": "section"}], "must define either `text` or `fields` [json-pointer:/blocks/0/type]"),
        ([{"type": "section", "text": "x"}], "must provide an object [json-pointer:/blocks/0/text]"),
        (
            [{"type": "section", "fields": [PLAIN] * 11}],
            "no more than 10 items allowed [json-pointer:/blocks/0/fields]",
        ),
        (
            [{"type": "section", "fields": [PLAIN | {"text": "x" * 2001}]}],
            "must be less than 2001 characters [json-pointer:/blocks/0/fields/0/text]",
        ),
        ([{"type": "divider"}] * 51, "no more than 50 items allowed [json-pointer:/blocks]"),
        ([{"type": "sections"}], "unsupported type: sections [json-pointer:/blocks/0/type]"),
        ([{"type": "input"}], "unsupported type: input [json-pointer:/blocks/0/type]"),
        ([{}], "missing required field: type [json-pointer:/blocks/0]"),
        (
            [{"type": "divider", "style": "wavy"}],
            "invalid additional property: style [json-pointer:/blocks/0]",
        ),
        (
            [{"type": "header", "text": PLAIN | {"text": "x" * 151}}],
            "must be less than 151 characters [json-pointer:/blocks/0/text/text]",
        ),
        (
            [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}],
            "unsupported type: mrkdwn [json-pointer:/blocks/0/text/type]",
        ),
        ([{"type": "header"}], "missing required field: text [json-pointer:/blocks/0]"),
        (
            [{"type": "context", "elements": [PLAIN] * 11}],
            "no more than 10 items allowed [json-pointer:/blocks/0/elements]",
        ),
        ([actions(*[button()] * 26)], "no more than 25 items allowed [json-pointer:/blocks/0/elements]"),
        (
            [actions(button(text=PLAIN | {"text": "x" * 76}))],
            "must be less than 76 characters [json-pointer:/blocks/0/elements/0/text/text]",
        ),
        (
            [actions(button(value="x" * 2001))],
            "must be less than 2001 characters [json-pointer:/blocks/0/elements/0/value]",
        ),
        (
            [actions(button(style="loud"))],
            "must be one of: primary, danger [json-pointer:/blocks/0/elements/0/style]",
        ),
        (
            [actions(button(disabled=True))],
            "invalid additional property: disabled [json-pointer:/blocks/0/elements/0]",
        ),
        (
            [actions(button(action_id="a"), button(action_id="a"))],
            '`action_id` "a" already exists [json-pointer:/blocks/0/elements/1/action_id]',
        ),
        (
            [{"type": "divider", "block_id": "b"}] * 2,
            '`block_id` "b" already exists [json-pointer:/blocks/1/block_id]',
        ),
        (
            [actions(button(confirm=CONFIRM | {"deny": PLAIN | {"text": "x" * 31}}))],
            "must be less than 31 characters [json-pointer:/blocks/0/elements/0/confirm/deny/text]",
        ),
        (
            [{"type": "image", "image_url": "http://127.0.0.1:5000/plot.png", "alt_text": "plot"}],
            "downloading image failed [json-pointer:/blocks/0/image_url]",
        ),
        (
            [{"type": "markdown", "text": "x" * 12_001}],
            "must be less than 12001 characters [json-pointer:/blocks/0/text]",
        ),
        (
            [{"type": "table", "rows": [[{"type": "raw_text", "text": "x"}]] * 101}],
            "no more than 100 items allowed [json-pointer:/blocks/0/rows]",
        ),
    ],
)
async def test_invalid_blocks_are_rejected_with_a_pointer(
    web: AsyncWebClient, blocks: list[dict[str, Any]], complaint: str
) -> None:
    refused = await refusal(web.chat_postMessage(channel=SWEEPS, text="x", blocks=blocks))
    assert refused["error"] == "invalid_blocks"
    assert refused["errors"] == [complaint]
    assert refused["response_metadata"]["messages"] == [f"[ERROR] {complaint}"]


async def test_message_of_maximum_size_is_shown_but_no_second_table(
    slack: Slack, web: AsyncWebClient
) -> None:
    rich = {"type": "rich_text_section", "elements": [{"type": "text", "text": "x", "style": {"bold": True}}]}
    blocks = [
        {"type": "header", "text": PLAIN},
        section("x" * 3000),
        {"type": "section", "fields": [PLAIN] * 10, "accessory": button(confirm=CONFIRM, style="primary")},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "*x*"}]},
        {"type": "image", "image_url": "https://example.com/plot.png", "alt_text": "plot"},
        {"type": "table", "rows": [[{"type": "raw_text", "text": "lr"}]]},
        {"type": "rich_text", "elements": [rich]},
        actions(*[button(url="https://example.com", action_id=str(number)) for number in range(25)]),
    ]
    assert (await web.chat_postMessage(channel=SWEEPS, text="x", blocks=blocks))["ok"]
    table = {"type": "table", "rows": [[{"type": "raw_text", "text": "lr"}]]}
    assert (await refusal(web.chat_postMessage(channel=SWEEPS, blocks=[table] * 2)))[
        "error"
    ] == "invalid_attachments"


async def test_burst_is_allowed_and_then_one_post_per_second_and_channel() -> None:
    now = [100.0]
    slack = await serve(rates={"chat.postMessage": Rate(per_minute=60, burst=3)}, clock=lambda: now[0])
    web = AsyncWebClient(slack.bot_token, base_url=slack.api_url, retry_handlers=[])
    for _ in range(3):
        await web.chat_postMessage(channel=SWEEPS, text="x")
    with pytest.raises(SlackApiError) as caught:
        await web.chat_postMessage(channel=SWEEPS, text="x")
    response = caught.value.response
    assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
    assert response.data == {"ok": False, "error": "ratelimited"}

    await web.chat_postMessage(channel=VISION, text="another channel has its own second")
    now[0] += 1
    await web.chat_postMessage(channel=SWEEPS, text="x")
    await slack.close()


async def test_file_is_uploaded_in_three_calls_and_shown_in_a_thread_with_its_content(
    slack: Slack, web: AsyncWebClient
) -> None:
    parent = (await web.chat_postMessage(channel=SWEEPS, text="Sweep lr"))["ts"]
    how = {"channel": SWEEPS, "thread_ts": parent, "initial_comment": "It failed", "filename": "build.log"}
    await web.files_upload_v2(content="line 1\nline 2", **how)
    found = slack.messages("sweeps", parent)[1]
    assert (found["text"], found["files"][0]["name"]) == ("It failed", "build.log")
    async with aiohttp.request("GET", found["files"][0]["url_private"]) as answer:
        assert await answer.text() == "line 1\nline 2"
    started = await web.files_getUploadURLExternal(filename="x.png", length=3)
    async with aiohttp.request("POST", started["upload_url"], data=b"four") as answer:
        assert answer.status == 400
    found = await refusal(
        web.files_completeUploadExternal(files=[{"id": started["file_id"]}], channel_id=SWEEPS)
    )
    assert found["error"] == "file_not_found"
    assert (await refusal(web.files_getUploadURLExternal(filename="", length=3)))[
        "error"
    ] == "invalid_arguments"
