"""What people say in their own words: in commands, mentions, and direct messages."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase
from bot.platform.config.limits import Launch
from handlers.any_wording import RUN
from tests.bot.factories import CONFIG
from tests.scenarios.slack_session import ADA, CHANNEL, PLACE, open_session
from tests.scenarios.slack_user import a_slack_user
from tests.scenarios.test_commands import HELD, READY, mentions

FORM_LINE = ":warning: Not understood: `bananas`."


def filled(modal):
    """The form's values by label, and the text above them."""
    values = {}
    for block in modal["blocks"]:
        if block["type"] == "input":
            element = block["element"]
            chosen = element.get("initial_option", {}).get("value")
            values[block["label"]["text"]] = element.get("initial_value") or chosen
    return values, modal["blocks"][0].get("text", {}).get("text", "")


async def said(session, text, channel=CHANNEL, person="ada"):
    """Say it outside threads; what the person alone sees, or else the last direct message."""
    session.slack.say(person, channel, text)
    await session.settled()
    return session.slack.ephemerals(person)[-1] if channel == CHANNEL else session.slack.messages(channel)[-1]


def offered(message):
    return next(b for b in message["blocks"] if b["type"] == "actions")["elements"][0]["value"]


async def started(session):
    return [sweep for sweep in await session.context.store.active() if sweep != "lr-brave-otter"]


async def test_sentence_after_the_command_opens_the_form_with_a_line_about_the_rest(redis):
    async with open_session(redis, **HELD) as session:
        answer, _ = await session.types("please try wd on foo with 2 GPUs, 9 trials and bananas")
        values, line = filled(session.slack.modals("ada")[-1])
        assert (answer, line) == ("", FORM_LINE)
        assert (values["Branch or tag"], values["Space"], values["GPUs per trial"]) == ("foo", "wd", "2")
        assert values["Max trials"] == "9"
        assert await started(session) == []


async def test_mention_with_complete_options_starts_the_sweep_once_and_a_sentence_offers_the_form(redis):
    async with open_session(redis, **HELD) as session:
        reply = await said(session, "@sweepbot --branch main --space lr --gpu 1")
        [sweep] = await started(session)
        assert f"Sweep `{sweep}` queued." in reply["text"]
        event = {"type": "app_mention", "user": ADA.user, "channel": PLACE, "ts": "1.000001"}
        for edited in ({"edited": {"user": ADA.user}}, {"bot_id": "B1"}, {"subtype": "message_changed"}):
            session.slack.happens(event | edited | {"text": "<@U01SWEEPBOT> branch=main space=lr"})
        await session.settled()
        assert await started(session) == [sweep]

        reply = await said(session, "@sweepbot *lr* on `dev` with 2 gpus\nbranch=main space=lr, Grace?")
        assert reply["text"] == "Understood: `branch=dev gpus=2 space=lr`."
        assert await session.slack.click("ada", CHANNEL, reply["ts"], RUN) is None
        values, line = filled(session.slack.modals("ada")[-1])
        assert (values["Branch or tag"], values["Space"], values["GPUs per trial"]) == ("dev", "lr", "2")
        assert "warning" not in line
        assert await started(session) == [sweep]


async def test_question_about_gpus_is_answered_where_it_was_asked_also_after_the_measurement(redis):
    async with a_slack_user(redis) as user:
        slack, context = user.slack, user.context
        place = slack.workspace.direct(slack.workspace.person("ada")).id

        async def asks(channel, thread=None):
            """Ask, and return when it was asked; the measurement is too old for the next question."""
            message = slack.say("ada", channel, "@sweepbot who has the GPUs?", thread)
            while slack.tasks:
                await asyncio.wait(set(slack.tasks))
            await context.background.finish(3)
            await user.runs()
            user.now += timedelta(minutes=2)
            return message["ts"]

        asked = await asks(CHANNEL)
        await asks(CHANNEL, asked)
        shown = [(each["text"].split(".")[0], each.get("thread_ts")) for each in slack.ephemerals("ada")]
        answer = "No GPUs allocated"
        loading = (
            "Loading GPU data… If nothing appears in a few seconds, ask an admin to check Sweepbot's workers"
        )
        assert shown == [(loading, None), (answer, None), (answer, asked), (answer, asked)]
        assert slack.messages(place) == []
        await asks(place)
        assert len([each for each in slack.messages(place) if each["text"].startswith(answer)]) == 2
        assert len(slack.ephemerals("ada")) == 4


async def test_command_outside_a_thread_is_acknowledged_where_it_was_given(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        place = session.slack.workspace.direct(session.slack.workspace.person("ada")).id
        sent = "Request sent to `lr-brave-otter`. The result appears in its thread."
        assert (await said(session, "drain lr-brave-otter", place))["text"] == sent
        assert (await said(session, "@sweepbot cancel lr-brave-otter"))["text"] == sent
        await session.until(Phase.CANCELLED)


async def test_direct_message_is_answered_there_and_its_offer_runs_when_clicked_once(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        place = session.slack.workspace.direct(session.slack.workspace.person("ada")).id
        status = await said(session, "how is my sweep doing?", place)
        assert status["text"].startswith(":runner: *<")
        assert "|lr-brave-otter>*" in status["text"]
        offer = await said(session, "hi, please stop my sweep", place)
        assert offer["text"] == "Run `/sweep cancel lr-brave-otter`?"
        assert offered(offer) == "/sweep cancel lr-brave-otter"
        await session.rounds(2)
        assert (await session.simulation.record()).cancelled_by is None
        assert await session.slack.click("ada", place, offer["ts"], RUN) is None
        await session.settled()
        [shown] = [m for m in session.slack.messages(place) if m["ts"] == offer["ts"]]
        assert shown["text"].startswith("Request sent to `lr-brave-otter`")
        await session.until(Phase.CANCELLED)


async def test_offer_in_a_thread_is_about_its_sweep_and_runs_with_the_clickers_rights(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        await mentions(session, "@sweepbot kill it please", "grace")
        offer = session.slack.ephemerals("grace")[-1]
        assert offered(offer) == "/sweep cancel lr-brave-otter"
        assert await session.slack.click("grace", CHANNEL, offer["ts"], RUN) is None
        await session.rounds(2)
        assert (await session.simulation.record()).cancelled_by is None
        assert "Only <@" in session.slack.ephemerals("grace")[-1]["text"]


async def test_offered_rerun_is_started_once_by_two_clicks(redis):
    async with open_session(redis, **READY) as session:
        await session.until(Phase.SUCCEEDED)
        _, _ = await session.types("run otter again with cmd='python train.py --note \"a &lt; b\"'")
        offer = session.slack.ephemerals("ada")[-1]
        clicks = (session.slack.click("ada", CHANNEL, offer["ts"], RUN) for _ in range(2))
        assert await asyncio.gather(*clicks) == [None, None]
        await session.rounds(2)
        [other] = await started(session)
        assert (await session.context.store.get(other)).request.cmd == 'python train.py --note "a < b"'


async def test_sentence_where_nobody_can_start_sweeps_opens_no_form(redis):
    config = replace(CONFIG, launch=Launch(channels=("C0ELSEWHERE",)))
    async with open_session(redis, **HELD, config=config) as session:
        reply, _ = await session.types("try lr on main")
        assert "can only be started" in reply
        assert session.slack.modals("ada") == []
