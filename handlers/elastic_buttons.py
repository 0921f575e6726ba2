"""Handle the button Resume scaling of elastic replicas."""

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from bot.workspaces.elastic import resume
from handlers.buttons import tell
from handlers.context import Body, HandlerContext, stored

SENT = "Request sent. The message above shows the result."


def add_elastic_buttons(app: AsyncApp, context: HandlerContext) -> None:
    @app.action(resume.RESUME)
    async def click(ack: AsyncAck, respond: AsyncRespond, body: Body, action: Body) -> None:
        value, user = action.get("value", ""), body["user"]["id"]
        answer = resume.denial(value, user, context.config) or await stored(
            "a click on Resume scaling", context.add_request(*resume.request(value, user), is_polled=True)
        )
        await ack()
        await tell(respond, body, answer or SENT)
