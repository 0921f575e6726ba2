"""Slack's Web API, as far as a turn needs it."""

import logging
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.messages import Message

log = logging.getLogger(__name__)

# What Slack says when the bot is not in the channel; for private ones it does not even admit that they exist.
NOT_THERE = {"not_in_channel", "channel_not_found", "is_archived", "restricted_action"}
# The message is gone or closed to edits: nothing a retry could mend.
NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed", "is_inactive"}


# Trouble of Slack's, or of the installation's: the same message may pass later.
PASSING = {
    "account_inactive",
    "fatal_error",
    "internal_error",
    "invalid_auth",
    "missing_scope",
    "not_authed",
    "request_timeout",
    "service_unavailable",
    "token_expired",
    "token_revoked",
}


# The app was installed without files:write, or the workspace wants no files.
NO_FILES = {"missing_scope", "file_uploads_disabled", "file_upload_size_restricted"}


class NotInChannel(Exception):  # noqa: N818 - reads as a sentence where it is caught
    """The bot can't post there until someone invites it."""


class NotTaken(Exception):  # noqa: N818 - as above
    """Slack will never take this message; the text is Slack's word for why."""


class Busy(Exception):  # noqa: N818 - as above
    """Slack's rate limit. Nobody sleeps on it: the turn ends, and another one comes after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Slack asks to wait {seconds:.0f} s")
        self.seconds = seconds


def client(token: str, api_url: str) -> AsyncWebClient:
    return AsyncWebClient(token=token, base_url=f"{api_url}/")


class Slack:
    """Raises Busy; SlackApiError for trouble that may pass, so that the turn is repeated; NotTaken else."""

    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web

    async def open_thread(self, channel: str, message: Message) -> str:
        """Post a parent; returns its ts. Raises NotInChannel."""
        return await self._post(channel, message.text, blocks=message.blocks)

    async def say(self, channel: str, thread: str, text: str) -> str:
        """Post into a thread; returns the message's ts."""
        return await self._post(channel, text, thread_ts=thread)

    async def share(self, channel: str, thread: str, text: str, name: str, content: str | bytes) -> None:
        """A message with a file, into a thread; without the file where the app may not upload any."""
        try:
            await self._web.files_upload_v2(
                channel=channel, thread_ts=thread, initial_comment=text, filename=name, content=content
            )
        except SlackApiError as error:
            if error.response["error"] not in NO_FILES:
                raise _meaning(error, channel) from error
            log.warning("a file can't be uploaded: %s", error.response["error"])
            await self.say(channel, thread, text)

    async def redraw(self, channel: str, ts: str, message: Message) -> None:
        """Show a message's present state; silently nothing when somebody deleted it."""
        try:
            await self._web.chat_update(
                channel=channel, ts=ts, text=message.text, blocks=list(message.blocks)
            )
        except SlackApiError as error:
            if error.response["error"] not in NOT_EDITABLE | NOT_THERE:
                raise _meaning(error, channel) from error
            log.warning("a message can't be edited: %s", error.response["error"])

    async def whisper(self, user: str, text: str, response_url: str = "") -> None:
        """Only this person sees it: under their command, or as a direct message when that has expired."""
        if response_url:
            answer = await AsyncWebhookClient(response_url).send(
                text=text, response_type="ephemeral", replace_original=False
            )
            if answer.status_code == 200:
                return
        await self._post(user, text)

    async def _post(self, channel: str, text: str, **more: Any) -> str:
        try:
            answer = await self._web.chat_postMessage(
                channel=channel, text=text, unfurl_links=False, unfurl_media=False, **more
            )
        except SlackApiError as error:
            raise _meaning(error, channel) from error
        return str(answer["ts"])


def _meaning(error: SlackApiError, channel: str) -> Exception:
    word = error.response["error"]
    if word == "ratelimited":
        return Busy(float(error.response.headers.get("Retry-After", 1)))
    if word in NOT_THERE:
        return NotInChannel(channel)
    return error if word in PASSING else NotTaken(word)
