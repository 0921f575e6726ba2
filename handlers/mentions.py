"""Handle @sweepbot: commands in a sweep's thread, where slash commands don't work; help anywhere else.

Slack repeats an event that it believes lost: a command is stored with the event's id, so it is applied once.
An edited message comes as an event with another id (github.com/slackapi/bolt-js/issues/960) and is ignored;
otherwise an edited rerun would start another sweep.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.answers.command_parser import COMMAND_USAGE, first_word, suggest_command
from bot.core.errors import UserError
from bot.launch.help_text import HELP
from bot.slack.mrkdwn import code, cut, plain
from handlers.context import SLACK_ERRORS, HandlerContext, unconfirmed
from handlers.sweep_commands import Sender, handle_command, is_command, sweep_in

log = logging.getLogger(__name__)

Handler = Callable[[dict[str, Any], AsyncWebClient], Awaitable[None]]
SELF = re.compile(r"<@[UW][A-Z0-9]+(\|[^<>]*)?>")
THREAD_COMMANDS = ", ".join(word for word in COMMAND_USAGE if word != "list")
THREAD_HELP = f"In this thread, mention me with a command: {THREAD_COMMANDS}."


def add_mentions(app: AsyncApp, context: HandlerContext) -> None:
    app.event("app_mention")(_on_mention(context))


def _on_mention(context: HandlerContext) -> Handler:
    async def mention(body: dict[str, Any], client: AsyncWebClient) -> None:
        event = body["event"]
        if event.get("bot_id") or event.get("edited"):
            return
        text, reply = SELF.sub("", event.get("text", "")).strip(), ""
        try:
            reply = await _answer(context, text, event, body["event_id"])
        except UserError as error:
            reply = plain(str(error))
        except (RedisError, TimeoutError) as error:
            log.exception("failed to queue a mention")
            reply = unconfirmed(error)
        if reply:
            context.background.start(_post_ephemeral(client, event, reply))

    return mention


async def _answer(context: HandlerContext, text: str, event: dict[str, Any], request_id: str) -> str:
    """Return the immediate reply; "" if already sent, or if the answer will appear in the thread."""
    thread = event.get("thread_ts", "")
    sweep = await sweep_in(context, event["channel"], thread) if thread else None
    who = Sender(
        user=event["user"],
        user_name="",
        channel=event["channel"],
        request_id=request_id,
        here=sweep.id if sweep else "",
    )
    word = first_word(text)[0]
    if sweep and is_command(text) and word not in {"list", "status"}:
        await handle_command(context, text, who)
        return ""
    if not await context.store.is_new(request_id):
        return ""
    if is_command(text) and (sweep or word == "list"):
        return await handle_command(context, text, who)
    if is_command(text):
        return f"{code(word)} works in a sweep's thread. Here, use `/sweep {word}`."
    return f"{suggest_command(text, 'help')}\n{THREAD_HELP if sweep else HELP}".strip()


async def _post_ephemeral(client: AsyncWebClient, event: dict[str, Any], text: str) -> None:
    try:
        await client.chat_postEphemeral(
            channel=event["channel"], user=event["user"], text=cut(text), thread_ts=event.get("thread_ts")
        )
    except SLACK_ERRORS as error:
        log.warning("can't answer a mention: %s", error)
