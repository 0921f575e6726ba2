"""Call Slack's Web API: post, edit, and delete messages, upload files, or say why one can't be attached,
update views, look up people, addresses, and user groups; which errors are retried; what waits in quiet hours.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackRequestError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.core.errors import RetryAfterError
from bot.core.finding import with_fix
from bot.core.metrics import measured, slack_called
from bot.core.request import is_team
from bot.platform.slack.blocks import masked
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import MAX_MESSAGE, MENTION, code, cut, direct, unmentioned
from bot.platform.slack.rate_limit import EDITS, POSTS, Rate, RateLimiter
from bot.text.masking import Mask
from k8s.api.errors import SweepbotError
from k8s.retry import Retry

log = logging.getLogger(__name__)

# Slack's errors when the bot isn't in the channel; a private channel is "not found" then.
# In an archived channel, an edit is "inactive". With its own keys, an organization can deny access, too.
NO_ACCESS = {
    "access_denied",
    "channel_not_found",
    "ekm_access_denied",
    "is_archived",
    "is_inactive",
    "no_permission",
    "not_in_channel",
    "restricted_action",
    "restricted_action_non_threadable_channel",
    "restricted_action_read_only_channel",
    "restricted_action_thread_locked",
    "restricted_action_thread_only_channel",
}
# The message was deleted, or Slack has its own in its place, above replies; or it is closed to edits.
GONE = {"message_not_found", "cant_update_message"}
NOT_EDITABLE = GONE | {"edit_window_closed"}


# Outages and configuration errors: the same message can succeed later.
TRANSIENT = {
    "accesslimited",
    "account_inactive",
    "enterprise_is_restricted",
    "external_channel_migrating",
    "fatal_error",
    "internal_error",
    "invalid_auth",
    "message_limit_exceeded",
    "missing_scope",
    "not_allowed_token_type",
    "not_authed",
    "org_login_required",
    "request_timeout",
    "service_unavailable",
    "team_access_not_granted",
    "team_added_to_org",
    "token_expired",
    "token_revoked",
    "two_factor_setup_required",
    "update_failed",
}
# The second is chat.postMessage's own: the app has posted too much in all channels together.
RATE_LIMITED = {"ratelimited", "rate_limited"}
RETRY = Retry(base=5.0)  # of calls that Slack limits without a Retry-After header; of others, the queue's

# Don't turn URLs in user text into links; by default, chat.update would also link channel and user names.
PARSE_NONE = "none"
MAX_BLOCKS = 50  # of a message
MAX_ALT = 1_000  # characters of a picture's description: a longer one rejects the upload
# Errors about the form of a message; its text alone, or the start of that, can still be sent.
INVALID_FORM = {
    "block_mismatch",
    "invalid_attachments",
    "invalid_blocks",
    "invalid_blocks_format",
    "msg_blocks_too_long",
    "msg_too_long",
}
# An upload is three calls, one of them to another host; Slack documents dozens of errors for them.
UPLOAD_ERRORS = (SlackApiError, SlackRequestError, ClientError, TimeoutError)


UPLOAD_FIXES = {
    "missing_scope": "Ask an admin to add the scope `files:write` to the Slack app, and to reinstall it.",
    "not_in_channel": "Run `/invite @sweepbot` in this channel.",
    "storage_limit_reached": "Ask an admin of the workspace to free file storage.",
    "file_uploads_disabled": "Ask an admin of the workspace to allow file uploads.",
    "restricted_action": "Ask an admin of the workspace to allow apps to post files here.",
}


class Quiet(Protocol):
    """Knows whose quiet hours last now (bot.sweep.channels.quiet)."""

    def name(self, user: str) -> str:
        """Return what stands for a mention of the user now; "" if it can stay."""

    async def keep(self, user: str, text: str, place: str = "", url: str = "") -> None:
        """Keep a message until their quiet hours end. `place`: tells apart equal texts elsewhere."""


class NotInChannelError(SweepbotError):
    """The bot can't post in this channel until someone invites it; the text is Slack's error code."""


class MessageRejectedError(SweepbotError):
    """Slack permanently rejects this message; the text is Slack's error code."""


class SlackBusyError(RetryAfterError):
    """Slack's rate limit: the caller stops, and its work item runs again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Slack rate limit, retry after {seconds:.0f} s", seconds)


UNSENT = (SlackBusyError, SlackApiError, ClientError, OSError)  # Slack can accept the message later


def error_code(error: SlackApiError) -> str:
    """Return Slack's error code, such as `invalid_auth`; or `HTTP 503`, if a proxy answered in its place.

    For a proxy's page, slack_sdk has {}, a text, or aiohttp's response, depending on the content type.
    """
    data = getattr(error.response, "data", None)
    found = data.get("error") if isinstance(data, dict) else None
    return str(found or f"HTTP {_status(error)}")


def _status(error: SlackApiError) -> int:
    response: Any = error.response
    return int(getattr(response, "status_code", None) or response.status)


class _MeasuredClient(AsyncWebClient):
    async def api_call(self, api_method: str, **arguments: Any) -> AsyncSlackResponse:
        with measured("slack", _is_answer, api_method, _described):
            answer = await super().api_call(api_method, **arguments)
        slack_called()
        return answer


def _described(error: Exception) -> str:
    """Return Slack's code alone: slack_sdk's own text has the whole response."""
    return error_code(error) if isinstance(error, SlackApiError) else str(error)


def _is_answer(error: Exception) -> bool:
    """Return whether Slack answered as documented for this call, rather than being down or busy."""
    if not isinstance(error, SlackApiError):
        return False
    return _status(error) < 500 and error_code(error) not in TRANSIENT | RATE_LIMITED


def client(token: str, api_url: str) -> AsyncWebClient:
    return _MeasuredClient(token=token, base_url=f"{api_url}/")


class Slack:
    """Slack's Web API with rate limits and masking.

    Methods raise SlackBusyError; SlackApiError for transient errors; MessageRejectedError for permanent ones.
    Posts and edits count toward a rate limit that all workers share, unless `limiter` is None. All visible
    text is masked. In the quiet hours of a person, what would notify them is kept by `quiet`.
    """

    def __init__(
        self,
        web: AsyncWebClient,
        limiter: RateLimiter | None = None,
        mask: Mask | None = None,
        quiet: Quiet | None = None,
    ) -> None:
        self._web, self._limiter, self._mask, self._quiet = web, limiter, mask or Mask(), quiet
        self._room_at = 0.0  # for edits: monotonic

    async def open_thread(self, channel: str, message: Message) -> str:
        """Post the first message of a thread and return its ts. Raises NotInChannelError."""
        return await self._post(channel, message)

    async def reply(
        self, channel: str, thread: str, message: Message | str, *, broadcast: bool = False
    ) -> str:
        """Post into a thread and return the message's ts; `broadcast` also shows it in the channel."""
        more = {"reply_broadcast": True} if broadcast else {}
        return await self._post(channel, message, thread_ts=thread, **more)

    async def post(self, channel: str, message: Message, thread: str = "") -> str:
        """Post into a channel or a thread and return the message's ts. Raises NotInChannelError."""
        return await self._post(channel, message, **({"thread_ts": thread} if thread else {}))

    async def open_dm(self, user: str) -> str:
        """Return the channel of direct messages to a user: edits and uploads need it, posts don't."""
        async with self._classified(_posts(user)):
            return str((await self._web.conversations_open(users=user))["channel"]["id"])

    async def permalink(self, channel: str, ts: str) -> str:
        """Return the URL of a message; "" if Slack has none."""
        try:
            return str((await self._web.chat_getPermalink(channel=channel, message_ts=ts))["permalink"])
        except SlackApiError as error:
            log.warning("no permalink for a message in %s: %s", channel, error_code(error))
            return ""

    async def display_names(self, users: Iterable[str]) -> dict[str, str]:
        """Return display names by user id; users that Slack doesn't return are left out."""
        found: dict[str, str] = {}
        for user in users:
            try:
                info = (await self._web.users_info(user=user))["user"]
            except SlackApiError as error:
                log.info("unknown user %s: %s", user, error_code(error))
            else:
                found[user] = info.get("profile", {}).get("display_name") or info["name"]
        return found

    async def profile(self, user: str) -> tuple[str, str]:
        """Return the real name and the email address; each is "" if Slack doesn't return it."""
        try:
            profile = (await self._web.users_info(user=user))["user"].get("profile", {})
        except SlackApiError as error:
            if not _is_answer(error) and error_code(error) != "missing_scope":
                raise await self._exception(error, "users") from error
            log.info("unknown user %s: %s", user, error_code(error))
            return "", ""
        return profile.get("real_name") or "", profile.get("email") or ""

    async def group_members(self, group: str) -> tuple[str, ...]:
        """Return the users of a user group; none if it doesn't exist. Raises SlackApiError."""
        try:
            users = (await self._web.usergroups_users_list(usergroup=group))["users"]
        except SlackApiError as error:
            if error_code(error) != "no_such_subteam":
                raise
            return ()
        return tuple(sorted(map(str, users)))

    async def upload_files(
        self, channel: str, thread: str, text: str, files: Sequence[File], *, at_once: bool = False
    ) -> list[str]:
        """Post one message with files into a thread and return their ids.

        If an upload fails, post the message without files and return [].

        Args:
            at_once: skip the rate limit. For a file that follows a reply of the same reconcile: if it had to
                wait, the reconcile would repeat that reply, which takes the slot the file waits for.
        """
        if not at_once:
            await self._reserve(_posts(channel), thread, POSTS)
        text, quiet = self._unmentioned(text, channel)
        found = list[str]()
        try:
            found = await self._upload(channel, thread, text, files)
        except UPLOAD_ERRORS as error:
            names = ", ".join(file.name for file in files)
            await self._post_without_file(channel, text, names, error, thread_ts=thread)
        await self._keep(quiet, self._mask(text), channel, thread, thread)
        return found

    async def update(self, channel: str, ts: str, message: Message) -> bool:
        """Replace a message's content. Return whether it was deleted; do nothing if it is closed to edits.

        Raises NotInChannelError.
        """
        await self._reserve("edits", ts, EDITS)
        shown = json.dumps(self._content(message))
        written, _ = self._unmentioned(shown, channel)  # edits don't notify: nothing to keep
        edit = partial(self._web.chat_update, channel=channel, ts=ts, parse=PARSE_NONE, blocks=[])
        async with self._classified("edits", NOT_EDITABLE, "a message can't be edited") as ignored:
            await _sent(edit, json.loads(written))
        return not GONE.isdisjoint(ignored)

    async def until_room_for_edits(self) -> float:
        """Return the seconds until one more edit hardly delays others. Redis isn't asked again before."""
        if self._limiter is None:
            return 0.0
        if (left := self._room_at - monotonic()) > 0:
            return left
        wait = min(await self._limiter.until_half_free("edits", EDITS), EDITS.gap * EDITS.burst)
        self._room_at = monotonic() + wait
        return wait

    async def delete(self, channel: str, ts: str) -> None:
        """Delete one of the bot's messages; do nothing if Slack doesn't allow it."""
        await self._reserve("edits", ts, EDITS)
        denied = NOT_EDITABLE | NO_ACCESS | {"cant_delete_message"}
        async with self._classified("edits", denied, "a message can't be deleted"):
            await self._web.chat_delete(channel=channel, ts=ts)

    async def post_ephemeral(
        self,
        user: str,
        message: Message | str,
        response_url: str = "",
        channel: str = "",
        thread: str = "",
    ) -> None:
        """Show a message to one person: under their command, in a thread, or as a direct message.

        A team, whose CI jobs act, can't be shown any.
        """
        if is_team(user):
            return
        shown = self._content(message)
        if response_url and await _post_response(response_url, shown):
            return
        if channel and await self._try_ephemeral(user, channel, thread, shown):
            return
        await self._post(user, message)

    async def notify(self, user: str, message: Message | str) -> None:
        """Send a direct message, which can wait for the end of the person's quiet hours."""
        if self._quiet and self._quiet.name(user):
            await self._quiet.keep(user, self._content(message)["text"])
        else:
            await self._post(user, message)

    async def send_file(self, user: str, text: str, file: File) -> None:
        """Send a direct message with a file; without the file if the upload fails."""
        try:
            # Uploads need a channel id; messages also accept a user id.
            opened = await self._web.conversations_open(users=user)
            await self._upload(opened["channel"]["id"], "", text, [file])
        except UPLOAD_ERRORS as error:
            await self._post_without_file(user, text, file.name, error)

    async def publish_home(self, user: str, view: dict[str, Any]) -> None:
        async with self._classified("homes"):
            await self._web.views_publish(user_id=user, view=masked(view, self._mask))

    async def update_view(self, view: str, content: dict[str, Any]) -> None:
        """Replace the content of an open modal; do nothing if it was closed."""
        async with self._classified("views", {"not_found"}):
            await self._web.views_update(view_id=view, view=masked(content, self._mask))

    async def _try_ephemeral(self, user: str, channel: str, thread: str, shown: dict[str, Any]) -> bool:
        """Return whether it was posted; False if Slack rejects it, as when the user isn't in the channel."""
        with contextlib.suppress(NotInChannelError, MessageRejectedError):
            async with self._classified("ephemerals"):
                await self._web.chat_postEphemeral(
                    channel=channel, user=user, thread_ts=thread or None, **shown
                )
                return True
        return False

    async def _post_without_file(
        self, channel: str, text: str, name: str, error: Exception, **more: Any
    ) -> None:
        """Raises what posting raises: while all of Slack is down, the caller retries with the file."""
        cause, fix = "Slack's file host didn't accept it", "Ask an admin to allow HTTPS to files.slack.com."
        if isinstance(error, SlackApiError):
            found = await self._exception(error, _posts(channel))
            if isinstance(found, SlackBusyError):
                raise found from error
            word = error_code(error)
            cause, fix = f"Slack error {code(word)}", UPLOAD_FIXES.get(word, "")
        log.warning("can't upload %s: %s", name, error)
        note = with_fix(f"Couldn't attach {code(name)}: {cause}.", fix)
        await self._post_now(channel, {"text": f"{cut(self._mask(text))}\n{note}"}, **more)

    async def _post(self, channel: str, message: Message | str, **more: Any) -> str:
        shown = self._content(message)
        await self._reserve(_posts(channel), more.get("thread_ts") or shown["text"][:50], POSTS)
        written, quiet = self._unmentioned(json.dumps(shown), channel)
        ts = await self._post_now(channel, json.loads(written), **more)
        await self._keep(quiet, json.loads(written)["text"], channel, more.get("thread_ts", ""), ts)
        return ts

    def _unmentioned(self, text: str, channel: str) -> tuple[str, set[str]]:
        """Return mrkdwn, also in JSON, with names for mentions in quiet hours, and whose these are.

        A direct message stays as it is: it notifies only its receiver, and only they can open a link.
        """
        if self._quiet is None or direct(channel):
            return text, set()
        found = {user: self._quiet.name(user) for user in MENTION.findall(text)}
        names = {user: name for user, name in found.items() if name}
        return unmentioned(text, names), {*names}

    async def _keep(self, users: set[str], text: str, channel: str, thread: str, ts: str) -> None:
        """Keep a posted message. Without a link if that fails: what calls would post the message again."""
        if self._quiet is None or not users:
            return
        url = ""
        with contextlib.suppress(ClientError, TimeoutError):
            url = await self.permalink(channel, ts)
        for user in sorted(users):
            await self._quiet.keep(user, text, f"{channel} {thread}", url)

    async def _post_now(self, channel: str, shown: dict[str, Any], **more: Any) -> str:
        more |= {"channel": channel, "parse": PARSE_NONE, "unfurl_links": False, "unfurl_media": False}
        async with self._classified(_posts(channel)):
            return str((await _sent(partial(self._web.chat_postMessage, **more), shown))["ts"])

    def _content(self, message: Message | str) -> dict[str, Any]:
        if isinstance(message, str):
            return {"text": cut(self._mask(message))}
        text = {"text": cut(self._mask(message.text))}
        return text | (
            {"blocks": masked(list(message.blocks[:MAX_BLOCKS]), self._mask)} if message.blocks else {}
        )

    async def _upload(self, channel: str, thread: str, text: str, files: Sequence[File]) -> list[str]:
        uploaded = await self._web.files_upload_v2(
            channel=channel,
            thread_ts=thread or None,
            initial_comment=cut(self._mask(text)),
            file_uploads=[await self._uploaded(file) for file in files],
        )
        return [str(each["id"]) for each in uploaded["files"]]

    async def _uploaded(self, file: File) -> dict[str, Any]:
        """Return slack_sdk's form of a file."""
        content = file.content
        if isinstance(content, str):  # can be a whole log
            content = await asyncio.to_thread(self._mask, content)
        return {"filename": file.name, "content": content, "alt_txt": self._mask(file.alt)[:MAX_ALT] or None}

    async def _reserve(self, line: str, who: str, rate: Rate) -> None:
        """Raises SlackBusyError if the rate limit has no slot for this call yet."""
        seconds = await self._limiter.wait(line, who, rate) if self._limiter else 0
        if seconds:
            raise SlackBusyError(seconds)

    @contextlib.asynccontextmanager
    async def _classified(
        self, line: str, ignored: Container[str] = (), what: str = ""
    ) -> AsyncIterator[list[str]]:
        """Raise what callers expect of Slack's errors (`_exception`). Of the ignored ones, log `what`.

        Yields a list, which gets the ignored one.
        """
        found = list[str]()
        try:
            yield found
        except SlackApiError as error:
            found.append(error_code(error))
            if found[0] not in ignored:
                raise await self._exception(error, line) from error
            if what:
                log.warning("%s: %s", what, found[0])

    async def _exception(self, error: SlackApiError, line: str) -> Exception:
        """Return the exception to raise. A rate limit blocks `line`, and no other calls, for all workers."""
        word, status = error_code(error), _status(error)
        if word in RATE_LIMITED or status == 429:
            header = error.response.headers.get("Retry-After", "")
            seconds = float(header) if header.isdecimal() else RETRY.seconds()
            if self._limiter:
                await self._limiter.hold(line, seconds)
            return SlackBusyError(seconds)
        if word in NO_ACCESS:
            return NotInChannelError(word)
        return (
            error
            if word in TRANSIENT or word.startswith("HTTP ") or status >= 500
            else MessageRejectedError(word)
        )


async def _sent(call: Callable[..., Awaitable[Any]], shown: dict[str, Any]) -> Any:
    """Send a message; if Slack never accepts its form, its text alone. Return the answer."""
    try:
        return await call(**shown)
    except SlackApiError as error:
        text = shown["text"]
        is_long = len(text.encode()) > MAX_MESSAGE  # a character has up to 4 bytes
        plain = cut(text, MAX_MESSAGE // 4) if is_long else text
        if error_code(error) not in INVALID_FORM or shown == {"text": plain}:
            raise
        log.warning("Slack rejected a message, sent as plain text: %s: %s", error.response.data, shown)
    return await call(text=plain)


async def _post_response(url: str, shown: dict[str, Any]) -> bool:
    """Return whether Slack accepted it: a response_url is valid for 30 min and five messages."""
    try:
        response = await AsyncWebhookClient(url).send(
            response_type="ephemeral", replace_original=False, **shown
        )
    except (ClientError, TimeoutError) as error:
        log.warning("response_url failed: %s", error)
        return False
    return response.status_code == 200


def _posts(channel: str) -> str:
    return f"posts:{channel}"
