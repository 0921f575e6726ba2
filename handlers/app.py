"""Build the Bolt app. Handlers check, queue durably, and acknowledge; workers do the rest."""

from collections.abc import Callable

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from handlers.any_wording import add_wording
from handlers.buttons import add_buttons, add_idle_buttons, add_reasons
from handlers.context import HandlerContext
from handlers.home_tab import add_home, showing
from handlers.launch_form import add_form
from handlers.mentions import add_mentions
from handlers.menus import add_menus
from handlers.middleware import Admission
from handlers.settings import add_setup
from handlers.slash_gpus import add_gpus
from handlers.slash_sweep import add_sweep

AddHandlers = Callable[[AsyncApp, HandlerContext], None]


def build(
    web: AsyncWebClient,
    context: HandlerContext,
    add_more: AddHandlers = lambda *_: None,
    *,
    signing_secret: str | None = None,
) -> AsyncApp:
    """Return the app with all handlers, which only enqueue. `add_more`: adds those of workspaces.

    Without `process_before_response`, Bolt would poll every 10 ms for the acknowledgment. Without a name, it
    would read the source of each caller for one, 50 ms at the start.
    """
    app = AsyncApp(name="sweepbot", client=web, signing_secret=signing_secret, process_before_response=True)
    show = showing(context)
    app.middleware(Admission(context))
    add_sweep(app, context)
    add_gpus(app, context)
    add_mentions(app, context)
    add_wording(app, context)
    add_buttons(app, context, show)
    add_reasons(app, context)
    add_form(app, context)
    add_menus(app, context)
    add_home(app, context, show)
    add_setup(app, context)
    add_idle_buttons(app, context)
    add_more(app, context)
    return app
