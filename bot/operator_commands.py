"""The commands ps, inspect, retry, release, and recover, which read Redis and the cluster."""

import argparse
import asyncio
from contextlib import AsyncExitStack

from redis.exceptions import RedisError

from bot.client_setup import connect_clients
from bot.core.errors import UserError
from bot.operate.commands import Operator
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.settings import Settings
from bot.platform.slack.client import client
from bot.platform.storage.redis_client import connect
from bot.text.terminal import without_markup
from k8s.api.errors import ApiError, UnreachableError


def run_operator(arguments: argparse.Namespace) -> int:
    """Run a command and print its answer. Raises UserError."""
    settings = Settings.read()
    lines = asyncio.run(_run(arguments.word, getattr(arguments, "item", ""), settings))
    print(without_markup(settings.mask("\n".join(lines))))
    return 0


async def _run(word: str, item: str, settings: Settings) -> list[str]:
    policy = LivePolicy.read(settings.sweepbot_config)
    web = client(settings.slack_bot_token.get_secret_value(), settings.slack_api_url)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(connect(settings.redis_url))
        try:
            clients = await connect_clients(settings, policy, redis, web, stack)
            return await Operator(clients, redis).run(word, item)
        except RedisError as error:
            pods = "`kubectl -n sweepbot get pods -l app.kubernetes.io/name=sweepbot-redis`"
            raise UserError(
                f"Redis doesn't respond, so no sweep continues: {str(error).rstrip('.')}. *Fix:* {pods}"
            ) from None
        except (ApiError, UnreachableError) as error:
            raise UserError(f"The API server failed: {error}. *Fix:* `sweepbot doctor`") from None
