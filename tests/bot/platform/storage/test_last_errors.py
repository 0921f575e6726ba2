"""The failed calls of a run are stored, masked, for inspect; a run without failures costs no call."""

import asyncio
from datetime import timedelta

import pytest

from bot.core.errors import RetryAfterError, UserError
from bot.core.metrics import measured
from bot.core.work_item import WorkItem
from bot.platform.slack.client import MessageRejectedError, NotInChannelError, Slack, client
from bot.platform.slack.message import Message
from bot.platform.storage.last_errors import LastErrors, remembering
from bot.platform.storage.work_queue import Lease
from bot.text.masking import Mask
from k8s.api.errors import ApiError
from local.slack import serve
from tests.bot.factories import NOW
from tests.scenarios.sweep_in_memory import SWEEP

LEASE = Lease(WorkItem.sweep(SWEEP), "token", failures=0)


async def stored(redis, run):
    errors = LastErrors(redis)
    handler = remembering(run, errors, Mask(["hunter2secret"]), lambda: NOW)
    try:
        await handler(LEASE)
    except Exception:  # noqa: BLE001 - the worker handles it
        return {each.service: each.text for each in await errors.of(SWEEP)}
    return {each.service: each.text for each in await errors.of(SWEEP)}


def calling(service, error):
    async def run(_):
        with measured(service):
            raise error

    return run


async def test_remembering_stores_the_error_of_a_call(redis):
    assert await stored(redis, calling("git", OSError("https://bot:hunter2secret@git/ is\ndown"))) == {
        "git": "https://***@git/ is down"
    }
    cut = f"{'x' * 290} hunter2secret"
    assert await stored(redis, calling("git", OSError(cut))) == {"git": "x" * 290}, "no half of it"
    assert 0 < await redis.ttl(f"sweepbot:errors:{SWEEP}") <= timedelta(days=1).total_seconds()


@pytest.mark.parametrize(
    "error",
    [UserError("no branch"), ApiError(404, "NotFound", "no pod"), ApiError(409, "Conflict", "changed")],
)
async def test_remembering_stores_no_ordinary_answer(redis, error):
    async def run(lease):
        try:
            await calling("kubernetes", error)(lease)
        except (UserError, ApiError):
            return

    assert await stored(redis, run) == {}


async def test_remembering_stores_a_refusal_that_the_run_survives(redis):
    """As the notifier does: it logs a message that Slack refuses, and continues."""
    slack = await serve()
    chat = Slack(client(slack.bot_token, slack.api_url))

    async def run(_):
        try:
            await chat.post("C0NOWHERE", Message(text="hello"))
        except (NotInChannelError, MessageRejectedError):
            return

    assert await stored(redis, run) == {"slack": "channel_not_found"}
    await slack.close()


async def test_remembering_stores_errors_of_tasks_and_bugs_but_no_postponement(redis):
    async def run(lease):
        task = asyncio.create_task(calling("mlflow", OSError("refused"))(lease))
        await asyncio.wait([task])
        task.exception()
        raise KeyError("spec")

    assert await stored(redis, run) == {"mlflow": "refused", "work": "'spec'"}
    await redis.flushall()

    async def later(_):
        raise RetryAfterError("rate limit", 3)

    assert await stored(redis, later) == {}


async def test_remembering_costs_no_call_without_failures(redis, trips):
    async def run(_):
        with measured("slack"):
            return

    await remembering(run, LastErrors(redis), Mask(), lambda: NOW)(LEASE)
    assert trips == []
