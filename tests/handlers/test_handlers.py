"""Commands and clicks through Bolt's own dispatch: queued durably, then acknowledged, once."""

import asyncio
import json
import logging

import pytest
from aiohttp import ClientConnectionError
from redis.exceptions import ConnectionError as RedisDown
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action
from bot.core.record import Phase
from bot.core.request import Requester
from bot.core.work_item import DOCTOR
from bot.platform.commands import grammar
from bot.platform.runtime.log_format import JsonLines
from bot.text.masking import Mask
from handlers.context import LATE, UNREACHABLE
from handlers.launch_form import NOT_OPENED
from local.slack.workspace import TEAM
from tests.bot.factories import ADMIN, a_sweep
from tests.handlers.factories import a_click, a_command


async def test_command_is_stored_and_queued_before_its_ack(app, context):
    answer = await app.async_dispatch(a_command("branch=main space=lr gpus=2"))
    lease = await context.queue.get(wait=0)
    assert (answer.status, lease.item.key in answer.body) == (200, True)
    sweep = await context.store.get(lease.item.key)
    assert (sweep.phase, sweep.request.gpus, sweep.requester.channel) == (Phase.RECEIVED, 2, "C1")


async def test_log_names_who_requested_what(app, context, caplog):
    lines = JsonLines(Mask([]))
    caplog.handler.setFormatter(lines)
    caplog.set_level(logging.INFO)
    await app.async_dispatch(a_command("branch=main space=lr"))
    [sweep] = await context.store.active()
    await app.async_dispatch(a_click(sweep))
    logged = [json.loads(line) for line in caplog.text.splitlines()]
    assert [(line["sweep"], line["message"]) for line in logged if "sweep" in line] == [
        (sweep, "sweep queued: user=U1 channel=C1"),
        (sweep, "command queued: user=U1 action=cancel"),
    ]


async def test_command_delivered_twice_starts_one_sweep(app, context):
    first = await app.async_dispatch(a_command("branch=main space=lr"))
    again = await app.async_dispatch(a_command("branch=main space=lr"))
    other = await app.async_dispatch(a_command("branch=main space=lr", trigger="trigger-9"))
    assert first.body == again.body != other.body
    assert len(await context.store.active()) == 2


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", NOT_OPENED),
        ("help", "Start a sweep"),
        ("Help", "Start a sweep"),
        ("branch=main spaec=lr", "Did you mean space?"),
        ("help me", "Start a sweep"),
        ("cancle otter", "Unknown command `cancle`. Did you mean cancel?"),
        ("docter", f"Only admins can do that: <@{ADMIN}>."),
        ("branch=main space=lr cmd='oops", "quote"),
    ],
)
async def test_help_and_invalid_commands_start_nothing(app, context, text, answer):
    response = await app.async_dispatch(a_command(text))
    assert response.status == 200
    assert answer in response.body
    assert await context.store.active() == set()


async def test_command_of_thousands_of_unknown_options_is_parsed_once_and_compared_ten_times(
    app, context, monkeypatch
):
    """All on the event loop: each comparison takes about as long as the rest of a small command."""
    compared, parsed = [], []
    compare, split = grammar.did_you_mean, grammar.shlex.split
    monkeypatch.setattr(grammar, "did_you_mean", lambda *names: compared.append(1) or compare(*names))
    monkeypatch.setattr(grammar.shlex, "split", lambda text: parsed.append(1) or split(text))
    answer = await app.async_dispatch(a_command("a=b " * 1_990))
    assert (len(compared), len(parsed)) == (10, 1)
    assert "Unknown option: `a=`. Available: " in answer.body
    assert "… and 19" in answer.body
    assert await context.store.active() == set()


async def test_queue_that_is_unreachable_is_reported(app, context, monkeypatch):
    async def down(*_, **__):
        raise RedisDown

    monkeypatch.setattr(context.store, "create", down)
    response = await app.async_dispatch(a_command("branch=main space=lr"))
    assert (response.status, UNREACHABLE in response.body) == (200, True)


async def test_slow_queue_is_acknowledged_without_an_error(app, context, monkeypatch):
    async def slow(*_, **__):
        await asyncio.sleep(60)

    monkeypatch.setattr("handlers.context.ACK_TIMEOUT", 0.01)
    monkeypatch.setattr(context.store, "create", slow)
    response = await app.async_dispatch(a_command("branch=main space=lr"))
    assert (response.status, LATE in response.body, UNREACHABLE in response.body) == (200, True, False)


async def test_hundreds_of_sweeps_are_listed_without_reading_one(app, context, monkeypatch):
    for number in range(350):
        sweep = a_sweep(Phase.SUCCEEDED, request_id=f"d{number}")
        await context.store.create(sweep, [f"lr-old-{number}"], f"d{number}")
    live = a_sweep(Phase.RUNNING, id="lr-brave-otter")
    await context.store.create(live, [live.id], live.request_id)
    monkeypatch.setattr("bot.platform.storage.sweeps.load", None)
    listed = await app.async_dispatch(a_command("list"))
    assert "*lr-brave-otter*" in listed.body
    cancelled = await app.async_dispatch(a_command("cancel lr"))
    assert "`lr-brave-otter`" in cancelled.body
    assert [command.action for command in await context.store.commands(live.id)] == [Action.CANCEL]


async def test_doctor_requested_by_an_admin_is_queued(app, context):
    response = await app.async_dispatch(a_command("doctor", user=ADMIN))
    assert "Running checks" in response.body
    [command] = await context.store.commands(str(DOCTOR))
    assert (command.action, command.user, command.response_url) == (Action.EXAMINE, ADMIN, "https://hooks/1")
    assert (await context.queue.get(wait=0)).item == DOCTOR


async def test_doctor_requested_by_others_names_the_admins(app, context):
    response = await app.async_dispatch(a_command("doctor"))
    assert f"Only admins can do that: <@{ADMIN}>." in response.body
    assert await context.queue.get(wait=0) is None


async def test_doctor_cannot_be_reached_through_a_sweeps_name(app, context):
    await app.async_dispatch(a_command("cancel doctor: now"))
    await app.async_dispatch(a_command("cancel doctor"))
    assert await context.store.commands(str(DOCTOR)) == []


async def test_ack_escapes_user_text(app):
    response = await app.async_dispatch(a_command("branch=<!channel> space=lr"))
    assert "<!channel>" not in response.body


async def test_slow_slack_does_not_delay_a_mention(app, context, monkeypatch):
    reported, go_on = [], asyncio.Event()

    async def slow(_, **message):
        await go_on.wait()
        reported.append(message["text"])

    monkeypatch.setattr(AsyncWebClient, "chat_postEphemeral", slow)
    event = {"type": "app_mention", "user": "U1", "channel": "C1", "text": "<@U01SWEEPBOT> help"}
    body = {"type": "event_callback", "event_id": "Ev1", "team_id": TEAM["id"], "event": event}
    answer = await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    assert (answer.status, reported) == (200, [])
    go_on.set()
    await context.background.finish(5)
    assert [text.startswith("*Start a sweep*") for text in reported] == [True]


@pytest.mark.parametrize(
    "text", ["<@U01SWEEPBOT> logs otter", "&gt; cancel fox\n&gt; ok\n<@U01SWEEPBOT> logs otter"]
)
async def test_mention_with_a_command_outside_a_sweeps_thread_runs_as_typed(app, context, monkeypatch, text):
    reported = []

    async def post(_, **message):
        reported.append(message["text"])

    monkeypatch.setattr(AsyncWebClient, "chat_postEphemeral", post)
    event = {"type": "app_mention", "user": "U1", "channel": "C1", "text": text}
    body = {"type": "event_callback", "event_id": "Ev1", "team_id": TEAM["id"], "event": event}
    await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    await context.background.finish(5)
    assert reported == ["No sweep named `otter`."]


@pytest.mark.parametrize(
    "text",
    [
        "<@U01SWEEPBOT> cancel <@UGRACE>",
        "&gt; <@U01SWEEPBOT> cancel otter",
        "&gt; cancel otter\n<@U01SWEEPBOT>",
        "<@U01SWEEPBOT>\n&gt;&gt;&gt; Grace:\ncancel otter",
    ],
)
async def test_mention_of_a_colleague_or_a_quote_cancels_nothing(app, context, monkeypatch, text):
    """`cancel @grace` would otherwise cancel one's own sweep."""
    reported = []

    async def post(_, **message):
        reported.append(message["text"])

    monkeypatch.setattr(AsyncWebClient, "chat_postEphemeral", post)
    owner = Requester(user="U1", user_name="ada", channel="C1")
    sweep = a_sweep(Phase.RUNNING, requester=owner)
    await context.store.create(sweep, [sweep.id], sweep.request_id)
    event = {"type": "app_mention", "user": "U1", "channel": "C1", "text": text}
    body = {"type": "event_callback", "event_id": "Ev1", "team_id": TEAM["id"], "event": event}
    await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    await context.background.finish(5)
    assert await context.store.commands(sweep.id) == []
    assert len(reported) == 1


async def test_user_text_is_escaped_once(app):
    response = await app.async_dispatch(a_command("list &lt;!channel&gt;"))
    assert 'LIST must be mine, running, team, or failed; got "&lt;!channel&gt;".' in response.body


async def test_form_that_slack_rejects_is_reported_with_an_alternative(app, monkeypatch):
    async def away(*_, **__):
        raise ClientConnectionError

    monkeypatch.setattr(AsyncWebClient, "views_open", away)
    for text in ("", "run", "branch=main"):
        response = await app.async_dispatch(a_command(text))
        assert (response.status, response.body) == (200, NOT_OPENED)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("branch=main,dev seeds=3 cmd=./train", "seeds= runs one branch"),
        ("branch=main seeds=3", "seeds= needs a command"),
        ("branch=main space=lr seeds=3 cmd=./train", "Remove seeds= or space="),
    ],
)
async def test_form_for_options_that_exclude_each_other_says_why_no_sweep_started(
    app, context, monkeypatch, text, reason
):
    opened = []

    async def shown(_, *, trigger_id, view):
        opened.append(json.dumps(view))

    monkeypatch.setattr(AsyncWebClient, "views_open", shown)
    await app.async_dispatch(a_command(text))
    [view] = opened
    assert reason in view
    assert await context.store.active() == set()


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("cancel lr-brave-otter", (Action.CANCEL, "", 0)),
        ("cancel `lr-brave-otter` x1y2", (Action.KILL, "x1y2", 0)),
        ("drain lr-brave-otter", (Action.DRAIN, "", 0)),
        ("extend lr-brave-otter trials=20", (Action.EXTEND, "", 20)),
        ("Drain\nlr-brave-otter", (Action.DRAIN, "", 0)),
        ("cancel\u00a0lr-brave-otter\tx1y2", (Action.KILL, "x1y2", 0)),
        ("rerun\nlr-brave-otter\ntrials=4", (Action.RERUN, "", 0)),
    ],
)
async def test_command_is_stored_in_the_sweeps_mailbox(app, context, text, asked):
    response = await app.async_dispatch(a_command(text))
    [command] = await context.store.commands("lr-brave-otter")
    assert (command.action, command.trial, command.trials) == asked
    assert (command.user, response.status) == ("U1", 200)
    assert (await context.queue.get(wait=0)).item.key == "lr-brave-otter"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("cancel lr-a-b b c", "Unknown argument: `c`. Usage: `/sweep cancel [SWEEP] [TRIAL]`"),
        ("extend lr-a-b", "Missing trials=. Usage: `/sweep extend [SWEEP] trials=20`"),
        ("extend lr-a-b trials=many", "trials= must be a whole number from 1 to 999999;"),
        ("drain lr-a-b later", "Usage: `/sweep drain [SWEEP]`"),
        ("list nonsense", "Usage: `/sweep list [mine|running|team|failed]`"),
        ("cancel", "You have no running sweeps."),
        ("logs fox", "No sweep named `fox`"),
    ],
)
async def test_invalid_command_shows_its_usage(app, context, text, answer):
    response = await app.async_dispatch(a_command(text))
    assert answer in response.body
    assert await context.queue.get(wait=0) is None


@pytest.mark.parametrize("name", ["x/../../configmaps/kube-root-ca.crt", "../secrets", "L_R", "a" * 41])
async def test_invalid_sweep_name_queues_nothing(app, context, name):
    response = await app.async_dispatch(a_command(f"cancel {name}"))
    assert "isn't a sweep name" in response.body
    assert await context.queue.get(wait=0) is None


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("w" * 9_000, "The command can have at most 8,000 characters; got 9,000."),
        ("wo " * 2_600, "and 2588 more"),
        (" ".join(f"k{n}=<1>" for n in range(900)), "more"),
        ("branch=x space=lr " + "<" * 7_000, "Unknown argument: "),
        ("cancel " + "`w`" * 2_600, "isn't a sweep name"),
        ("list " + "w" * 7_000, "LIST must be mine"),
    ],
)
async def test_reply_fits_a_message(app, text, reported):
    answer = await app.async_dispatch(a_command(text))
    assert reported in answer.body
    assert len(answer.body) <= 4_000
