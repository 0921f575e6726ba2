"""Resume scaling: who can click it, and what `serve` stores."""

from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisDown
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.config.teams import Team
from bot.elastic.resume import RESUME, take
from bot.storage.sweeps import Store
from handlers.context import UNREACHABLE
from handlers.elastic_buttons import SENT, add_elastic_buttons
from local.slack import serve
from tests.bot.factories import ADMIN, CONFIG
from tests.handlers.test_idle_buttons import a_click

VALUE = "serving/llm 5"
INFRA = Team(name="infra", members=("UINFRA",), namespaces=("serving",))
CONFIGURED = replace(CONFIG, teams=(INFRA, Team(name="nlp", members=("UNLP",))))


class HandlerContext:
    def __init__(self, store):
        self.store, self.config = store, CONFIGURED


class Clicked:
    def __init__(self, web, store):
        self.store, self.answers = store, []
        self.app = AsyncApp(client=web, process_before_response=True)
        self.app.middleware(self._respond)
        add_elastic_buttons(self.app, HandlerContext(store))

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
    yield Clicked(AsyncWebClient(token=slack.bot_token, base_url=slack.api_url), Store(redis))
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
        (ADMIN, "serving/llm 5 ../x", "out of date"),
    ],
)
async def test_resume_by_others_or_with_a_forged_value_is_refused(clicked, user, value, refusal):
    assert refusal in await clicked.by(user, value)
    assert not await take(clicked.store, value)


async def test_resume_without_redis_says_so(clicked, monkeypatch):
    async def down(*_, **__):
        raise RedisDown

    monkeypatch.setattr(clicked.store, "add_command", down)
    assert await clicked.by(ADMIN) == UNREACHABLE
