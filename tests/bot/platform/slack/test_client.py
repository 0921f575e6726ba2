"""Slack's responses decide whether a message is sent again."""

import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.slack.blocks import section
from bot.platform.slack.client import (
    MessageRejectedError,
    NotInChannelError,
    Slack,
    SlackBusyError,
    error_code,
)
from bot.platform.slack.message import File, Message
from bot.text.masking import Mask
from local.serving import listen
from local.slack import DOWN, serve

PAGE = "<html>Service Unavailable</html>"


@pytest.fixture
async def reported():
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
            await slack.reply("C1", "1.0", "hello")
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
        (
            200,
            "application/json",
            '{"ok": false, "error": "team_access_not_granted"}',
            "team_access_not_granted",
        ),
    ],
)
async def test_transient_error_is_raised_for_a_retry(reported, status, kind, body, word):
    error = await reported(status, kind, body)
    assert isinstance(error, SlackApiError)
    assert error_code(error) == word


@pytest.mark.parametrize(
    ("status", "kind", "body", "headers", "seconds"),
    [
        (429, "application/json", '{"ok": false, "error": "ratelimited"}', {"Retry-After": "7"}, 7),
        (429, "application/json", '{"ok": false, "error": "rate_limited"}', {"Retry-After": "7"}, 7),
        (200, "application/json", '{"ok": false, "error": "rate_limited"}', {}, 5.0),
        (429, "text/plain", "slower", {"Retry-After": "30"}, 30),
        (429, "text/html", PAGE, {"Retry-After": "30"}, 30),
        (429, "application/json", "", {"Retry-After": "30"}, 30),
        (429, "text/html", PAGE, {"Retry-After": "Sun, 29 Nov 2026 06:00:00 GMT"}, 5.0),
    ],
)
async def test_rate_limit_is_recognized_in_every_form(reported, status, kind, body, headers, seconds):
    error = await reported(status, kind, body, **headers)
    assert isinstance(error, SlackBusyError)
    assert error.seconds == seconds


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("is_archived", NotInChannelError),
        ("ekm_access_denied", NotInChannelError),
        ("restricted_action_read_only_channel", NotInChannelError),
        ("no_text", MessageRejectedError),
    ],
)
async def test_rejected_message_is_not_sent_again(reported, word, kind):
    assert isinstance(await reported(200, "application/json", f'{{"ok": false, "error": "{word}"}}'), kind)


@pytest.fixture
async def workspace():
    workspace = await serve()
    yield workspace
    await workspace.close()


BUILD_LOG, TRIALS = File(name="build.log", content="Killed"), File(name="trials.csv", content="a,b")


@pytest.fixture
def slack(workspace):
    return Slack(AsyncWebClient(token=workspace.bot_token, base_url=workspace.api_url, retry_handlers=[]))


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
@pytest.mark.parametrize(
    "word", ["missing_scope", "blocked_file_type", "a_word_of_tomorrow", "not_allowed_token_type", DOWN]
)
async def test_text_is_posted_without_a_rejected_file(workspace, slack, method, word):
    parent = await slack.reply("C01SWEEPS00", "", "A sweep")
    workspace.stumble(method, word)
    assert await slack.upload_files("C01SWEEPS00", parent, "The build failed.", [BUILD_LOG]) == []
    sent = workspace.messages("sweeps", parent)[-1]["text"]
    remove_commands = "HTTP 503" if word == DOWN else word
    first, *fix = sent.removeprefix("The build failed.\n").split(" *Fix:* ")
    assert first == f"Couldn't attach `build.log`: Slack error `{remove_commands}`."
    assert (["files:write" in each for each in fix]) == [True] * (word == "missing_scope")


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/", "{url}/nothing/there"])
async def test_text_is_posted_when_only_the_file_host_is_unreachable(workspace, slack, place, monkeypatch):
    async def elsewhere(*_, **__):
        return {"upload_url": place.format(url=workspace.api_url), "file_id": "F1"}

    monkeypatch.setattr(AsyncWebClient, "files_getUploadURLExternal", elsewhere)
    parent = await slack.reply("C01SWEEPS00", "", "A sweep")
    await slack.upload_files("C01SWEEPS00", parent, "The build failed.", [BUILD_LOG])
    sent = workspace.messages("sweeps", parent)[-1]["text"]
    assert sent == (
        "The build failed.\nCouldn't attach `build.log`: Slack's file host didn't accept it. *Fix:* Ask an "
        "admin to allow HTTPS to files.slack.com."
    )


async def test_picture_of_many_parameters_is_uploaded_with_a_shorter_description(workspace, slack):
    parent = await slack.reply("C01SWEEPS00", "", "A sweep")
    picture = File(name="lr.png", content=b"png", alt="width=1, " * 200)
    assert len(await slack.upload_files("C01SWEEPS00", parent, "Results", [picture, TRIALS])) == 2


async def test_ephemeral_file_that_slack_rejects_is_replaced_by_text(workspace, slack):
    workspace.stumble("files.completeUploadExternal", "a_word_of_tomorrow")
    await slack.send_file("U01ADALOVEL", "All trials", TRIALS)
    [sent] = workspace.workspace.channels["D01ADALOVEL"].messages.values()
    assert sent["text"] == "All trials\nCouldn't attach `trials.csv`: Slack error `a_word_of_tomorrow`."


@pytest.mark.parametrize("word", ["user_not_in_channel", "cannot_reply_to_message", "invalid_blocks"])
async def test_ephemeral_message_that_slack_rejects_is_sent_directly(workspace, slack, word):
    workspace.stumble("chat.postEphemeral", word)
    await slack.post_ephemeral("U01ADALOVEL", "Only its owner can.", "", "C01SWEEPS00", "1700000000.000000")
    assert [each["text"] for each in workspace.messages("D01ADALOVEL")] == ["Only its owner can."]


async def test_edit_in_an_archived_channel_can_succeed_later_and_of_a_deleted_message_never(workspace, slack):
    workspace.stumble("chat.update", "is_inactive", "message_not_found")
    with pytest.raises(NotInChannelError):
        await slack.update("C01SWEEPS00", "1700000000.000000", Message(text="Finished"))
    await slack.update("C01SWEEPS00", "1700000000.000000", Message(text="Finished"))


@pytest.mark.parametrize("word", ["invalid_blocks", "msg_blocks_too_long", "msg_too_long"])
async def test_message_whose_form_slack_rejects_is_sent_as_masked_text(workspace, slack, caplog, word):
    slack, blocks = Slack(slack._web, mask=Mask(["planted-own"])), (section("*4 trials* planted-own"),)
    ts = await slack.open_thread("C01SWEEPS00", Message(text="Running", blocks=blocks))
    for call, to in (("chat.update", slack.update), ("chat.postMessage", slack.reply)):
        workspace.stumble(call, word)
        await to("C01SWEEPS00", ts, Message(text="4 trials planted-own", blocks=blocks))
    for sent in workspace.messages("sweeps", ts):
        assert (sent["text"], sent.get("blocks")) == ("4 trials ***", None)
    logged = [record.getMessage() for record in caplog.records if record.name == "bot.platform.slack.client"]
    assert [word in line and "planted" not in line for line in logged] == [True, True]
    refused = workspace.stumble("chat.update")
    refused.append("msg_too_long")
    await slack.update("C01SWEEPS00", ts, Message(text="ä" * 4_000))
    assert 900 < len(workspace.messages("sweeps", ts)[0]["text"]) <= 1_000
    refused.append("msg_too_long")
    with pytest.raises(MessageRejectedError):  # nothing else to send
        await slack.update("C01SWEEPS00", ts, Message(text="Running"))


async def test_account_of_a_team_is_shown_nothing(workspace, slack):
    for channel in ("", "C01SWEEPS00"):
        await slack.post_ephemeral("team-vision", "Only admins can do that.", channel=channel)
    assert workspace.messages("sweeps") == []


async def test_direct_message_is_opened_so_that_it_can_be_edited(workspace, slack):
    channel = await slack.open_dm("U01ADALOVEL")
    ts = await slack.post(channel, Message(text="Do you need it?"))
    await slack.update(channel, ts, Message(text="Not any more."))
    [sent] = workspace.workspace.channels["D01ADALOVEL"].messages.values()
    assert sent["text"] == "Not any more."
    with pytest.raises(MessageRejectedError, match="user_not_found"):
        await slack.open_dm("U0NOBODY")


async def test_file_waits_with_its_text_while_slack_is_unreachable(workspace, slack):
    workspace.stumble("files.completeUploadExternal", DOWN)
    workspace.stumble("chat.postMessage", DOWN)
    with pytest.raises(SlackApiError):
        await slack.upload_files("C01SWEEPS00", "1700000000.000000", "The build failed.", [BUILD_LOG])
    workspace.stumble("files.completeUploadExternal").append("ratelimited")
    with pytest.raises(SlackBusyError):
        await slack.send_file("U01ADALOVEL", "All trials", TRIALS)


class Taking:
    """Takes every call, and keeps what it was given."""

    def __init__(self):
        self.taken = []

    def __getattr__(self, method):
        async def call(**given):
            self.taken.append(str(given))
            return {"ts": "1.0", "files": [{"id": "F1"}], "channel": {"id": "D1"}}

        return call


async def test_every_text_is_masked():
    web, token = Taking(), "ghp_plantedplantedplanted1234"
    slack, words = Slack(web, mask=Mask(["planted-own"])), f"planted-own {token}"
    section = {"type": "section", "text": {"type": "mrkdwn", "text": words}}
    message = Message(text=words, blocks=(section,))
    await slack.open_thread("C1", message)
    await slack.reply("C1", "1.0", words)
    await slack.update("C1", "1.0", message)
    for file in (File(name="a.log", content=words), File(name="a.png", content=b"picture", alt=words)):
        await slack.upload_files("C1", "1.0", words, [file])
        await slack.send_file("U1", words, file)
    await slack.post_ephemeral("U1", message, "", "C1", "1.0")
    await slack.update_view("V1", {"blocks": [section], "private_metadata": "stays"})
    await slack.publish_home("U1", {"blocks": [section]})
    assert [call for call in web.taken if "planted" in call] == []
    assert sum("***" in call for call in web.taken) == 10
    assert "'private_metadata': 'stays'" in web.taken[-2]


async def test_text_whose_file_is_rejected_is_masked_and_cut(workspace, slack):
    slack, words = Slack(slack._web, mask=Mask(["planted-own"])), "planted-own " * 500
    parent = await slack.reply("C01SWEEPS00", "", "A sweep")
    workspace.stumble("files.completeUploadExternal", "missing_scope", "missing_scope")
    await slack.upload_files("C01SWEEPS00", parent, words, [BUILD_LOG])
    await slack.send_file("U01ADALOVEL", words, BUILD_LOG)
    for place, thread in (("sweeps", parent), ("D01ADALOVEL", None)):
        sent = workspace.messages(place, thread)[-1]["text"]
        assert (sent.count("planted"), sent.count("Couldn't attach `build.log`")) == (0, 1)
        assert len(sent) < 4_300


async def test_texts_are_cut_to_slacks_limits(workspace, slack):
    words, lines = "&amp; <@U01ADALOVEL> " * 2_000, [{"type": "divider"}] * 80
    part = {"type": "section", "text": {"type": "mrkdwn", "text": words}}
    ts = await slack.open_thread("C01SWEEPS00", Message(text=words, blocks=(part, *lines)))
    await slack.update("C01SWEEPS00", ts, Message(text=words))
    [sent] = workspace.messages("sweeps")
    assert 3_900 < len(sent["text"]) <= 4_000
    assert sent["text"].endswith(("; \n…", "> \n…"))
