"""A sweep that kills its workers: quarantined, reported, shown by the doctor, and released by an admin."""

from dataclasses import replace
from functools import partial

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage.work_queue import MAX_STARTS, Queue
from bot.sweep.sweeps import observe, reconciler
from bot.worker import Worker
from handlers.app import build
from local.slack import serve
from local.slack.workspace import TEAM
from tests.bot.factories import ADMIN, OWNER, STRANGER
from tests.handlers.factories import a_context
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as simulation:
        simulation.clients = replace(simulation.clients, queue=Queue(redis, prefix="life:queue"))
        yield simulation


@pytest.fixture
def context(simulation):
    return a_context(simulation.redis, store=simulation.store, queue=simulation.clients.queue)


async def types(context, text, user):
    body = {"command": "/sweep", "text": text, "trigger_id": "t", "user_id": user, "user_name": "x"}
    body |= {"channel_id": "C1", "team_id": TEAM["id"]}
    slack = await serve()
    app = build(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), context)
    answer = await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    await slack.close()
    return answer.body


async def work(simulation, runs):
    """Run that many reconciles with a real worker as they become due, and the controllers."""
    for _ in range(runs):
        await simulation.redis.zunionstore("life:queue:delayed", {"life:queue:delayed": 0.0})
        if lease := await simulation.clients.queue.get(wait=0):
            handlers = {ItemKind.SWEEP: partial(reconciler.handle, clients=simulation.clients)}
            await Worker(simulation.clients.queue, 1, handlers)._take(lease)
        await simulation.settle()
        await simulation._time_passes()
        await simulation.settle()


def is_poison(monkeypatch):
    """No worker can read the cluster's data about the sweep."""

    async def never(*_):
        raise MemoryError("4 GiB of logs")

    monkeypatch.setattr(observe, "_experiment", never)


async def quarantined(simulation, monkeypatch):
    await simulation.clients.queue.add(WorkItem.sweep(SWEEP))
    await work(simulation, 8)
    assert (await simulation.record()).phase is Phase.RUNNING
    is_poison(monkeypatch)
    await simulation.clients.queue.add(WorkItem.sweep(SWEEP))
    await work(simulation, MAX_STARTS + 3)
    assert list(await simulation.clients.queue.quarantined()) == [SWEEP]


async def test_quarantine_is_reported_once_with_its_cause_and_shown_in_the_parent(simulation, monkeypatch):
    await quarantined(simulation, monkeypatch)
    reported = [text for text in simulation.slack.posted if "stopped processing" in text]
    assert reported == [simulation.slack.posted[-1]]
    assert f"<@{OWNER}>" in reported[0]
    assert "MemoryError: 4 GiB of logs" in reported[0]
    assert "Quarantined" in str(simulation.slack.parents[-1].blocks)


async def test_quarantine_is_released_by_an_admin_and_the_sweep_continues(simulation, context, monkeypatch):
    await quarantined(simulation, monkeypatch)
    monkeypatch.undo()
    assert "isn't quarantined" in await types(context, "release lr-no-such", ADMIN)
    assert f"Only admins can do that: <@{ADMIN}>" in await types(context, f"release {SWEEP}", OWNER)
    assert " released." in await types(context, f"release {SWEEP}", ADMIN)
    await work(simulation, 3)
    assert simulation.slack.posted[-1].endswith("again.")
    assert not (await simulation.record()).quarantined
    assert await context.queue.quarantined() == {}


@pytest.mark.parametrize(("user", "phase"), [(OWNER, Phase.CANCELLED), (STRANGER, Phase.RUNNING)])
async def test_quarantined_sweep_can_be_cancelled_by_its_owner(simulation, context, monkeypatch, user, phase):
    await quarantined(simulation, monkeypatch)
    monkeypatch.undo()
    await context.send(SWEEP, Command(action=Action.CANCEL, user=user, user_name="x"))
    await work(simulation, 6)
    assert (await simulation.record()).phase is phase
    assert bool(simulation.gpus_held()) is (phase is Phase.RUNNING)


async def test_crash_on_a_quarantined_sweep_leaves_the_cancel_to_the_next_worker(
    simulation, context, monkeypatch
):
    """The cancel is saved before any observation."""
    await quarantined(simulation, monkeypatch)
    await context.send(SWEEP, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    await work(simulation, 1)
    assert (await simulation.record()).phase is Phase.STOPPING
