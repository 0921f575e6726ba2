"""A sweep whose channel is archived, or left by the bot, and files that wait while the sweep continues."""

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.platform.slack.client import NotInChannelError
from tests.bot.factories import OWNER
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep
from tests.scenarios.test_end_results import SlowPictures


async def test_owner_gets_the_end_directly_and_the_parent_is_repaired_later(redis):
    simulation = SimulatedSweep(redis, Clock(None), image=True)
    slack = simulation.slack
    there = slack.reply, slack.update

    async def lost(channel, *_, **__):
        raise NotInChannelError(channel)

    async with simulation.started():
        while (await simulation.record()).phase is not Phase.RUNNING:
            await simulation.round()
        slack.reply = slack.update = lost
        while not (await simulation.record()).phase.final or simulation.last.outbox:
            await simulation.round()
        [(user, text)] = slack.ephemeral_messages
        name = f"*<{simulation.last.permalink}|{SWEEP}>* in <#C1>"
        assert (user, text.startswith(f":white_check_mark: {name} · Finished: ")) == (OWNER, True)
        assert text.endswith("I can't post in that channel: it's archived, or I'm not in it.")
        assert "Finished" not in slack.parents[-1].text
        slack.reply, slack.update = there
        await simulation.round()
        assert "Finished, 3 of 3 trials" in slack.parents[-1].text


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
