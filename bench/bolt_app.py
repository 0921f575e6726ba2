"""The peers of `serve`: Bolt apps that acknowledge and do little else.

`python -m bench.bolt_app [PEER]`, with the environment of `bot serve`. `default`: as Bolt documents it.
`before`: with `process_before_response`, so that Bolt doesn't poll for the acknowledgment. `durable`: like
`before`, and the command is in a Redis stream by then.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient


def bolt_app() -> AsyncApp:
    logging.getLogger("slack_bolt").setLevel(
        "ERROR"
    )  # it warns of a client beside the token in the environment
    web = AsyncWebClient(token=os.environ["SLACK_BOT_TOKEN"], base_url=os.environ["SLACK_API_URL"])
    secret, peer = os.environ.get("SLACK_SIGNING_SECRET", ""), sys.argv[1] if sys.argv[1:] else "default"
    app = AsyncApp(client=web, signing_secret=secret, process_before_response=peer != "default")
    store = _store() if peer == "durable" else None

    @app.command("/sweep")
    async def acknowledge(ack: AsyncAck, body: dict[str, str]) -> None:
        if store:
            await store(body)
        await ack(text="accepted")

    return app


def _store() -> Callable[[dict[str, str]], Awaitable[object]]:
    from redis.asyncio import Redis  # noqa: PLC0415 - the other peers don't import it

    redis = Redis.from_url(os.environ["REDIS_URL"])
    return lambda body: redis.xadd("commands", {"body": json.dumps(body)})


def over_http(port: int) -> None:
    import uvicorn  # noqa: PLC0415 - a Socket Mode app doesn't import it
    from slack_bolt.adapter.asgi.async_handler import AsyncSlackRequestHandler  # noqa: PLC0415

    handler = AsyncSlackRequestHandler(bolt_app(), path="/slack/events")
    uvicorn.run(handler, host="127.0.0.1", port=port, log_level="warning")


async def over_a_socket() -> None:
    from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler  # noqa: PLC0415

    handler = AsyncSocketModeHandler(bolt_app(), os.environ["SLACK_APP_TOKEN"])
    await handler.start_async()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    if os.environ["SLACK_MODE"] == "http":
        over_http(int(os.environ["HTTP_PORT"]))
    else:
        asyncio.run(over_a_socket())
