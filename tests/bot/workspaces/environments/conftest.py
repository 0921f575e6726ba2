"""A cluster, Slack, and a worker for environments, in memory."""

import pytest

from tests.bot.workspaces.environments.world import World


@pytest.fixture
async def world(redis):
    async with World(redis).started() as world:
        yield world
