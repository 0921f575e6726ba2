"""The Bolt app: which door leads where. A door checks, queues durably and acknowledges; turns do the rest."""

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from handlers import warnings
from handlers.actions import add_buttons
from handlers.commands import on_sweep
from handlers.door import Door
from handlers.gpus import COMMAND, on_gpus
from handlers.home import add_home, showing
from handlers.mentions import on_mention
from handlers.options import add_menus
from handlers.setup import add_setup
from handlers.views import add_form
from handlers.visitors import admitting


def build(web: AsyncWebClient, door: Door, *, signing_secret: str | None = None) -> AsyncApp:
    """`process_before_response`: Bolt else polls every 10 ms for the ack, and these handlers only enqueue."""
    app = AsyncApp(client=web, signing_secret=signing_secret, process_before_response=True)
    app.middleware(admitting(door))
    app.command("/sweep")(on_sweep(door))
    app.command(COMMAND)(on_gpus(door))
    app.event("app_mention")(on_mention(door))
    show = showing(door)
    add_buttons(app, door, show)
    add_form(app, door)
    add_menus(app, door)
    add_home(app, door, show)
    add_setup(app, door)
    warnings.register(app, door)
    return app
