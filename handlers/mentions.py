"""Handle what people say to the bot: mentions in channels and threads, and direct messages, without quotes
and edits; the help in a thread.

Slack repeats an event that it believes lost: a command is stored with the event's id, so it is applied once.
An edited message comes as an event with another id (github.com/slackapi/bolt-js/issues/960) and is ignored;
otherwise an edited rerun would start another sweep.
"""

import asyncio
import logging
import re
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.commands.grammar import unformatted
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import cut, direct
from bot.sweep.answers.command_parser import COMMANDS
from handlers.any_wording import reply_to
from handlers.context import SLACK_ERRORS, HandlerContext, unconfirmed_reply
from handlers.middleware import SLACK_TIMEOUT, is_said
from handlers.sweep_commands import HELP, sweep_in

log = logging.getLogger(__name__)

QUOTE = re.compile(r"^[ \t]*&gt;(?:&gt;&gt;[\s\S]*|.*)", re.MULTILINE)  # `>>>` quotes all that follows
PREFIX = re.compile(r"(/\w+)(?:\s+|$)")
THREAD_COMMANDS = ", ".join(each.name for each in COMMANDS if each.name.isalpha() and each.name != "list")
THREAD_HELP = f"In this thread, mention me with a command: {THREAD_COMMANDS}."


def add_mentions(app: AsyncApp, context: HandlerContext) -> None:
    async def said(req: AsyncBoltRequest, client: AsyncWebClient) -> None:
        body, event = req.body, req.body["event"]
        if not is_said(event):
            return
        try:
            event = own_words(req.context.bot_user_id, event)
            reply = await _answer(context, event, body["event_id"], client)
            # The command itself may have been stored with the event's id.
            reply = reply if reply and await context.store.is_new(f"reply/{body['event_id']}") else ""
        except (RedisError, TimeoutError) as error:
            log.exception("failed to answer a message")
            reply = unconfirmed_reply(error)
        if reply:
            context.background.start(_post(client, event, reply))

    app.event("app_mention")(said)
    app.event("message")(said)  # only direct messages: the app gets no others


async def _answer(
    context: HandlerContext, event: dict[str, Any], request_id: str, client: AsyncWebClient
) -> str | Message:
    """Return the immediate reply; "" if the answer will appear in the thread."""
    thread = event.get("thread_ts", "")
    sweep = await sweep_in(context, event["channel"], thread) if thread else None
    text = unformatted(event["text"])
    prefix = PREFIX.match(text)
    command = {
        "command": prefix[1].lower() if prefix and prefix[1].lower() in context.spoken else "/sweep",
        "text": text[prefix.end() :] if prefix else text,
        "user_id": event["user"],
        "user_name": await _name(client, event["user"]),
        "channel_id": event["channel"],
        "request_id": request_id,
        "here": sweep.id if sweep else "",
        "thread": thread,
    }
    reply = await reply_to(context, command, client)
    return THREAD_HELP if sweep and reply == HELP else reply


def own_words(own: str | None, event: dict[str, Any]) -> dict[str, Any]:
    """Remove quotes, which are what another person said, and the mentions of the app itself.

    Other mentions stay: `cancel @bob` isn't `cancel`, which is about one's own sweep.
    """
    mention = rf"<@{own or '[UW][A-Z0-9]+'}(\|[^<>]*)?>"
    return event | {"text": re.sub(mention, "", QUOTE.sub("", event.get("text", "")))}


async def _name(client: AsyncWebClient, user: str) -> str:
    """Return the name that a slash command has, and an event hasn't; "" if Slack doesn't return it."""
    try:
        async with asyncio.timeout(SLACK_TIMEOUT):
            return str((await client.users_info(user=user))["user"]["name"])
    except SLACK_ERRORS as error:
        log.info("can't look up the name of %s: %s", user, error)
        return ""


async def _post(client: AsyncWebClient, event: dict[str, Any], reply: str | Message) -> None:
    """Post an ephemeral message; in direct messages, which only the person reads, a lasting one."""
    message = reply if isinstance(reply, Message) else Message(text=reply)
    content: dict[str, Any] = {"text": cut(message.text), "blocks": list(message.blocks) or None}
    content |= {"channel": event["channel"], "thread_ts": event.get("thread_ts")}
    try:
        if direct(event["channel"]):
            await client.chat_postMessage(**content)
        else:
            await client.chat_postEphemeral(**content, user=event["user"])
    except SLACK_ERRORS as error:
        log.warning("can't answer a message: %s", error)
