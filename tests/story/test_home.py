"""The home tab: opened, used and opened again, through Bolt's real dispatch."""

import pytest

from bot.models import Phase
from tests.story.desk import a_desk


@pytest.fixture
async def desk(redis):
    async with a_desk(redis) as made:
        yield made


def text(view):
    return "\n".join(block.get("text", {}).get("text", "") for block in view["blocks"])


async def test_it_shows_what_was_started_and_starts_and_cancels(desk, wait_until):
    slack = desk.slack
    slack.visit_home("ada")
    home = await wait_until(lambda: slack.home("ada"), "Ada has a home tab")
    assert "None yet." in text(home)
    await slack.press("ada", "home_new")
    assert desk.modal()["title"]["text"] == "New sweep"
    assert "told in direct messages" in str(desk.modal()["blocks"])
    await slack.dismiss("ada")
    await slack.command("ada", "sweeps", "/sweep", "branch=main space=lr")
    [sweep] = await desk.door.store.active()
    await slack.press("ada", "home_refresh")
    await wait_until(lambda: sweep in text(slack.home("ada")), "the sweep is there")
    assert f"*{sweep}*: has its image built, of ada" in text(slack.home("ada"))
    await slack.press("ada", "cancel_sweep", sweep)
    [ask] = await desk.door.store.asks(sweep)
    assert (ask.act.value, ask.user) == ("cancel", "U01ADALOVEL")
    assert (await desk.door.store.get(sweep)).phase is Phase.RECEIVED


async def test_another_person_sees_no_buttons_of_it(desk, wait_until):
    slack = desk.slack
    await slack.command("ada", "sweeps", "/sweep", "branch=main space=lr")
    slack.visit_home("grace")
    home = await wait_until(lambda: slack.home("grace"), "Grace has a home tab")
    assert "of ada" in text(home)
    assert "Cancel sweep" not in str(home)
