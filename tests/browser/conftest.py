"""A world with a Sweepbot, and Debian's Chromium in front of its Slack page."""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.scenarios.local_world import WAIT_SECONDS, Instance, instance

CHROMIUM = shutil.which("chromium")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
QUIET += ("--disable-component-update", "--disable-sync")

Opened = Callable[..., Awaitable[Page]]

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="instance")
async def _lab(tmp_path_factory: pytest.TempPathFactory, mlflow_url: str) -> AsyncIterator[Instance]:
    if not CHROMIUM:
        pytest.skip("Chromium isn't installed (Debian's package chromium)")
    async with instance(tmp_path_factory.mktemp("instance"), mlflow_url) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(instance: Instance) -> AsyncIterator[Browser]:
    expect.set_options(timeout=WAIT_SECONDS * 1000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def opened(
    browser: Browser, instance: Instance, request: pytest.FixtureRequest
) -> AsyncIterator[Opened]:
    """`await opened("ada", width=..., height=...)`: the page as this person has it; it must not complain.

    If the test fails, a picture of each page is saved in the folder $ARTIFACTS.
    """
    contexts, complaints = [], []

    async def open_page(person: str, **viewport: Any) -> Page:
        size = {"width": 1280, "height": 800} | viewport
        contexts.append(context := await browser.new_context(viewport=size, locale="en-GB"))
        page = await context.new_page()
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(f"{instance.slack.url}?as={instance.slack.workspace.person(person).id}")
        return page

    yield open_page
    if (folder := os.environ.get("ARTIFACTS")) and request.node.stash.get(FAILED, False):
        for number, context in enumerate(contexts):
            name = f"{request.node.path.stem}-{request.node.name}-{number}.png"
            await context.pages[0].screenshot(path=Path(folder) / name, full_page=True)
    complained = [*complaints]  # a page that is closed can complain of the requests that end with it
    for context in contexts:
        await context.close()
    assert complained == []
