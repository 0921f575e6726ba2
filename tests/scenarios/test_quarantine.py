"""A sweep whose turns never end: set aside, told, shown to the doctor, and taken back by an administrator."""

from dataclasses import replace
from functools import partial

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.work_item import ItemKind, WorkItem
from bot.storage.work_queue import MAX_STARTS, Queue
from bot.sweeps import observe, reconciler
from bot.worker import Worker
from handlers.app import build
from local.slack import serve
from local.slack.workspace import TEAM
from tests.bot.factories import ADMIN, OWNER, STRANGER
from tests.handlers.factories import a_door
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep


@pytest.fixture
async def life(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True, image=True).started() as life:
        life.clients = replace(life.clients, queue=Queue(redis, prefix="life:queue"))
        yield life


@pytest.fixture
def door(life):
    return a_door(life.redis, store=life.store, queue=life.clients.queue)


async def types(door, text, user):
    body = {"command": "/sweep", "text": text, "trigger_id": "t", "user_id": user, "user_name": "x"}
    body |= {"channel_id": "C1", "team_id": TEAM["id"]}
    slack = await serve()
    app = build(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), door)
    answer = await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    await slack.close()
    return answer.body


async def work(life, turns):
    """So many turns by a real worker, whenever they are due, and what the controllers make of them."""
    for _ in range(turns):
        await life.redis.zunionstore("life:queue:delayed", {"life:queue:delayed": 0.0})
        if lease := await life.clients.queue.get(wait=0):
            handlers = {ItemKind.SWEEP: partial(reconciler.handle, clients=life.clients)}
            await Worker(life.clients.queue, 1, handlers)._take(lease)
        await life.settle()
        await life._time_passes()
        await life.settle()


def is_poison(monkeypatch):
    """What the cluster says of it can't be read, by any worker."""

    async def never(*_):
        raise MemoryError("4 GiB of logs")

    monkeypatch.setattr(observe, "_experiment", never)


async def quarantined(life, monkeypatch):
    await life.clients.queue.add(WorkItem.sweep(SWEEP))
    await work(life, 8)
    assert (await life.record()).phase is Phase.RUNNING
    is_poison(monkeypatch)
    await life.clients.queue.add(WorkItem.sweep(SWEEP))
    await work(life, MAX_STARTS + 3)
    assert list(await life.clients.queue.quarantined()) == [SWEEP]


async def test_quarantine_is_reported_once_with_its_cause_and_shown_in_the_parent(life, monkeypatch):
    await quarantined(life, monkeypatch)
    told = [text for text in life.slack.said if "stopped processing" in text]
    assert told == [life.slack.said[-1]]
    assert f"<@{OWNER}>" in told[0]
    assert "MemoryError: 4 GiB of logs" in told[0]
    assert "Quarantined" in str(life.slack.parents[-1].blocks)


async def test_quarantine_is_released_by_an_admin_and_the_sweep_continues(life, door, monkeypatch):
    await quarantined(life, monkeypatch)
    monkeypatch.undo()
    assert "isn't quarantined" in await types(door, "release lr-no-such", ADMIN)
    assert f"Only admins can do that: <@{ADMIN}>" in await types(door, f"release {SWEEP}", OWNER)
    assert " released." in await types(door, f"release {SWEEP}", ADMIN)
    await work(life, 3)
    assert life.slack.said[-1].endswith("again.")
    assert not (await life.record()).quarantined
    assert await door.queue.quarantined() == {}


@pytest.mark.parametrize(("user", "phase"), [(OWNER, Phase.CANCELLED), (STRANGER, Phase.RUNNING)])
async def test_quarantined_sweep_can_be_cancelled_by_its_owner(life, door, monkeypatch, user, phase):
    await quarantined(life, monkeypatch)
    monkeypatch.undo()
    await door.send(SWEEP, Command(action=Action.CANCEL, user=user, user_name="x"))
    await work(life, 6)
    assert (await life.record()).phase is phase
    assert bool(life.gpus_held()) is (phase is Phase.RUNNING)


async def test_crash_on_a_quarantined_sweep_leaves_the_cancel_to_the_next_worker(life, door, monkeypatch):
    """It is saved before anything is looked at."""
    await quarantined(life, monkeypatch)
    await door.send(SWEEP, Command(action=Action.CANCEL, user=OWNER, user_name="ada"))
    await work(life, 1)
    assert (await life.record()).phase is Phase.STOPPING
