"""The peer of `serve`: a Bolt app as its documentation shows it, which acknowledges and does nothing else.

`python -m bench.bolt_app`, with the environment of `bot serve`.
"""

import asyncio
import logging
import os

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient


def bolt_app() -> AsyncApp:
    logging.getLogger("slack_bolt").setLevel(
        "ERROR"
    )  # it warns of a client beside the token in the environment
    web = AsyncWebClient(token=os.environ["SLACK_BOT_TOKEN"], base_url=os.environ["SLACK_API_URL"])
    app = AsyncApp(client=web, signing_secret=os.environ.get("SLACK_SIGNING_SECRET", ""))

    @app.command("/sweep")
    async def acknowledge(ack: AsyncAck) -> None:
        await ack(text="accepted")

    return app


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
