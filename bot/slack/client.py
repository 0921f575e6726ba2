"""Slack's Web API, as far as a turn needs it."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackRequestError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.core.errors import RetryAfterError
from bot.core.masking import Mask
from bot.slack.blocks import SECTION_MOST
from bot.slack.message import Message
from bot.slack.mrkdwn import code, cut
from bot.slack.rate_limit import EDITS, POSTS, Rate, RateLimiter

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
    "message_limit_exceeded",
    "missing_scope",
    "not_authed",
    "request_timeout",
    "service_unavailable",
    "team_added_to_org",
    "token_expired",
    "token_revoked",
    "update_failed",
}
# The second is chat.postMessage's own, for an app that has posted too much altogether.
SLOWER = {"ratelimited", "rate_limited"}
SOME_SECONDS = 5.0  # to wait when Slack does not say how long

# No links of addresses that somebody wrote; chat.update would even look for names of channels and people.
AS_WRITTEN = "none"
BLOCKS_MOST = 50  # of a message
# The words alone are taken all the same.
UNDRAWABLE = {"invalid_blocks", "invalid_blocks_format", "invalid_attachments", "msg_blocks_too_long"}
# An upload is three calls, one of them to another host. Slack has dozens of words for refusing one of them.
NO_UPLOAD = (SlackApiError, SlackRequestError, ClientError, TimeoutError)


class NotInChannelError(Exception):
    """The bot can't post there until someone invites it."""


class MessageRejectedError(Exception):
    """Slack will never take this message; the text is Slack's word for why."""


class SlackBusyError(RetryAfterError):
    """Slack's rate limit. Nobody sleeps on it: the turn ends, and another one comes after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Slack asks to wait {seconds:.0f} s", seconds)


def why(error: SlackApiError) -> str:
    """Slack's word for it; or `HTTP 503`, for while Slack is down a proxy answers in its place, with a page.

    Then slack_sdk gives {}, a text or, where the page is said to be JSON, aiohttp's own answer.
    """
    data = getattr(error.response, "data", None)
    word = data.get("error") if isinstance(data, dict) else None
    return str(word or f"HTTP {_status(error)}")


def _status(error: SlackApiError) -> int:
    answer: Any = error.response
    return int(getattr(answer, "status_code", None) or answer.status)


def client(token: str, api_url: str) -> AsyncWebClient:
    return AsyncWebClient(token=token, base_url=f"{api_url}/")


class Slack:
    """Raises SlackBusyError; SlackApiError for trouble that may pass; MessageRejectedError else.

    What is posted or edited waits its turn among all workers, unless there is no `pace`. All text that people
    see is masked, whoever wrote it.
    """

    def __init__(
        self, web: AsyncWebClient, pace: RateLimiter | None = None, mask: Mask | None = None
    ) -> None:
        self._web, self._pace, self._mask = web, pace, mask or Mask()

    async def open_thread(self, channel: str, message: Message) -> str:
        """Post a parent; returns its ts. Raises NotInChannelError."""
        return await self._post(channel, message)

    async def say(self, channel: str, thread: str, message: Message | str, *, broadcast: bool = False) -> str:
        """Post into a thread, with `broadcast` for the whole channel to see; returns the message's ts."""
        more = {"reply_broadcast": True} if broadcast else {}
        return await self._post(channel, message, thread_ts=thread, **more)

    async def post(self, channel: str, message: Message, thread: str = "") -> str:
        """Into a channel, or into a thread of it; returns the message's ts. Raises NotInChannelError."""
        return await self._post(channel, message, **({"thread_ts": thread} if thread else {}))

    async def permalink(self, channel: str, ts: str) -> str:
        """The address of a message; "" when there is none."""
        try:
            return str((await self._web.chat_getPermalink(channel=channel, message_ts=ts))["permalink"])
        except SlackApiError as error:
            log.warning("no link to a message in %s: %s", channel, why(error))
            return ""

    async def names(self, people: Iterable[str]) -> dict[str, str]:
        """How people are called, by their ids; without those that Slack does not tell."""
        found: dict[str, str] = {}
        for person in people:
            try:
                user = (await self._web.users_info(user=person))["user"]
            except SlackApiError as error:
                log.info("the name of %s is not known: %s", person, why(error))
            else:
                found[person] = user.get("profile", {}).get("display_name") or user["name"]
        return found

    async def person(self, user: str) -> tuple[str, str]:
        """What this person is called, and the e-mail address; each "" when Slack does not tell."""
        try:
            profile = (await self._web.users_info(user=user))["user"].get("profile", {})
        except SlackApiError as error:
            log.info("%s is not known: %s", user, why(error))
            return "", ""
        return profile.get("real_name") or "", profile.get("email") or ""

    async def share(
        self,
        channel: str,
        thread: str,
        text: str,
        name: str,
        content: str | bytes,
        *,
        alt: str = "",
        at_once: bool = False,
    ) -> str:
        """Post a message with a file into a thread; returns the file's id.

        Whatever keeps the file away, the words are posted without it, and "" is returned. `at_once`: it
        belongs to what was just said; if it had to wait, that would be said again, and again take the turn
        that the file waits for.
        """
        if not at_once:
            await self._in_turn(_posts(channel), thread, POSTS)
        try:
            answer = await self._web.files_upload_v2(
                channel=channel,
                thread_ts=thread,
                initial_comment=cut(self._mask(text)),
                filename=name,
                content=await self._hidden(content),
                alt_txt=alt or None,
            )
            return str(answer["files"][0]["id"])
        except NO_UPLOAD as error:
            await self._post_without_file(channel, text, name, error, thread_ts=thread)
            return ""

    async def redraw(self, channel: str, ts: str, message: Message) -> None:
        """Show a message's present state; silently nothing when somebody deleted it."""
        await self._in_turn("edits", ts, EDITS)
        try:
            shown = {"blocks": []} | self._content(message)
            await self._web.chat_update(channel=channel, ts=ts, parse=AS_WRITTEN, **shown)
        except SlackApiError as error:
            if why(error) not in NOT_EDITABLE | NOT_THERE:
                raise await self._meaning(error, "edits") from error
            log.warning("a message can't be edited: %s", why(error))

    async def take_back(self, channel: str, ts: str) -> None:
        """Delete a message of ours; silently nothing when that can't be."""
        await self._in_turn("edits", ts, EDITS)
        try:
            await self._web.chat_delete(channel=channel, ts=ts)
        except SlackApiError as error:
            if why(error) not in NOT_EDITABLE | NOT_THERE | {"cant_delete_message"}:
                raise await self._meaning(error, "edits") from error
            log.warning("a message can't be deleted: %s", why(error))

    async def post_ephemeral(
        self,
        user: str,
        message: Message | str,
        response_url: str = "",
        channel: str = "",
        thread: str = "",
    ) -> None:
        """Only this person sees it: under their command, in a thread, or else as a direct message."""
        shown = self._content(message)
        if response_url and await _responded(response_url, shown):
            return
        if channel and await self._seen_only_by(user, channel, thread, shown):
            return
        await self._post(user, message)

    async def hand(self, user: str, text: str, name: str, content: str | bytes) -> None:
        """Send a direct message with a file, or without it as `share` does."""
        try:
            # A file is taken by a channel only, where a message may also name the person.
            opened = await self._web.conversations_open(users=user)
            await self._web.files_upload_v2(
                channel=opened["channel"]["id"],
                initial_comment=cut(self._mask(text)),
                filename=name,
                content=await self._hidden(content),
            )
        except NO_UPLOAD as error:
            await self._post_without_file(user, text, name, error)

    async def site(self) -> str:
        """The address of this Slack."""
        return str((await self._web.auth_test())["url"])

    async def show_home(self, user: str, view: dict[str, Any]) -> None:
        try:
            await self._web.views_publish(user_id=user, view=self._drawn(view))
        except SlackApiError as error:
            raise await self._meaning(error, "homes") from error

    async def update_view(self, view: str, content: dict[str, Any]) -> None:
        """Show this in a modal that is open; silently nothing when it was closed."""
        try:
            await self._web.views_update(view_id=view, view=self._drawn(content))
        except SlackApiError as error:
            if why(error) != "not_found":
                raise await self._meaning(error, "views") from error

    async def _seen_only_by(self, user: str, channel: str, thread: str, shown: dict[str, Any]) -> bool:
        try:
            await self._web.chat_postEphemeral(channel=channel, user=user, thread_ts=thread or None, **shown)
        except SlackApiError as error:
            if why(error) in NOT_THERE | {"user_not_in_channel"}:
                return False
            raise await self._meaning(error, "ephemerals") from error
        return True

    async def _post_without_file(
        self, channel: str, text: str, name: str, error: Exception, **more: Any
    ) -> None:
        """Raises what the post raises: while all of Slack is away, that is tried again with the file."""
        said = "the upload failed"
        if isinstance(error, SlackApiError):
            meaning = await self._meaning(error, _posts(channel))
            if isinstance(meaning, SlackBusyError):
                raise meaning from error
            said = f"Slack answered {code(why(error))}"
        log.warning("can't upload %s: %s", name, error)
        await self._post_now(channel, {"text": f"{text}\nCouldn't attach {code(name)}: {said}."}, **more)

    async def _post(self, channel: str, message: Message | str, **more: Any) -> str:
        shown = self._content(message)
        await self._in_turn(_posts(channel), more.get("thread_ts") or shown["text"][:50], POSTS)
        return await self._post_now(channel, shown, **more)

    async def _post_now(self, channel: str, shown: dict[str, Any], **more: Any) -> str:
        try:
            return await self._posted(channel, shown | more)
        except SlackApiError as error:
            if "blocks" not in shown or why(error) not in UNDRAWABLE:
                raise await self._meaning(error, _posts(channel)) from error
            log.warning("Slack does not draw %s: %s", shown["blocks"], why(error))
        try:
            return await self._posted(channel, {"text": shown["text"]} | more)
        except SlackApiError as error:
            raise await self._meaning(error, _posts(channel)) from error

    async def _posted(self, channel: str, content: dict[str, Any]) -> str:
        answer = await self._web.chat_postMessage(
            channel=channel, parse=AS_WRITTEN, unfurl_links=False, unfurl_media=False, **content
        )
        return str(answer["ts"])

    def _content(self, message: Message | str) -> dict[str, Any]:
        if isinstance(message, str):
            return {"text": cut(self._mask(message))}
        text = {"text": cut(self._mask(message.text))}
        return text | ({"blocks": self._drawn(list(message.blocks[:BLOCKS_MOST]))} if message.blocks else {})

    def _drawn(self, shown: Any) -> Any:
        """Blocks or a view; values, ids and what somebody has typed stay as they are."""
        if isinstance(shown, Mapping):
            return {
                key: self._shown(each) if key == "text" and isinstance(each, str) else self._drawn(each)
                for key, each in shown.items()
            }
        return [self._drawn(each) for each in shown] if isinstance(shown, list | tuple) else shown

    def _shown(self, text: str) -> str:
        return cut(self._mask(text), SECTION_MOST)

    async def _hidden(self, content: str | bytes) -> str | bytes:
        """A file's text; in a thread, for it may be a whole log."""
        return await asyncio.to_thread(self._mask, content) if isinstance(content, str) else content

    async def _in_turn(self, line: str, who: str, rate: Rate) -> None:
        seconds = await self._pace.wait(line, who, rate) if self._pace else 0
        if seconds:
            raise SlackBusyError(seconds)

    async def _meaning(self, error: SlackApiError, line: str) -> Exception:
        """A rate limit holds all workers, but only at what it is about."""
        word, status = why(error), _status(error)
        if word in SLOWER or status == 429:
            seconds = float(error.response.headers.get("Retry-After", SOME_SECONDS))
            if self._pace:
                await self._pace.hold(line, seconds)
            return SlackBusyError(seconds)
        if word in NOT_THERE:
            return NotInChannelError(line)
        return (
            error
            if word in PASSING or word.startswith("HTTP ") or status >= 500
            else MessageRejectedError(word)
        )


async def _responded(url: str, shown: dict[str, Any]) -> bool:
    """Whether Slack took it there: half an hour and five times at most."""
    try:
        answer = await AsyncWebhookClient(url).send(
            response_type="ephemeral", replace_original=False, **shown
        )
    except (ClientError, TimeoutError) as error:
        log.warning("no answer where a click or a command came from: %s", error)
        return False
    return answer.status_code == 200


def _posts(channel: str) -> str:
    return f"posts:{channel}"
