"""The picture of an elastic Deployment's message, taken again with SWEEPBOT_PICTURES=1."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import expect

from bot.platform.slack.client import Slack, client
from bot.workspaces.elastic.message import ElasticView, message
from bot.workspaces.elastic.records import ElasticRecord, Reason
from bot.workspaces.elastic.supply import Supply
from tests.bot.workspaces.elastic.factories import LLM
from tests.browser.conftest import Opened
from tests.browser.test_pictures import shoot
from tests.scenarios.local_world import Instance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not os.environ.get("SWEEPBOT_PICTURES"), reason="SWEEPBOT_PICTURES is not set"),
]


async def test_picture_of_an_elastic_deployment(opened: Opened, instance: Instance) -> None:
    now = datetime.now(UTC)
    changed = {"replicas": 3, "changed_from": 5, "changed_at": now - timedelta(minutes=4)}
    record = ElasticRecord(**changed, reason=Reason.GIVEN, given=("lr-brave-otter",))
    supply = Supply(running=3, ready=3, free=0, coming=0)
    view = ElasticView(replicas=3, supply=supply, raise_at=now + timedelta(minutes=6))
    slack = Slack(client(instance.slack.bot_token, instance.slack.api_url))
    channel = instance.slack.workspace.channel("sweeps")
    await slack.post(channel.id, message(replace(LLM, gpus=2, reserve=1), record, view))
    page = await opened("ada", height=400)
    await expect(page.get_by_role("log", name="Messages")).to_contain_text("3 of max 6 replicas run")
    await shoot(page, "elastic")
