"""A warning about idle GPUs with its buttons, and its picture for docs/gpus.md."""

import os
import re

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import Opened
from tests.browser.test_pictures import picture
from tests.scenarios.local_world import Instance

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


def warning(page: Page) -> Locator:
    """Whether it was ever busy depends on the time of the first sample."""
    words = re.compile("GPUs? (idle|unused) for")
    return page.get_by_role("log", name="Replies").get_by_role("listitem").filter(has_text=words)


async def test_idle_warning_snoozes_one_trial_and_cancels_another(opened: Opened, instance: Instance) -> None:
    ada = await opened("ada")
    instance.commit("Try the small network first", {"README.md": "# Digits\n"})
    sweep = await instance.sweep("branch=main gpus=2 space=idle")
    await sweep.shows("2 running")
    parent = ada.get_by_role("log", name="Messages").get_by_role("listitem").filter(has_text=f"{sweep.id} ·")
    await parent.get_by_role("button", name="repl").click()
    await expect(warning(ada)).to_have_count(2)
    await warning(ada).first.get_by_role("button", name="Snooze 4 h").click()
    await expect(warning(ada).first).to_contain_text("Snoozed by")
    if os.environ.get("SWEEPBOT_PICTURES"):
        await picture(ada, "warning", sweep.id, thread=False)
    await warning(ada).nth(1).get_by_role("button", name="Cancel trial").click()
    await ada.get_by_role("dialog").get_by_role("button", name="Cancel trial").click()
    await expect(ada.get_by_role("log", name="Replies")).to_contain_text("ended after")
    await sweep.click_cancel("ada")
    await sweep.posts("GPUs are free")
