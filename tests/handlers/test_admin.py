"""/sweep admin: for admins, queued for a worker, and answered at once if no worker runs."""

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action
from bot.core.work_item import OPERATOR
from handlers.app import build
from local.slack import serve
from tests.bot.factories import ADMIN
from tests.handlers.factories import a_command, a_context


@pytest.fixture
def context(redis):
    return a_context(redis)


@pytest.fixture
async def app(context):
    slack = await serve()
    yield build(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), context)
    await slack.close()


async def answer(app, text, user=ADMIN):
    return (await app.async_dispatch(a_command(text, user=user))).body


async def test_admin_command_is_queued_for_a_worker(app, context, redis):
    await redis.set("sweepbot:usage", "worker-1")
    assert "Running `inspect`" in await answer(app, "admin inspect `lr-brave-otter`")
    [command] = await context.store.commands(str(OPERATOR))
    assert (command.action, command.changes) == (Action.OPERATE, "inspect lr-brave-otter")
    assert (await context.queue.get(wait=0)).item == OPERATOR


async def test_admin_command_without_a_worker_is_answered_at_once(app, context):
    text = await answer(app, "admin ps")
    assert text.startswith("No worker is running:") or '"No worker is running:' in text
    assert "rollout restart" in text
    assert await context.store.commands(str(OPERATOR)) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("admin", "Unknown command `admin`. Available: ps, inspect, retry, recover, release, and revoke."),
        ("admin insepct x", "Unknown command `admin insepct`. Did you mean inspect?"),
        ("admin inspect", "Usage: `/sweep admin inspect SWEEP`: print why"),
        ("admin ps lr", "Usage: `/sweep admin ps`: list"),
        ("admin retry", "Usage: `/sweep admin retry SWEEP`"),
        ("release", "Usage: `/sweep release NAME`"),
    ],
)
async def test_admin_command_with_a_mistake_shows_the_usage(app, context, redis, text, error):
    await redis.set("sweepbot:usage", "worker-1")
    assert error in await answer(app, text)
    assert await context.store.commands(str(OPERATOR)) == []


async def test_admin_command_of_others_names_the_admins(app, context, redis):
    await redis.set("sweepbot:usage", "worker-1")
    for text in ("admin ps", "admin release x", "admin recover"):
        assert f"Only admins can do that: <@{ADMIN}>." in await answer(app, text, user="U1")
    assert await context.store.commands(str(OPERATOR)) == []


async def test_admin_release_is_the_same_as_release(app):
    assert await answer(app, "admin release x") == await answer(app, "release x")
