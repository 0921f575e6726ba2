"""Sweeps by the HTTP API: start, list, show, and command them, as the person whose token it is."""

from bot.core.commands import Action
from bot.core.record import Phase
from bot.core.request import Requester
from tests.bot.factories import a_sweep

OWN = Requester(user="U1", user_name="ada", channel="C1")


async def test_launch_repeated_with_its_key_is_the_same_sweep(call, context):
    status, first = await call("POST", "/sweeps", "branch=main space=lr", key="one")
    assert (status, first["state"]) == (202, "received")
    assert await call("POST", "/sweeps", "branch=main space=lr", key="one") == (202, first)
    _, other = await call("POST", "/sweeps", "branch=main space=lr", key="two")
    assert await context.store.active() == {first["id"], other["id"]}
    requester = (await context.store.get(first["id"])).requester
    assert (requester.user, requester.channel) == ("U1", "C1")


async def test_sweep_is_shown_with_what_its_record_holds(call, context):
    sweep = a_sweep(Phase.RUNNING, permalink="https://slack/p1", submitted=True)
    await context.store.create(lambda _: sweep, [sweep.id], sweep.request_id)
    status, found = await call("GET", f"/sweeps/{sweep.id}")
    assert (status, found["state"], found["thread"], found["ended"]) == (
        200,
        "running",
        "https://slack/p1",
        None,
    )
    assert found["trials"] == {"total": 4, "done": 0, "failed": 0, "running": 0}
    status, problem = await call("GET", "/sweeps/lr-no-such")
    assert (status, problem["status"]) == (404, 404)


async def test_command_reaches_the_sweep_once(call, context):
    sweep = a_sweep(Phase.RUNNING, requester=OWN)
    await context.store.create(lambda _: sweep, [sweep.id], sweep.request_id)
    for _ in range(2):
        answer = await call("POST", f"/sweeps/{sweep.id}/commands", "cancel", key="stop")
        assert answer == (202, {"id": sweep.id, "accepted": True})
    assert [each.action for each in await context.store.commands(sweep.id)] == [Action.CANCEL]
