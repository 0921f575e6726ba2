"""Handle buttons that ask for a reason first, such as Decline: a modal with one line, whose submission queues
the command.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, Command
from bot.core.ids import SWEEP_ID
from bot.platform.slack.blocks import View, form_modal, input_block, text_box, user_name, value_of
from bot.sweep.decisions.commands import RULES
from handlers.context import ACK_TIMEOUT, NOT_OPENED, SLACK_ERRORS, Body, HandlerContext, stored

log = logging.getLogger(__name__)
REASON, MOST = "reason", 200  # the block; characters


def add_reasons(app: AsyncApp, context: HandlerContext) -> None:
    for action, rule in RULES.items():
        if rule.asks_reason:
            app.action(rule.button)(_on_click(action, rule.button))
            app.view(rule.button)(_on_submit(context, action))


def _on_click(asked: Action, callback: str) -> Callable[..., Awaitable[None]]:
    async def click(
        ack: AsyncAck, client: AsyncWebClient, respond: AsyncRespond, body: Body, action: Body
    ) -> None:
        if SWEEP_ID.fullmatch(sweep := action.get("value", "")):
            try:
                async with asyncio.timeout(ACK_TIMEOUT):
                    view = _modal(asked, callback, sweep)
                    await client.views_open(trigger_id=body["trigger_id"], view=view)
            except SLACK_ERRORS:
                log.exception("failed to ask for a reason")
                await respond(text=NOT_OPENED, response_type="ephemeral", replace_original=False)
        await ack()

    return click


def _modal(action: Action, callback: str, sweep: str) -> View:
    verb = action.label.capitalize()
    box = text_box("Optional, for its owner and the thread", MOST)
    reason = input_block(REASON, "Reason", box, optional=True)
    return form_modal(f"{verb} this sweep?", [reason], callback, verb, sweep, "Keep waiting")


def _on_submit(context: HandlerContext, action: Action) -> Callable[..., Awaitable[None]]:
    async def submitted(ack: AsyncAck, body: Body) -> None:
        view, user = body["view"], body["user"]
        reason = " ".join(value_of(view["state"]["values"][REASON]["value"]).split())[:MOST]
        command = Command(action=action, user=user["id"], user_name=user_name(user), reason=reason)
        if failure := await stored("a reason", context.send(view["private_metadata"], command)):
            await ack(response_action="errors", errors={REASON: failure})
        else:
            await ack()

    return submitted
