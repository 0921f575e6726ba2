"""The home tab: opened, used and opened again, through Bolt's real dispatch."""

import asyncio
from datetime import timedelta

import pytest

from bot.core.record import Phase
from bot.measure.gpus.snapshot_store import ITEM
from bot.platform.slack.mrkdwn import local_time
from tests.scenarios.slack_user import a_slack_user


@pytest.fixture
async def ada(redis):
    async with a_slack_user(redis) as made:
        yield made


def text(view):
    return "\n".join(block.get("text", {}).get("text", "") for block in view["blocks"])


async def test_home_shows_starts_and_cancels_a_sweep(ada, wait_until):
    slack = ada.slack
    slack.visit_home("ada")
    home = await wait_until(lambda: slack.home("ada"), "Ada has a home tab")
    assert "No sweeps yet." in text(home)
    await slack.press("ada", "home_new")
    assert ada.modal()["title"]["text"] == "New sweep"
    where = "Updates go to your direct messages. To choose a channel, run `/sweep` there."
    assert where in str(ada.modal()["blocks"])
    await slack.dismiss("ada")
    await slack.command("ada", "sweeps", "/sweep", "branch=main space=lr")
    [sweep] = await ada.context.store.active()
    await slack.press("ada", "home_refresh")
    await wait_until(lambda: sweep in text(slack.home("ada")), "the sweep is there")
    assert f"*{sweep}* · ada · not started" in text(slack.home("ada"))
    await slack.press("ada", "cancel_sweep", sweep)
    [request] = await ada.context.store.commands(sweep)
    assert (request.action.value, request.user) == ("cancel", "U01ADALOVEL")
    assert (await ada.context.store.get(sweep)).phase is Phase.RECEIVED
    assert "_Cancelling…_" in text(slack.home("ada"))  # before its reconcile, and without another click
    assert "Cancel sweep" not in str(slack.home("ada"))


async def opened(ada, wait_until):
    """What the tab shows at once, and after a worker has run."""
    ada.slack.visit_home("ada")
    await wait_until(lambda: ada.slack.home("ada"), "Ada has a home tab")
    while ada.slack.tasks:
        await asyncio.wait(set(ada.slack.tasks))
    first = text(ada.slack.home("ada"))
    await ada.runs()
    return first, text(ada.slack.home("ada"))


async def test_home_measures_gpus_when_opened_and_updates_itself(ada, wait_until):
    measured = ada.now
    first, then = await opened(ada, wait_until)
    assert "_Loading GPU data…" in first
    assert "*6 of 8 GPUs free*" in then
    assert f"Measured {local_time(measured)}." in then
    assert "Loading" not in then
    assert ada.slack.ephemerals("ada") == []

    ada.meter.held, ada.now = 8, ada.now + timedelta(seconds=50)
    assert "6 of 8 GPUs free*" in (await opened(ada, wait_until))[1]  # the current snapshot

    ada.now += timedelta(minutes=3)
    first, then = await opened(ada, wait_until)
    assert f"Measured {local_time(measured)}.\n_Refreshing…_" in first
    assert "*0 of 8 GPUs free*" in then
    assert "Refreshing" not in then


async def test_home_shows_that_gpus_cannot_be_measured(ada, wait_until):
    ada.meter.trouble = "no samples"
    first, _ = await opened(ada, wait_until)
    assert "Loading" in first
    ada.now += timedelta(seconds=20)
    await ada.context.queue.add(ITEM)
    await ada.runs()
    assert "GPU metrics are unavailable: no samples" in text(ada.slack.home("ada"))
    assert await ada.context.store.requests(str(ITEM)) == []


async def test_home_of_another_user_has_no_buttons_of_it(ada, wait_until):
    slack = ada.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main space=lr")
    slack.visit_home("grace")
    home = await wait_until(lambda: slack.home("grace"), "Grace has a home tab")
    assert "· ada ·" in text(home)
    assert "Cancel sweep" not in str(home)
