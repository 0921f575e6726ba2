"""Words, buttons and mentions through Bolt's dispatch and real turns: what people do and then read."""

from dataclasses import replace
from itertools import count

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.config.policy import Launch
from bot.core.commands import Action
from bot.core.record import Phase
from bot.core.request import Notify
from bot.sweeps.parent_message import CANCEL, LOGS, RERUN, RESULTS, TRIALS
from local.slack.workspace import TEAM
from tests.bot.factories import CONFIG, REQUEST
from tests.scenarios.slack_session import ADA, CHANNEL, chat
from tests.scenarios.sweep_in_memory import SWEEP

READY = {"image": True}
HELD = READY | {"endless": "trainings"}


@pytest.fixture
def no_pace(monkeypatch):
    """These stories are not about how fast one may speak."""

    async def at_once(*_):
        return 0.0

    monkeypatch.setattr("bot.slack.rate_limit.RateLimiter.wait", at_once)


pytestmark = pytest.mark.usefixtures("no_pace")


async def test_status_shows_state_and_audit_log(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        await lab.types("cancel", person="grace")
        await lab.types(f"cancel {SWEEP}", person="grace")
        answer, _ = await lab.types("status")
        assert f"*{SWEEP}* · Running" in answer
        assert "ada started the sweep" in answer
        assert "grace: cancel denied" in answer


async def test_sweep_name_can_be_omitted_or_shortened(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        answer, _ = await lab.types("cancel", person="grace")
        assert answer.startswith("You have no running sweeps.")
        answer, _ = await lab.types("drain otter")
        assert answer.startswith(f"Request sent to `{SWEEP}`")
        assert any("*ada* is draining this sweep" in text for text in lab.thread())
        answer, _ = await lab.types("cancel", rounds=6)
        assert answer.startswith(f"Request sent to `{SWEEP}`")
        await lab.until(Phase.CANCELLED)


@pytest.mark.parametrize(("which", "there"), [("", True), ("mine", False), ("running", True), ("team", None)])
async def test_list_shows_sweeps(redis, which, there):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        answer, _ = await lab.types(f"list {which}", person="grace")
        if there is None:
            assert answer.startswith("You aren't in a team.")
        else:
            assert (f"*{SWEEP}* · Running" in answer) is there


async def test_results_are_a_table_with_the_best_first_and_a_file(redis):
    async with chat(redis, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        _, [_, told] = await lab.types("results")
        best = [line for line in told.splitlines() if line.startswith("`loss`")]
        assert [line.split()[1] for line in best] == ["0.1", "0.3", "0.5"]
        [message] = [m for m in lab.slack.ephemerals("ada") if "blocks" in m]
        [table] = [b for b in message["blocks"] if b["type"] == "table"]
        cells = [[cell["text"] for cell in row] for row in table["rows"]]
        assert cells[0] == ["trial", "state", "loss", "width"]
        assert [row[1:] for row in cells[1:]] == [
            ["done", "0.1", "c"],
            ["done", "0.3", "b"],
            ["done", "0.5", "a"],
        ]
        assert told.endswith(f"\nAll trials of `{SWEEP}`: file sent by direct message.")
        [direct] = lab.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()
        assert (direct["text"], direct.get("thread_ts")) == (f"All trials of `{SWEEP}`", None)
        assert [file["name"] for file in direct["files"]] == [f"{SWEEP}.csv"]


async def test_missing_upload_permission_is_explained_in_a_direct_message(redis):
    async with chat(redis, **READY) as lab:
        lab.slack.stumble("files.getUploadURLExternal", "missing_scope")
        await lab.until(Phase.SUCCEEDED)
        await lab.types("results")
        [direct] = lab.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()
        assert direct["text"].endswith(f"\nCouldn't attach `{SWEEP}.csv`: Slack error `missing_scope`.")


async def test_results_of_a_sweep_that_redis_lost_are_available(redis):
    async with chat(redis, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        await lab.rounds(2)
        await redis.flushall()
        answer, told = await lab.types(f"results {SWEEP}")
        assert answer.startswith("Looking up")
        assert "3 of 3 trials" in told[-1]


async def test_buttons_of_an_ended_sweep_rerun_and_extend(redis):
    async with chat(redis, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        await lab.rounds(2)
        assert "3 of 3 trials" in (await lab.clicks(RESULTS))[0]
        assert "the last lines of main" in (await lab.clicks(LOGS))[0]
        [said] = await lab.clicks(RERUN, person="grace")
        assert "queued: a rerun of `lr-brave-otter`" in said
        [other] = await lab.life.store.active()
        made = await lab.life.store.get(other)
        assert (made.request, made.requester.user_name, made.requester.channel) == (
            REQUEST,
            "grace",
            ADA.channel,
        )


async def test_commands_reach_trials_in_their_own_namespace(redis):
    config = replace(CONFIG, namespaces=("vision",), channel_namespaces={ADA.channel: "vision"})
    async with chat(redis, config=config, **HELD) as lab:
        labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
        meta = {"name": "vision", "labels": labels}
        lab.life.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        await lab.until(Phase.RUNNING)
        assert {pod["metadata"]["namespace"] for pod in lab.life.kubernetes.list("Pod")} == {"vision"}
        assert "the last lines of main" in (await lab.clicks(LOGS))[0]
        await lab.types("cancel", rounds=6)
        await lab.until(Phase.CANCELLED)
        assert lab.life.kubernetes.list("Pod") == []


async def test_rerun_without_permission_is_denied(redis):
    config = replace(CONFIG, launch=Launch(people=(ADA.user,)))
    async with chat(redis, config=config, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        await lab.clicks(RERUN, person="grace")
        [other] = await lab.life.store.active()
        for _ in range(2):
            await lab.life.round(item=other)
        assert (await lab.life.store.get(other)).phase is Phase.REFUSED
        assert "You don't have permission to start sweeps" in lab.slack.ephemerals("grace")[-1]["text"]


async def test_rerun_with_a_changed_option_is_another_sweep_and_an_invalid_one_none(redis):
    async with chat(redis, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        _, [_, told] = await lab.types("rerun trails=2")
        assert "Unknown option: `trails=`" in told
        await lab.types("rerun trials=2")
        [other] = await lab.life.store.active()
        assert (await lab.life.store.get(other)).request == replace(REQUEST, trials=2)


async def test_trials_are_listed_and_cancelled_in_a_modal(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        await lab.rounds(2)
        await lab.clicks(TRIALS)
        [modal] = lab.slack.modals("ada")
        buttons = [b["accessory"] for b in modal["blocks"] if "accessory" in b]
        assert len(buttons) == 2
        assert await lab.slack.press("ada", "end_trial", buttons[0]["value"]) is None
        await lab.rounds(4)
        trial = buttons[0]["value"].split()[1]
        assert any(f"*ada* cancelled trial `{trial}`" in text for text in lab.thread())


async def test_cancel_of_a_trial_by_a_stranger_is_denied_with_the_reason(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        await lab.rounds(2)
        await lab.clicks(TRIALS, person="grace")
        [modal] = lab.slack.modals("grace")
        value = next(b["accessory"]["value"] for b in modal["blocks"] if "accessory" in b)
        await lab.slack.press("grace", "end_trial", value)
        await lab.rounds(2)
        direct = lab.slack.workspace.channels["D01GRACEHOP"].messages.values()
        assert any(f"Only <@{ADA.user}> (owner)" in m["text"] for m in direct)


async def mentions(lab, text, person="ada"):
    before = len(lab.thread())
    lab.slack.say(person, CHANNEL, text, lab.parent()["ts"])
    await lab.settled()
    await lab.rounds(2)
    return lab.thread()[before + 1 :]


async def test_mention_in_a_thread_is_answered_there(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        assert any("the last lines of main" in text for text in await mentions(lab, "@sweepbot logs"))
        await mentions(lab, "@sweepbot cancel", "grace")
        told = lab.slack.ephemerals("grace")[-1]
        assert "Only <@" in told["text"]
        assert told["thread_ts"] == lab.parent()["ts"]
        await mentions(lab, "@sweepbot hello")
        assert lab.slack.ephemerals("ada")[-1]["text"].startswith("In this thread, mention me with a command")
        await mentions(lab, "@sweepbot stauts")
        told = lab.slack.ephemerals("ada")[-1]["text"]
        assert told.startswith("Unknown command `stauts`. Did you mean status?\nIn this thread, mention me")
        await mentions(lab, "@sweepbot cancel")
        await lab.until(Phase.CANCELLED)


async def test_results_are_posted_once_under_rate_limits(redis, monkeypatch):
    asked = count()

    async def every_other(_, line, *__):
        return float(line.startswith("posts") and next(asked) % 2 == 0)

    async with chat(redis, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        monkeypatch.setattr("bot.slack.rate_limit.RateLimiter.wait", every_other)
        await mentions(lab, "@sweepbot results")
        await lab.rounds(6)
        told = [text for text in lab.thread() if text.startswith(("All trials of", ":white_check_mark: *"))]
        assert [text.startswith("All trials of") for text in told] == [False, True]


async def test_mention_elsewhere_gets_help(redis):
    async with chat(redis, **HELD) as lab:
        lab.slack.say("ada", CHANNEL, "@sweepbot what can you do?")
        await lab.settled()
        assert "Start a sweep" in lab.slack.ephemerals("ada")[-1]["text"]


async def test_owner_is_mentioned_only_at_the_end(redis):
    async with chat(redis, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        await lab.rounds(2)
        called = [m for m in lab.slack.messages(CHANNEL, lab.parent()["ts"]) if f"<@{ADA.user}>" in str(m)]
        assert [m.get("subtype") for m in called] == ["thread_broadcast"]
        assert called[0]["text"].startswith(f":white_check_mark: <@{ADA.user}> Finished")


@pytest.mark.parametrize(("notify", "direct"), [(Notify.DM, 1), (Notify.NONE, 0)])
async def test_sweep_with_broadcast_off_posts_none(redis, notify, direct):
    request = replace(REQUEST, notify=notify)
    async with chat(redis, **READY, sweep={"request": request}) as lab:
        await lab.until(Phase.SUCCEEDED)
        await lab.rounds(2)
        assert not [m for m in lab.slack.messages(CHANNEL) if m.get("subtype")]
        assert any(text.startswith(":white_check_mark: Finished") for text in lab.thread())
        place = lab.slack.workspace.channels.get(f"D{ADA.user[1:]}")
        told = [m["text"] for m in place.messages.values()] if place else []
        assert len(told) == direct
        assert all(
            text.startswith(f"*{SWEEP}* in <#{ADA.channel}>: :white_check_mark: Finished:") for text in told
        )


async def test_click_on_an_outdated_message_acts_on_the_current_state_and_updates_it(redis):
    async with chat(redis, **READY) as lab:
        await lab.until(Phase.SUCCEEDED)
        await lab.rounds(2)
        parent = lab.slack.workspace.channel(CHANNEL).messages[lab.parent()["ts"]]
        true = parent["blocks"]
        old = {"type": "button", "action_id": CANCEL, "value": SWEEP, "block_id": "b"}
        old["text"] = {"type": "plain_text", "text": "Cancel sweep"}
        parent["blocks"] = [{"type": "actions", "block_id": "a", "elements": [old]}]
        [told] = await lab.clicks(CANCEL)
        assert told == f"`{SWEEP}` has already ended."
        shown = lab.slack.workspace.channel(CHANNEL).messages[parent["ts"]]["blocks"]
        assert [b["type"] for b in shown] == [b["type"] for b in true]


async def test_message_about_a_failed_first_trial_can_cancel_the_sweep(redis):
    async with chat(redis, **READY, crash=True, space=SPACE_OF_MANY) as lab:
        await lab.until(Phase.PENDING)
        for _ in range(12):
            await lab.rounds()
            ill = [m for m in lab.slack.messages(CHANNEL, lab.parent()["ts"])[1:] if "blocks" in m]
            if ill:
                break
        assert f"<@{ADA.user}> Trial" in ill[0]["text"]
        await lab.slack.click("grace", CHANNEL, ill[0]["ts"], CANCEL)
        await lab.rounds()
        assert lab.slack.ephemerals("grace")[-1]["thread_ts"] == lab.parent()["ts"]
        assert await lab.slack.click("ada", CHANNEL, ill[0]["ts"], CANCEL) is None
        await lab.until(Phase.CANCELLED)
        await lab.rounds(2)
        after = lab.slack.workspace.channel(CHANNEL).messages[ill[0]["ts"]]
        assert not after.get("blocks")


SPACE_OF_MANY = """
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {max: 5, parallel: 1, max_failed: 4}
parameters:
  width: [a, b, c, d, e]
"""


async def test_mention_delivered_twice_is_handled_once(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        asked = []
        event = {
            "type": "app_mention",
            "user": ADA.user,
            "channel": ADA.channel,
            "thread_ts": lab.parent()["ts"],
            "text": "<@U01SWEEPBOT> logs",
        }
        body = {"type": "event_callback", "event_id": "Ev1", "team_id": TEAM["id"], "event": event}
        for _ in range(3):
            await lab.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
            asked += await lab.life.store.commands(SWEEP)
            await lab.rounds()
        assert [ask.action for ask in asked] == [Action.LOGS]


async def test_edited_mention_is_ignored(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        for number, more in enumerate([{}, {"edited": {"user": ADA.user, "ts": "9.0"}}]):
            event = {
                "type": "app_mention",
                "user": ADA.user,
                "channel": ADA.channel,
                "thread_ts": lab.parent()["ts"],
                "text": "<@U01SWEEPBOT> rerun",
            }
            body = {
                "type": "event_callback",
                "event_id": f"Ev{number}",
                "team_id": TEAM["id"],
                "event": event | more,
            }
            await lab.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
            await lab.rounds()
        assert len(await lab.life.store.active()) == 2


async def test_first_trial_failure_is_sent_directly_if_chosen(redis):
    request = replace(REQUEST, notify=Notify.DM)
    async with chat(redis, **READY, crash=True, sweep={"request": request}) as lab:
        await lab.until(Phase.FAILED)
        await lab.rounds(2)
        direct = [m["text"] for m in lab.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()]
        assert [": :warning: Trial `" in text for text in direct] == [True, False]
        assert "Sweep failed" in direct[1]
        assert not [m for m in lab.slack.messages(CHANNEL) if m.get("subtype")]
