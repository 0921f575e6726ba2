"""A digest and the replies of /gpus on a page; SWEEPBOT_PICTURES=1 takes the pictures again."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect
from redis.asyncio import Redis

from bot.measure.sources.dcgm_source import SampleStore
from bot.measure.sources.sampling import Sample
from local import demo_usage
from tests.browser.conftest import Opened
from tests.browser.test_pictures import shoot
from tests.scenarios.local_world import WAIT_SECONDS, Instance

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def picture(page: Page, name: str) -> None:
    if os.environ.get("SWEEPBOT_PICTURES"):
        await shoot(page, name)


async def seen(instance: Instance, wait_until: Any, fact: Callable[[Sample], bool]) -> None:
    """Wait until a worker has sampled the GPUs and the fact is true."""
    async with Redis.from_url(instance.here.env["REDIS_URL"]) as redis:

        async def looked() -> bool:
            lately = await SampleStore(redis).since(datetime.now(UTC) - timedelta(seconds=10))
            return bool(lately) and fact(lately[-1])

        await wait_until(looked, "a worker has seen it", seconds=WAIT_SECONDS)


async def test_digest_on_request_is_readable_on_a_phone(
    opened: Opened, instance: Instance, wait_until: Any
) -> None:
    await seen(instance, wait_until, lambda sample: bool(sample.nodes))
    await demo_usage.write(instance.here.env["REDIS_URL"])
    page = await opened("ada", height=1180)
    await page.get_by_role("textbox").first.fill("/gpus digest")
    await page.keyboard.press("Enter")
    message = page.get_by_role("log", name="Messages").get_by_role("listitem").filter(has_text="GPU digest")
    chart = message.get_by_role("img", name="Chart of all GPUs")
    await expect(chart).to_have_js_property("naturalWidth", 1200)
    idle = "90 of 247 allocated GPU-hours idle (36%), $191 at $1.50–$2.50/GPU-h."
    await expect(message).to_contain_text(idle)
    await expect(message.get_by_role("row")).to_have_count(4)
    await message.get_by_role("button", name="replies").click()
    replies = page.get_by_role("log", name="Replies")
    await expect(replies).to_contain_text("grace: 59 GPU-h, 86% used")
    await expect(replies).to_contain_text(
        "notebook-0: 16 cores requested, 0.3 used; 128 GiB requested, 9.0 peak"
    )
    await picture(page, "digest")
    phone = await opened("ada", width=390, height=800)
    await phone.get_by_role("img", name="Chart of all GPUs").scroll_into_view_if_needed()
    wide = await phone.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    cut = "table => table.parentElement.scrollWidth - table.parentElement.clientWidth"
    assert await phone.get_by_role("table").evaluate(cut) == 0
    await picture(phone, "chart")


async def test_gpus_command_replies_ephemerally(opened: Opened, instance: Instance, wait_until: Any) -> None:
    await instance.sweep("branch=main gpus=1 space=held")
    await seen(instance, wait_until, lambda sample: bool(sample.pods))
    page = await opened("ada", height=900)
    await page.get_by_role("button", name="vision").click()
    for words in ("free", "now", "bill"):
        await page.get_by_role("textbox").first.fill(f"/gpus {words}")
        await page.keyboard.press("Enter")
    messages = page.get_by_role("log", name="Messages")
    await expect(messages).to_contain_text("GPUs free")
    await expect(messages).to_contain_text("allocated")
    await expect(messages).to_contain_text("By sweep")
    await picture(page, "gpus")
