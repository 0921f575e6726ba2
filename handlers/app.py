"""The Bolt app: which door leads where. A door checks, queues durably and acknowledges; turns do the rest."""

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.messages import CANCEL
from handlers.actions import on_cancel
from handlers.commands import on_sweep
from handlers.door import Door


def build(web: AsyncWebClient, door: Door, *, signing_secret: str | None = None) -> AsyncApp:
    """`process_before_response`: Bolt else polls every 10 ms for the ack, and these handlers only enqueue."""
    app = AsyncApp(client=web, signing_secret=signing_secret, process_before_response=True)
    app.command("/sweep")(on_sweep(door))
    app.action(CANCEL)(on_cancel(door))
    return app
