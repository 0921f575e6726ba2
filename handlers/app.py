"""The Bolt app: which door leads where. A door checks, queues durably and acknowledges; turns do the rest."""

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from handlers import idle_buttons
from handlers.buttons import add_buttons
from handlers.channel_setup import add_setup
from handlers.context import HandlerContext
from handlers.home_tab import add_home, showing
from handlers.launch_form import add_form
from handlers.mentions import on_mention
from handlers.menus import add_menus
from handlers.middleware import admitting
from handlers.slash_gpus import COMMAND, on_gpus
from handlers.slash_sweep import on_sweep


def build(web: AsyncWebClient, context: HandlerContext, *, signing_secret: str | None = None) -> AsyncApp:
    """`process_before_response`: Bolt else polls every 10 ms for the ack, and these handlers only enqueue."""
    app = AsyncApp(client=web, signing_secret=signing_secret, process_before_response=True)
    app.middleware(admitting(context))
    app.command("/sweep")(on_sweep(context))
    app.command(COMMAND)(on_gpus(context))
    app.event("app_mention")(on_mention(context))
    show = showing(context)
    add_buttons(app, context, show)
    add_form(app, context)
    add_menus(app, context)
    add_home(app, context, show)
    add_setup(app, context)
    idle_buttons.register(app, context)
    return app
