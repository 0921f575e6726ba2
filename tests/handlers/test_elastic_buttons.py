"""Resume scaling: who can click it, and what `serve` stores."""

from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisDown
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.config.teams import Team
from bot.workspaces.elastic.resume import RESUME, request, take
from handlers.context import UNREACHABLE
from handlers.elastic_buttons import SENT, add_elastic_buttons
from local.slack import serve
from tests.bot.factories import ADMIN, CONFIG
from tests.handlers.factories import a_context
from tests.handlers.test_idle_buttons import a_click
from tests.scenarios.test_unconfirmed_requests import POLLED, assert_not_lost

VALUE = "serving/llm 2"
INFRA = Team(name="infra", members=("UINFRA",), namespaces=("serving",))
CONFIGURED = replace(CONFIG, teams=(INFRA, Team(name="nlp", members=("UNLP",))))


class Clicked:
    def __init__(self, web, redis):
        self.context, self.answers = a_context(redis, config=CONFIGURED), []
        self.store = self.context.store
        self.app = AsyncApp(client=web, process_before_response=True)
        self.app.middleware(self._respond)
        add_elastic_buttons(self.app, self.context)

    async def _respond(self, context, next_):
        async def respond(text, **_):
            self.answers.append(text)

        context["respond"] = respond
        await next_()

    async def by(self, user, value=VALUE):
        request = a_click(RESUME, value)
        request.body["user"]["id"] = user
        assert (await self.app.async_dispatch(request)).status == 200
        return self.answers[-1]


@pytest.fixture
async def clicked(redis):
    slack = await serve()
    yield Clicked(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), redis)
    await slack.close()


@pytest.mark.parametrize("user", [ADMIN, "UINFRA"])
async def test_resume_by_an_admin_or_the_namespaces_team_is_stored_once(clicked, user):
    assert await clicked.by(user) == SENT
    assert [await take(clicked.store, VALUE) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("user", "value", "refusal"),
    [
        ("UNLP", VALUE, "Only admins, and the team with the namespace `serving`, can do this."),
        ("UOTHER", VALUE, "Only admins"),
        (ADMIN, "lr-brave-otter", "out of date"),
        (ADMIN, "serving/llm 2 ../x", "out of date"),
    ],
)
async def test_resume_by_others_or_with_a_forged_value_is_refused(clicked, user, value, refusal):
    assert refusal in await clicked.by(user, value)
    assert not await take(clicked.store, value)


async def test_resume_without_redis_says_so(clicked, monkeypatch):
    async def down(*_, **__):
        raise RedisDown

    monkeypatch.setattr(clicked.store, "add_request", down)
    assert await clicked.by(ADMIN) == UNREACHABLE


async def test_killed_server_and_emptied_redis_lose_no_click(clicked, redis):
    item, stored = request(VALUE, ADMIN)
    assert item == POLLED
    await assert_not_lost(
        redis, clicked.context, item, lambda context: context.add_request(item, stored, is_polled=True)
    )
