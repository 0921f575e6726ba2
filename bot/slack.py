"""Slack's Web API, as far as a turn needs it."""

import logging
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.messages import Message

log = logging.getLogger(__name__)

# What Slack says when the bot is not in the channel; for private ones it does not even admit that they exist.
NOT_THERE = {"not_in_channel", "channel_not_found", "is_archived", "restricted_action"}
# The message is gone or closed to edits: nothing a retry could mend.
NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed", "is_inactive"}


class NotInChannel(Exception):  # noqa: N818 - reads as a sentence where it is caught
    """The bot can't post there until someone invites it."""


def client(token: str, api_url: str) -> AsyncWebClient:
    """A process' one client. It waits out Slack's rate limits: for turns, not for acknowledgements."""
    web = AsyncWebClient(token=token, base_url=f"{api_url}/")
    web.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=5))
    return web


class Slack:
    """Raises SlackApiError for what is not handled here; the turn is then repeated."""

    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web

    async def open_thread(self, channel: str, message: Message) -> str:
        """Post a parent; returns its ts. Raises NotInChannel."""
        return await self._post(channel, message.text, blocks=message.blocks)

    async def say(self, channel: str, thread: str, text: str) -> None:
        await self._post(channel, text, thread_ts=thread)

    async def redraw(self, channel: str, ts: str, message: Message) -> None:
        """Show the parent's present state; silently nothing when somebody deleted it."""
        try:
            await self._web.chat_update(
                channel=channel, ts=ts, text=message.text, blocks=list(message.blocks)
            )
        except SlackApiError as error:
            if error.response["error"] not in NOT_EDITABLE | NOT_THERE:
                raise
            log.warning("a parent message can't be edited: %s", error.response["error"])

    async def whisper(self, user: str, text: str, response_url: str) -> None:
        """Only this person sees it: under their command, or as a direct message when that has expired."""
        if response_url:
            answer = await AsyncWebhookClient(response_url).send(text=text, response_type="ephemeral")
            if answer.status_code == 200:
                return
        await self._post(user, text)

    async def _post(self, channel: str, text: str, **more: Any) -> str:
        try:
            answer = await self._web.chat_postMessage(
                channel=channel, text=text, unfurl_links=False, unfurl_media=False, **more
            )
        except SlackApiError as error:
            if error.response["error"] in NOT_THERE:
                raise NotInChannel(channel) from error
            raise
        return str(answer["ts"])
