"""A sweep whose channel is archived, or left by the bot, and files that wait while the sweep continues."""

from contextlib import suppress

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.storage import sweep_configmap
from tests.bot.factories import ADMIN, OWNER
from tests.scenarios.slack_session import CHANNEL, PLACE, open_session
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep
from tests.scenarios.test_approval import Approved
from tests.scenarios.test_end_results import SlowPictures


async def test_owner_gets_the_end_directly_and_the_parent_is_repaired_later(redis):
    simulation = SimulatedSweep(redis, Clock(None), image=True)
    slack = simulation.slack
    there = slack.reply, slack.update

    async def lost(*_, **__):
        raise NotInChannelError("is_archived")

    async with simulation.started():
        while (await simulation.record()).phase is not Phase.RUNNING:
            await simulation.round()
        slack.reply = slack.update = lost
        while not (await simulation.record()).phase.final or simulation.last.outbox:
            await simulation.round()
        [(user, text)] = slack.ephemeral_messages
        name = f"*<{simulation.last.permalink}|{SWEEP}>* in <#C1>"
        assert (user, text.startswith(f":white_check_mark: {name} · Finished: ")) == (OWNER, True)
        assert text.endswith("\nSweepbot can't post in that thread (Slack error `is_archived`).")
        assert "Finished" not in slack.parents[-1].text
        slack.reply, slack.update = there
        await simulation.round()
        assert "Finished, 3 of 3 trials" in slack.parents[-1].text


@pytest.mark.parametrize("has_reply", [True, False])
async def test_deleted_message_of_a_sweep_is_posted_again_once_and_its_thread_goes_there(
    redis, has_reply, monkeypatch
):
    async with open_session(redis, image=True) as session:
        simulation, place = session.simulation, session.slack.workspace.channels[PLACE]
        slack = simulation.clients.slack
        permalink, failures = slack.permalink, [TimeoutError()]

        async def slow(*where):
            if failures:
                raise failures.pop()
            return await permalink(*where)

        def delete():
            session.slack.workspace.delete(place, place.messages[simulation.last.thread])
            return simulation.last.thread

        await session.until(Phase.PENDING)
        if has_reply:
            session.slack.say("ada", CHANNEL, "Nice", simulation.last.thread)
        deleted = delete()
        monkeypatch.setattr(slack, "permalink", slow)
        while (await simulation.record()).thread == deleted or not simulation.last.permalink:
            with suppress(TimeoutError):
                await session.rounds()
        above = {ts for ts, each in place.messages.items() if each.get("thread_ts", ts) == ts}
        assert (above - {deleted}, failures) == ({simulation.last.thread}, [])
        stored = simulation.kubernetes.find("ConfigMap", "sweeps", f"sweep-{SWEEP}")
        assert sweep_configmap.read(stored).thread == simulation.last.thread
        assert simulation.last.permalink.endswith(simulation.last.thread.replace(".", ""))
        moved = simulation.last.thread if has_reply else delete()
        await session.until(Phase.SUCCEEDED)
        while (await simulation.record()).outbox or simulation.last.shown.phase is not Phase.SUCCEEDED:
            await session.rounds()
        thread = [each["text"] for each in session.slack.messages(CHANNEL, moved)]
        assert ["Finished" in text for text in thread[:2]] == [True, True] * has_reply
        assert simulation.last.thread == moved


@pytest.mark.parametrize("owner_is_there", [True, False])
async def test_end_in_a_locked_thread_goes_to_the_owner_who_can_have_left(redis, owner_is_there):
    simulation = SimulatedSweep(redis, Clock(None), image=True)

    async def locked(*_, **__):
        raise MessageRejectedError("restricted_action_thread_locked")

    async def gone(*_, **__):
        raise MessageRejectedError("user_disabled")

    async with simulation.started():
        while (await simulation.record()).phase is not Phase.RUNNING:
            await simulation.round()
        simulation.slack.reply = locked
        if not owner_is_there:
            simulation.slack.notify = gone
        while not (await simulation.record()).phase.final or simulation.last.outbox:
            await simulation.round()
        told = ["Finished" in text for _, text in simulation.slack.ephemeral_messages]
        assert told == [True] * owner_is_there


async def test_request_for_approval_that_the_channel_refuses_goes_to_the_approver(redis):
    simulation = Approved(redis, used=4.5)

    async def archived(*_, **__):
        raise NotInChannelError("is_archived")

    simulation.slack.reply = archived
    await simulation.ends(rounds=6)
    [(user, text)] = simulation.slack.ephemeral_messages
    assert (user, f"{SWEEP}>* in <#C1> · Waiting for approval by <@{ADMIN}>: the" in text) == (ADMIN, True)
    assert text.endswith(f"error `is_archived`). To approve it, run `/sweep approve {SWEEP}`.")


async def test_sweep_in_a_channel_where_only_some_can_post_is_refused_at_once(redis):
    simulation = SimulatedSweep(redis, Clock(None), image=True)

    async def read_only(*_, **__):
        raise MessageRejectedError("restricted_action_read_only_channel")

    simulation.slack.open_thread = read_only
    async with simulation.started():
        while not (await simulation.record()).phase.final or simulation.last.outbox:
            await simulation.round()
        [(_, text)] = simulation.slack.ephemeral_messages
        assert "can't post in that channel (Slack error `restricted_action_read_only_channel`)" in text


async def test_other_messages_pass_files_that_wait(redis):
    simulation = SimulatedSweep(redis, Clock(None), image=True)
    simulation.clients.pictures = SlowPictures()
    async with simulation.started():
        while not (await simulation.record()).phase.final:
            await simulation.round()
        await simulation.round()
        stranger = Command(action=Action.EXTEND, user="USTRANGER", user_name="bo", trials=5)
        await simulation.store.add_command(SWEEP, stranger)
        await simulation.round()
        assert [user for user, _ in simulation.slack.ephemeral_messages] == ["USTRANGER"]
        assert [event.kind for event in simulation.last.outbox] == ["result_files"]
