"""Commands, buttons, and mentions through Bolt's dispatch and real reconciles."""

from dataclasses import replace
from itertools import count

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.request import Notify
from bot.platform.config.limits import Launch
from bot.sweep.decisions.parent_message import LOGS, RERUN, RESULTS, TRIALS
from bot.sweep.model.texts import CANCEL
from local.slack.workspace import TEAM
from tests.bot.factories import CONFIG, REQUEST
from tests.scenarios.slack_session import ADA, CHANNEL, open_session
from tests.scenarios.sweep_in_memory import SWEEP

READY = {"image": True}
HELD = READY | {"endless": "trainings"}


@pytest.fixture
def no_pace(monkeypatch):
    """These scenarios don't test rate limits."""

    async def at_once(*_):
        return 0.0

    monkeypatch.setattr("bot.platform.slack.rate_limit.RateLimiter.wait", at_once)


pytestmark = pytest.mark.usefixtures("no_pace")


async def test_running_sweep_is_listed_and_its_name_can_be_omitted_or_shortened(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        for which, there in (("", True), ("mine", False), ("running", True)):
            answer, _ = await session.types(f"list {which}", person="grace")
            assert (f"|{SWEEP}>* · Running" in answer) is there, which
        answer, _ = await session.types("list team", person="grace")
        assert answer.startswith("You aren't in a team.")
        answer, _ = await session.types("cancel", person="grace")
        assert answer.startswith("You have no running sweeps.")
        await session.types(f"cancel {SWEEP}", person="grace")
        answer, _ = await session.types("status")
        assert f"|{SWEEP}>* · Running" in answer
        assert "ada started the sweep" in answer
        assert "grace: cancel denied" in answer
        answer, _ = await session.types("drain otter")
        assert answer.startswith(f"Request sent to `{SWEEP}`")
        assert any("*ada* is draining this sweep" in text for text in session.thread())
        answer, _ = await session.types("cancel", rounds=6)
        assert answer.startswith(f"Request sent to `{SWEEP}`")
        await session.until(Phase.CANCELLED)


async def test_results_are_a_table_and_a_file_also_of_a_sweep_that_redis_lost(redis):
    async with open_session(redis, **READY) as session:
        await session.until(Phase.SUCCEEDED)
        while (await session.simulation.record()).outbox:  # the end has files of its own
            await session.rounds()
        _, [*_, reported] = await session.types("results")
        best = [line for line in reported.splitlines() if line.startswith("`loss`")]
        assert [line.split()[1] for line in best] == ["0.1", "0.3", "0.5"]
        [message] = [m for m in session.slack.ephemerals("ada") if "blocks" in m]
        [table] = [b for b in message["blocks"] if b["type"] == "table"]
        cells = [[cell["text"] for cell in row] for row in table["rows"]]
        assert cells[0] == ["trial", "state", "loss", "width"]
        assert [row[1:] for row in cells[1:]] == [
            ["done", "0.1", "c"],
            ["done", "0.3", "b"],
            ["done", "0.5", "a"],
        ]
        assert reported.endswith(f"\nAll trials of `{SWEEP}`: file sent by direct message.")
        [direct] = session.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()
        assert (direct["text"], direct.get("thread_ts")) == (f"All trials of `{SWEEP}`", None)
        assert [file["name"] for file in direct["files"]] == [f"{SWEEP}.csv"]
        session.slack.stumble("files.getUploadURLExternal", "missing_scope")
        await session.types("results")
        [_, direct] = session.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()
        assert f"\nCouldn't attach `{SWEEP}.csv`: Slack error `missing_scope`. *Fix:* " in direct["text"]
        await redis.flushall()
        answer, reported = await session.types(f"results {SWEEP}")
        assert answer.startswith("Looking up")
        assert "3 of 3 trials" in reported[-1]


async def test_ended_sweep_mentions_its_owner_once_and_its_buttons_act_on_the_current_state(redis):
    async with open_session(redis, **READY) as session:
        await session.until(Phase.SUCCEEDED)
        await session.rounds(2)
        called = [
            m for m in session.slack.messages(CHANNEL, session.parent()["ts"]) if f"<@{ADA.user}>" in str(m)
        ]
        assert [m.get("subtype") for m in called] == ["thread_broadcast"]
        assert called[0]["text"].startswith(f":white_check_mark: <@{ADA.user}> *<http")
        parent = session.slack.workspace.channel(CHANNEL).messages[session.parent()["ts"]]
        true = parent["blocks"]
        old = {"type": "button", "action_id": CANCEL, "value": SWEEP, "block_id": "b"}
        old["text"] = {"type": "plain_text", "text": "Cancel sweep"}
        parent["blocks"] = [{"type": "actions", "block_id": "a", "elements": [old]}]
        [reported] = await session.clicks(CANCEL)
        assert reported.endswith(f"|{SWEEP}>* has already ended.")
        shown = session.slack.workspace.channel(CHANNEL).messages[parent["ts"]]["blocks"]
        assert [b["type"] for b in shown] == [b["type"] for b in true]
        assert "3 of 3 trials" in (await session.clicks(RESULTS))[0]
        assert "the last lines of main" in (await session.clicks(LOGS))[0]
        [reply] = await session.clicks(RERUN, person="grace")
        assert "queued: a rerun of *<" in reply
        [other] = await session.simulation.store.active()
        made = await session.simulation.store.get(other)
        assert (made.request, made.requester.user_name, made.requester.channel) == (
            REQUEST,
            "grace",
            ADA.channel,
        )


async def test_commands_reach_trials_in_their_own_namespace(redis):
    config = replace(CONFIG, namespaces=("vision",), channel_namespaces={ADA.channel: "vision"})
    async with open_session(redis, config=config, **HELD) as session:
        labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
        meta = {"name": "vision", "labels": labels}
        session.simulation.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        await session.until(Phase.RUNNING)
        assert {pod["metadata"]["namespace"] for pod in session.simulation.kubernetes.list("Pod")} == {
            "vision"
        }
        assert "the last lines of main" in (await session.clicks(LOGS))[0]
        await session.types("cancel", rounds=6)
        await session.until(Phase.CANCELLED)
        assert session.simulation.kubernetes.list("Pod") == []


@pytest.mark.features("extension")
@pytest.mark.parametrize(
    ("actions", "phase"),
    [
        ((Action.EXTEND, Action.CANCEL), Phase.CANCELLED),
        ((Action.CANCEL, Action.EXTEND), Phase.SUCCEEDED),  # that cancel came too late
    ],
)
async def test_cancel_that_waits_with_an_extension_is_applied_in_their_order(redis, actions, phase):
    async with open_session(redis, **READY, space=SPACE_OF_MANY.replace("max: 5", "max: 3")) as session:
        await session.until(Phase.SUCCEEDED)
        for action in actions:
            command = Command(action=action, user=ADA.user, user_name="ada", trials=4)
            await session.simulation.store.add_command(SWEEP, command)
        await session.rounds(8)
        assert (await session.simulation.record()).phase is phase
        assert len(session.simulation.kubernetes.list("Trial")) == 3 + (phase is Phase.SUCCEEDED)


async def test_rerun_without_permission_is_denied(redis):
    config = replace(CONFIG, launch=Launch(people=(ADA.user,)))
    async with open_session(redis, config=config, **READY) as session:
        await session.until(Phase.SUCCEEDED)
        await session.clicks(RERUN, person="grace")
        [other] = await session.simulation.store.active()
        for _ in range(2):
            await session.simulation.round(item=other)
        assert (await session.simulation.store.get(other)).phase is Phase.REFUSED
        assert "You don't have permission to start sweeps" in session.slack.ephemerals("grace")[-1]["text"]


async def test_rerun_with_a_changed_option_is_another_sweep_and_an_invalid_one_none(redis):
    async with open_session(redis, **READY) as session:
        await session.until(Phase.SUCCEEDED)
        await session.types("rerun colour=2")
        assert "Unknown option: `colour=`" in str(session.slack.modals("ada")[-1])
        await session.types("rerun trials=2")
        [other] = await session.simulation.store.active()
        assert (await session.simulation.store.get(other)).request == replace(REQUEST, trials=2)


async def test_trials_are_listed_in_a_modal_and_cancelled_by_their_owner_only(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        await session.rounds(2)
        await session.clicks(TRIALS, person="grace")
        [modal] = session.slack.modals("grace")
        value = next(b["accessory"]["value"] for b in modal["blocks"] if "accessory" in b)
        await session.slack.press("grace", "end_trial", value)
        await session.rounds(2)
        direct = session.slack.workspace.channels["D01GRACEHOP"].messages.values()
        assert any(f"Only <@{ADA.user}> (owner)" in m["text"] for m in direct)
        await session.clicks(TRIALS)
        [modal] = session.slack.modals("ada")
        buttons = [b["accessory"] for b in modal["blocks"] if "accessory" in b]
        assert len(buttons) == 2
        assert await session.slack.press("ada", "end_trial", buttons[0]["value"]) is None
        await session.rounds(4)
        trial = buttons[0]["value"].split()[1]
        assert any(f"*ada* cancelled trial `{trial}`" in text for text in session.thread())


async def mentions(session, text, person="ada"):
    before = len(session.thread())
    session.slack.say(person, CHANNEL, text, session.parent()["ts"])
    await session.settled()
    await session.rounds(2)
    return session.thread()[before + 1 :]


async def test_mention_in_a_thread_is_answered_there_and_elsewhere_with_help(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        assert any("the last lines of main" in text for text in await mentions(session, "@sweepbot logs"))
        await mentions(session, "@sweepbot cancel", "grace")
        reported = session.slack.ephemerals("grace")[-1]
        assert "Only <@" in reported["text"]
        assert reported["thread_ts"] == session.parent()["ts"]
        answer, _ = await session.types("status")
        assert "grace: cancel denied" in answer
        await mentions(session, "@sweepbot hello")
        assert session.slack.ephemerals("ada")[-1]["text"].startswith(
            "In this thread, mention me with a command"
        )
        await mentions(session, "@sweepbot stauts")
        reported = session.slack.ephemerals("ada")[-1]["text"]
        assert reported.startswith(":runner: *<http")
        await mentions(session, "@sweepbot cancel qqq thx")
        reported = session.slack.ephemerals("ada")[-1]["text"]
        assert reported.startswith("`qqq` isn't an active trial of *<http")
        assert reported.endswith("To cancel the whole sweep: `@sweepbot cancel`.")
        await mentions(session, "@sweepbot please cancel, thx :pray:")
        await session.until(Phase.CANCELLED)
        await mentions(session, "@sweepbot rerun", "grace")
        assert {each.user_name for each in await session.simulation.store.listed()} == {"ada", "grace"}
        answer, _ = await session.types("list")
        assert "grace in <#" in answer
        session.slack.say("ada", CHANNEL, "@sweepbot what can you do?")
        await session.settled()
        assert "Start a sweep" in session.slack.ephemerals("ada")[-1]["text"]


async def test_error_links_the_sweeps_that_it_names(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        await session.types("branch=main space=lr")
        answer, _ = await session.types("logs lr")
        assert answer.startswith("`lr` matches several sweeps. Name one: ")
        assert f"|{SWEEP}>*" in answer


async def test_results_are_posted_once_under_rate_limits(redis, monkeypatch):
    asked = count()

    async def every_other(_, line, *__):
        return float(line.startswith("posts") and next(asked) % 2 == 0)

    async with open_session(redis, **READY) as session:
        await session.until(Phase.SUCCEEDED)
        monkeypatch.setattr("bot.platform.slack.rate_limit.RateLimiter.wait", every_other)
        await mentions(session, "@sweepbot results")
        await session.rounds(6)
        reported = [
            text for text in session.thread() if text.startswith(("All trials of", ":white_check_mark: *"))
        ]
        assert [text.startswith("All trials of") for text in reported] == [False, True]


@pytest.mark.parametrize(("notify", "direct"), [(Notify.DM, 1), (Notify.NONE, 0)])
async def test_sweep_with_broadcast_off_posts_none(redis, notify, direct):
    request = replace(REQUEST, notify=notify)
    async with open_session(redis, **READY, sweep={"request": request}) as session:
        await session.until(Phase.SUCCEEDED)
        await session.rounds(2)
        assert not [m for m in session.slack.messages(CHANNEL) if m.get("subtype")]
        assert any("· Finished: " in text for text in session.thread())
        place = session.slack.workspace.channels.get(f"D{ADA.user[1:]}")
        reported = [m["text"] for m in place.messages.values()] if place else []
        assert len(reported) == direct
        where = f"|{SWEEP}>* in <#{ADA.channel}> · Finished:"
        assert all(text.startswith(":white_check_mark: *<http") and where in text for text in reported)


@pytest.mark.features("health")
async def test_message_about_a_failed_first_trial_can_cancel_the_sweep(redis):
    async with open_session(redis, **READY, crash=True, space=SPACE_OF_MANY) as session:
        await session.until(Phase.PENDING)
        for _ in range(12):
            await session.rounds()
            ill = [m for m in session.slack.messages(CHANNEL, session.parent()["ts"])[1:] if "blocks" in m]
            if ill:
                break
        assert f"<@{ADA.user}> Trial" in ill[0]["text"]
        await session.slack.click("grace", CHANNEL, ill[0]["ts"], CANCEL)
        await session.rounds()
        assert session.slack.ephemerals("grace")[-1]["thread_ts"] == session.parent()["ts"]
        assert await session.slack.click("ada", CHANNEL, ill[0]["ts"], CANCEL) is None
        await session.until(Phase.CANCELLED)
        await session.rounds(2)
        after = session.slack.workspace.channel(CHANNEL).messages[ill[0]["ts"]]
        assert not after.get("blocks")


SPACE_OF_MANY = """
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {max: 5, parallel: 1, max_failed: 4}
parameters:
  width: [a, b, c, d, e]
"""


async def test_mention_delivered_twice_is_handled_once_and_an_edited_one_never(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)

        async def mentioned(delivery, text, **more):
            event = {
                "type": "app_mention",
                "user": ADA.user,
                "channel": ADA.channel,
                "thread_ts": session.parent()["ts"],
                "text": f"<@U01SWEEPBOT> {text}",
            }
            body = {"type": "event_callback", "event_id": delivery, "team_id": TEAM["id"]}
            body["event"] = event | more
            await session.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
            asked = await session.simulation.store.commands(SWEEP)
            await session.rounds()
            return [command.action for command in asked]

        assert [await mentioned("Ev1", "logs") for _ in range(3)] == [[Action.LOGS], [], []]
        await mentioned("Ev2", "rerun")
        await mentioned("Ev3", "rerun", edited={"user": ADA.user, "ts": "9.0"})
        assert len(await session.simulation.store.active()) == 2


@pytest.mark.features("health")
async def test_first_trial_failure_is_sent_directly_if_chosen(redis):
    request = replace(REQUEST, notify=Notify.DM)
    async with open_session(redis, **READY, crash=True, sweep={"request": request}) as session:
        await session.until(Phase.FAILED)
        await session.rounds(2)
        direct = [m["text"] for m in session.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()]
        assert [text.partition(" ")[0] for text in direct] == [":warning:", ":x:"]
        assert all("/archives/" in text and "in <#C01SWEEPS00> · " in text for text in direct)
        cause = "The training failed with exit code 1"
        assert [text.count(cause) for text in direct] == [1, 0]
        assert direct[1].endswith("in <#C01SWEEPS00> · Failed: 2 trials done (2 failed).")
        assert not [m for m in session.slack.messages(CHANNEL) if m.get("subtype")]
