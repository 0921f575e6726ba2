"""Forty cases side by side: the API allows and refuses what Slack does, in the same words."""

from dataclasses import replace

import pytest

from bot.core.record import Phase
from bot.core.request import Requester
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.teams import Team
from bot.sweep.channels.store import SetupReader
from bot.sweep.decisions.commands import apply_command
from bot.sweep.model.observation import Observation
from handlers.sweep_commands import Sender, handle_command
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, STRANGER, a_sweep
from tests.handlers.api.conftest import token_in

MATE, RIVAL = "U1", "U2"
POLICY = replace(
    CONFIG,
    teammates_can_act=True,
    teams=(Team(name="vision", members=(OWNER, MATE)), Team(name="speech", members=(RIVAL,))),
)
PEOPLE = {"owner": OWNER, "teammate": MATE, "of another team": RIVAL, "of no team": STRANGER, "admin": ADMIN}
COMMANDS = (
    "cancel",
    "drain",
    "pause",
    "pause now",
    "resume",
    "extend trials=20",
    "queue hold",
    "raise budget=4",
)


@pytest.fixture
def context(context, redis):
    return replace(context, channel_setup=SetupReader(redis, context.queue, LivePolicy(POLICY)))


@pytest.mark.parametrize("who", PEOPLE)
async def test_person_can_do_the_same_by_both_doors(call, typed, context, who):
    user = PEOPLE[who]
    sweep = a_sweep(Phase.RUNNING, requester=Requester(user=OWNER, user_name="bo", channel="C1"))
    await context.store.create(sweep, [sweep.id], "r")
    by = token_in(await typed("token", user_id=user))

    async def outcome():
        """What the worker then makes of the command."""
        [command] = await context.store.commands(sweep.id)
        await context.store.remove_commands(sweep.id, [command])
        return command, apply_command(sweep, command, Observation(), POLICY, NOW).audit_log[-1].refused

    for number, text in enumerate(COMMANDS):
        request = f"slack-{number}"
        in_thread = Sender(user=user, user_name="ada", channel="C1", request_id=request, here=sweep.id)
        await handle_command(context, text, in_thread)
        command, refused = await outcome()
        path = f"/sweeps/{sweep.id}/commands"
        status, answer = await call("POST", path, text, key=f"key-{number}", by=by)
        if who in {"of another team", "of no team"}:
            assert refused.startswith("Only <@UOWNER> (owner), a teammate, or an admin can"), text
            assert (status, answer["detail"]) == (403, refused.replace("<@UOWNER>", "bo")), text
            continue
        assert status == 202, (text, answer)
        by_api, also_refused = await outcome()
        assert (also_refused, by_api) == (
            refused,
            replace(command, via="API", user_name=by_api.user_name),
        ), text
