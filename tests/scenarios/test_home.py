"""The home tab: opened, used and opened again, through Bolt's real dispatch."""

import asyncio
from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.gpus.snapshot_store import ITEM
from tests.scenarios.slack_user import a_desk


@pytest.fixture
async def desk(redis):
    async with a_desk(redis) as made:
        yield made


def text(view):
    return "\n".join(block.get("text", {}).get("text", "") for block in view["blocks"])


async def test_home_shows_starts_and_cancels_a_sweep(desk, wait_until):
    slack = desk.slack
    slack.visit_home("ada")
    home = await wait_until(lambda: slack.home("ada"), "Ada has a home tab")
    assert "No sweeps yet." in text(home)
    await slack.press("ada", "home_new")
    assert desk.modal()["title"]["text"] == "New sweep"
    assert "your direct messages, where commands don't work" in str(desk.modal()["blocks"])
    await slack.dismiss("ada")
    await slack.command("ada", "sweeps", "/sweep", "branch=main space=lr")
    [sweep] = await desk.door.store.active()
    await slack.press("ada", "home_refresh")
    await wait_until(lambda: sweep in text(slack.home("ada")), "the sweep is there")
    assert f"*{sweep}* · ada · building image" in text(slack.home("ada"))
    await slack.press("ada", "cancel_sweep", sweep)
    [ask] = await desk.door.store.commands(sweep)
    assert (ask.action.value, ask.user) == ("cancel", "U01ADALOVEL")
    assert (await desk.door.store.get(sweep)).phase is Phase.RECEIVED
    assert "_Cancelling…_" in text(slack.home("ada"))  # before its turn, and without another click
    assert "Cancel sweep" not in str(slack.home("ada"))


async def opened(desk, wait_until):
    """What the tab shows at once, and after a worker's turns."""
    desk.slack.visit_home("ada")
    await wait_until(lambda: desk.slack.home("ada"), "Ada has a home tab")
    while desk.slack.tasks:
        await asyncio.wait(set(desk.slack.tasks))
    first = text(desk.slack.home("ada"))
    await desk.turns()
    return first, text(desk.slack.home("ada"))


async def test_home_measures_gpus_when_opened_and_updates_itself(desk, wait_until):
    first, then = await opened(desk, wait_until)
    assert "_Loading GPU data…" in first
    assert "*6 of 8 GPUs free*" in then
    assert "_Measured just now._" in then
    assert "Loading" not in then
    assert desk.slack.ephemerals("ada") == []

    desk.meter.held, desk.now = 8, desk.now + timedelta(seconds=50)
    assert "6 of 8 GPUs free*" in (await opened(desk, wait_until))[1]  # what is fresh will do

    desk.now += timedelta(minutes=3)
    first, then = await opened(desk, wait_until)
    assert "_Measured 3 min ago._\n_Refreshing…_" in first
    assert "*0 of 8 GPUs free*" in then
    assert "Refreshing" not in then


async def test_home_shows_that_gpus_cannot_be_measured(desk, wait_until):
    desk.meter.trouble = "nobody looks"
    first, _ = await opened(desk, wait_until)
    assert "Loading" in first
    desk.now += timedelta(seconds=20)
    await desk.door.queue.add(ITEM)
    await desk.turns()
    assert "GPU metrics are unavailable: nobody looks" in text(desk.slack.home("ada"))
    assert await desk.door.snapshots.queries() == []


async def test_home_of_another_user_has_no_buttons_of_it(desk, wait_until):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main space=lr")
    slack.visit_home("grace")
    home = await wait_until(lambda: slack.home("grace"), "Grace has a home tab")
    assert "· ada ·" in text(home)
    assert "Cancel sweep" not in str(home)
