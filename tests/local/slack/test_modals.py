"""Modals, the home tab, mentions, and ephemeral messages, with a real Bolt app."""

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local.slack import Rate, Slack, serve

ADA, LINUS, SWEEPS, VISION = "U01ADALOVEL", "U01LINUSPAU", "C01SWEEPS00", "C01VISION00"


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def field(name: str, kind: str, *, dispatch: bool = False, **more: Any) -> dict[str, Any]:
    element = {"type": kind, "action_id": name, **more}
    block = {"type": "input", "block_id": name, "label": plain(name), "element": element}
    return block | ({"dispatch_action": True} if dispatch else {})


NAME, BRANCH = field("name", "plain_text_input"), field("branch", "external_select", dispatch=True)


def modal(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    submit = {"submit": plain("Go")} if any(block["type"] == "input" for block in blocks) else {}
    shown = list(blocks) or [{"type": "divider"}]
    return {"type": "modal", "title": plain("A sweep"), "blocks": shown, **submit, **more}


def option(name: str) -> dict[str, Any]:
    return {"text": plain(name), "value": name}


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


@pytest.fixture
async def opened(slack: Slack, app: AsyncApp) -> list[dict[str, Any]]:
    """Open a form for Ada; return what the app receives."""
    received: list[dict[str, Any]] = []

    @app.command("/sweep")
    async def sweep(ack: Any, client: AsyncWebClient, body: dict[str, Any]) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=modal(NAME, BRANCH, callback_id="form"))

    @app.options("branch")
    async def branches(ack: Any, body: dict[str, Any]) -> None:
        received.append(body)
        await ack(options=[option(f"{body['value']}-1"), option(f"{body['value']}-2")])

    @app.action("branch")
    async def chosen(ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        received.append(body)
        await ack()
        renamed = modal(NAME, BRANCH, callback_id="form", private_metadata="main")
        await client.views_update(view_id=body["view"]["id"], hash=body["view"]["hash"], view=renamed)

    @app.view("form")
    async def submitted(ack: Any, body: dict[str, Any]) -> None:
        received.append(body)
        if body["view"]["state"]["values"]["name"]["name"]["value"] == "bad":
            await ack(response_action="errors", errors={"name": "This name is taken."})
        else:
            await ack(response_action="update", view=modal(notify_on_close=True, callback_id="done"))

    @app.view_closed("done")
    async def closed(ack: Any, body: dict[str, Any]) -> None:
        received.append(body)
        await ack()

    await slack.command("ada", "sweeps", "/sweep", "")
    return received


async def test_modal_is_filled_rejected_corrected_and_closed(
    slack: Slack, opened: list[dict[str, Any]], until: Any
) -> None:
    offered = await slack.options("ada", "branch", "ma")
    assert [one["value"] for one in offered if isinstance(one, dict)] == ["ma-1", "ma-2"]
    assert await slack.submit("ada") == dict.fromkeys(
        ("name", "branch"), "Please complete this required field."
    )
    assert await slack.enter("ada", "name", "bad") is None
    assert await slack.enter("ada", "branch", option("ma-1")) is None
    assert await slack.submit("ada") == {"name": "This name is taken."}
    await slack.enter("ada", "name", "good")
    assert await slack.submit("ada") == {}
    [done] = slack.modals("ada")
    assert done["callback_id"] == "done"
    await slack.dismiss("ada")
    await until("the app knows", lambda: opened[-1]["type"] == "view_closed")
    assert slack.modals("ada") == []
    kinds = ["block_suggestion", "block_actions", "view_submission", "view_submission", "view_closed"]
    assert [body["type"] for body in opened] == kinds


async def test_menu_request_has_metadata_and_no_state(slack: Slack, opened: list[dict[str, Any]]) -> None:
    await slack.enter("ada", "name", "typed")
    await slack.enter("ada", "branch", option("main"))
    assert opened[0]["view"]["state"]["values"]["branch"]["branch"]["selected_option"]["value"] == "main"
    await slack.options("ada", "branch")
    assert opened[-1]["view"]["state"] == {"values": {}}
    assert opened[-1]["view"]["private_metadata"] == "main"
    values = slack.modals("ada")[0]["state"]["values"]  # an update keeps entered values
    assert values["name"]["name"] == {"type": "plain_text_input", "value": "typed"}


async def test_inputs_of_two_blocks_can_share_an_action_id(slack: Slack, web: AsyncWebClient) -> None:
    blocks = [field("value", "plain_text_input") | {"block_id": name} for name in ("name", "home")]
    await web.views_open(trigger_id=slack.views.trigger(ADA), view=modal(*blocks))
    await slack.enter("ada", "value", "typed", "home")
    values = slack.views.stated(slack.modals("ada")[-1])["state"]["values"]
    assert {block: entered["value"]["value"] for block, entered in values.items()} == {
        "name": None,
        "home": "typed",
    }


async def test_trigger_id_opens_one_view_within_three_seconds() -> None:
    now = [0.0]
    slack = await serve(clock=lambda: now[0])
    web = AsyncWebClient(slack.bot_token, base_url=slack.api_url, retry_handlers=[])
    trigger, late = slack.views.trigger(ADA), slack.views.trigger(ADA)
    root = (await web.views_open(trigger_id=trigger, view=modal()))["view"]
    assert await refused(web.views_open(trigger_id=trigger, view=modal())) == "exchanged_trigger_id"
    for _ in range(2):
        await web.views_push(trigger_id=slack.views.trigger(ADA), view=modal())
    deep = web.views_push(trigger_id=slack.views.trigger(ADA), view=modal())
    assert await refused(deep) == "push_limit_reached"
    assert {view["root_view_id"] for view in slack.modals("ada")} == {root["id"]}
    old = web.views_update(view_id=root["id"], hash="1.abc", view=modal())
    assert await refused(old) == "hash_conflict"
    assert await refused(web.views_update(view_id="V0", view=modal())) == "not_found"
    now[0] = 3.1
    assert await refused(web.views_open(trigger_id=late, view=modal())) == "expired_trigger_id"
    assert await refused(web.views_open(trigger_id="1.2.c", view=modal())) == "invalid_trigger_id"
    await slack.close()


@pytest.mark.parametrize(
    ("view", "complaint"),
    [
        (modal(title=plain("x" * 25)), "must be less than 25 characters [json-pointer:/view/title/text]"),
        (modal(NAME) | {"submit": plain("")}, "must be more than 0 characters"),
        ({k: v for k, v in modal(NAME).items() if k != "submit"}, "must define `submit`"),
        (modal(private_metadata="x" * 3001), "must be less than 3001 characters"),
        (modal(*[{"type": "divider"}] * 101), "no more than 100 items allowed [json-pointer:/view/blocks]"),
        (modal(NAME, NAME), '`block_id` "name" already exists'),
        (modal(field("a", "static_select", options=[])), "no less than 1 items allowed"),
        (modal(field("a", "static_select", options=[option("x" * 76)])), "must be less than 76 characters"),
        (
            modal(field("a", "static_select", options=[option("x")], initial_option=option("y"))),
            "initial_option must be one of the options",
        ),
        (modal(field("a", "number_input")), "missing required field: is_decimal_allowed"),
        ({"type": "home", "blocks": []}, "unsupported type: home"),
    ],
)
async def test_invalid_view_is_rejected(
    slack: Slack, web: AsyncWebClient, view: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SlackApiError) as caught:
        await web.views_open(trigger_id=slack.views.trigger(ADA), view=view)
    assert caught.value.response["error"] == "invalid_arguments"
    assert complaint in caught.value.response["response_metadata"]["messages"][0]


async def test_home_tab_is_published_when_opened_and_its_buttons_work(
    slack: Slack, app: AsyncApp, until: Any
) -> None:
    button = {"type": "button", "action_id": "new", "value": "1", "text": plain("New sweep")}
    home = {"type": "home", "blocks": [{"type": "actions", "elements": [button]}]}

    @app.event("app_home_opened")
    async def came(event: dict[str, Any], client: AsyncWebClient) -> None:
        await client.views_publish(user_id=event["user"], view=home)

    @app.action("new")
    async def new(ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=modal())

    slack.visit_home("ada")
    await until("there is a home", lambda: slack.home("ada"))
    assert await slack.press("ada", "new") is None
    assert len(slack.modals("ada")) == 1
    assert slack.home("grace") is None


@pytest.mark.parametrize("name", ["sweepbot", "Sweepbot"])
async def test_mention_is_an_event_with_an_ephemeral_reply(
    slack: Slack, app: AsyncApp, web: AsyncWebClient, until: Any, name: str
) -> None:
    @app.event("app_mention")
    async def mentioned(event: dict[str, Any], client: AsyncWebClient) -> None:
        where = {"channel": event["channel"], "user": event["user"], "thread_ts": event["thread_ts"]}
        await client.chat_postEphemeral(text=f"heard: {event['text']}", **where)

    parent = (await web.chat_postMessage(channel=SWEEPS, text="Sweep lr"))["ts"]
    slack.say("ada", "sweeps", f"@{name} how far is it?", parent)
    [post_ephemeral] = await until("an answer", lambda: slack.ephemerals("ada"))
    assert (post_ephemeral["thread_ts"], post_ephemeral["text"]) == (
        parent,
        "heard: <@U01SWEEPBOT> how far is it?",
    )


async def test_mention_in_direct_messages_is_no_event(
    slack: Slack, app: AsyncApp, web: AsyncWebClient, until: Any
) -> None:
    received = []

    @app.event("app_mention")
    async def mentioned(event: dict[str, Any]) -> None:
        received.append(event["channel"])

    direct = (await web.conversations_open(users=ADA))["channel"]["id"]
    slack.say("ada", direct, "@sweepbot logs")
    slack.say("ada", "sweeps", "@sweepbot logs")
    await until("the second one is heard", lambda: received)
    assert received == [SWEEPS]


async def test_users_and_direct_message_channels_are_found(web: AsyncWebClient) -> None:
    ada = (await web.users_info(user=ADA))["user"]
    assert (ada["name"], ada["profile"]["email"]) == ("ada", "ada@lab.example")
    assert (await web.conversations_open(users=ADA))["channel"]["id"] == "D01ADALOVEL"
    assert await refused(web.users_info(user="U0")) == "user_not_found"
    away = web.chat_postEphemeral(channel=VISION, user=LINUS, text="hi")
    assert await refused(away) == "user_not_in_channel"


async def test_broadcast_is_in_thread_and_channel(slack: Slack, web: AsyncWebClient) -> None:
    parent = (await web.chat_postMessage(channel=SWEEPS, text="Sweep lr"))["ts"]
    await web.chat_postMessage(channel=SWEEPS, text="Done", thread_ts=parent, reply_broadcast=True)
    assert [message["text"] for message in slack.messages("sweeps")] == ["Sweep lr", "Done"]


async def test_views_have_their_own_rate_limit_with_retry_after() -> None:
    slack = await serve(rates={"views.publish": Rate(60, 2)}, clock=lambda: 0.0)
    web = AsyncWebClient(slack.bot_token, base_url=slack.api_url, retry_handlers=[])
    home = {"type": "home", "blocks": [{"type": "divider"}]}
    for _ in range(2):
        await web.views_publish(user_id=ADA, view=home)
    with pytest.raises(SlackApiError) as caught:
        await web.views_publish(user_id=ADA, view=home)
    assert (caught.value.response["error"], caught.value.response.headers["Retry-After"]) == (
        "ratelimited",
        "1",
    )
    await web.views_open(trigger_id=slack.views.trigger(ADA), view=modal())
    await slack.close()
