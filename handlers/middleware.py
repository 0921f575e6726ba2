"""Admit or reject every Slack request before its handler runs (other workspaces, guests, what bots post,
edits), and show the denial.

In a Slack Connect channel, users of other companies see the bot and its buttons. Slack signs its requests, so
their user and workspace are reliable; only users.info reports guests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic

from slack_bolt.async_app import AsyncAck, AsyncBoltRequest, AsyncRespond
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.config.permissions import Visitor, entry_denial
from bot.platform.runtime.audit import audit
from bot.platform.slack.blocks import modal, section
from bot.platform.slack.client import error_code
from handlers.context import SLACK_ERRORS, Body, HandlerContext

log = logging.getLogger(__name__)
SLACK_TIMEOUT = 1.0  # seconds for one call; Slack waits 3 for an acknowledgment
CACHE_TTL = 3600.0  # seconds
MAX_CACHED = 10_000  # users
GONE = {"user_not_found", "user_not_visible"}  # errors of users.info


class Admission(AsyncMiddleware):
    """Middleware that rejects users. For a function, Bolt would compute all arguments that one can have."""

    def __init__(self, handlers: HandlerContext) -> None:
        self._handlers, self._guests = handlers, Guests()

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,  # noqa: ARG002
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002
    ) -> BoltResponse | None:
        body, context, config = req.body, req.context, self._handlers.config
        client, event = context.client, req.body.get("event", {})
        if event.get("type") == "message" and not is_said(event):
            return await context.ack()
        who, found = visitor(body), context.authorize_result  # of auth.test: the app's own workspace
        home = Visitor(
            user="", team=(found and found.team_id) or "", enterprise=(found and found.enterprise_id) or ""
        )
        refusal = entry_denial(who, home, config)
        if not refusal and not config.guests and not config.names(who.user):
            refusal = entry_denial(await self._guests.look_up(client, who), home, config)
        if not refusal:
            await next()
            return None
        workspace = who.team or who.enterprise
        audit.info("user=%s workspace=%s result=rejected reason=%s", who.user, workspace, refusal)
        await _send(body, client, context.respond, refusal)
        return await _answer(body, context.ack, refusal)


def is_said(event: Body) -> bool:
    """Return whether a person said this: Slack also reports edits, what bots post, and its own notes."""
    is_note = event.get("subtype") not in {None, "file_share", "thread_broadcast"}
    return not (event.get("bot_id") or event.get("edited") or is_note)


def visitor(body: Body) -> Visitor:
    """Return the request's user and workspace; an Enterprise Grid's id can take the workspace's place."""
    event, user = body.get("event"), body.get("user")
    place: Body = body["team"] if isinstance(body.get("team"), dict) else {}
    grid = body.get("enterprise_id") or place.get("enterprise_id") or (body.get("enterprise") or {}).get("id")
    received = Visitor(user="", team=body.get("team_id") or place.get("id", ""), enterprise=str(grid or ""))
    if isinstance(event, dict):
        who, team = event.get("user", ""), event.get("user_team") or event.get("team")
    elif isinstance(user, dict):
        who, team = user.get("id", ""), user.get("team_id")
    else:
        return replace(received, user=body.get("user_id", ""))
    if team in {None, "", received.team}:
        return replace(received, user=who)
    return Visitor(user=who, team=team)


class Guests:
    """Look up guests in Slack, at most once an hour for each user."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Visitor, float]] = {}

    async def look_up(self, client: AsyncWebClient, who: Visitor, *, from_slack: bool = True) -> Visitor:
        """Set `guest`, `deactivated`, and `name` from users.info; if that fails, keep the last known values.

        `from_slack`: whether Slack sent the request, which shows that it still has the user.
        """
        known, until = self._known.get(who.user, (who, 0.0))
        if monotonic() < until:
            return known
        try:
            async with asyncio.timeout(SLACK_TIMEOUT):
                user = (await client.users_info(user=who.user))["user"]
        except SLACK_ERRORS as error:
            if not from_slack and isinstance(error, SlackApiError) and error_code(error) in GONE:
                return replace(who, deactivated=True)
            log.info("can't look up whether %s is a guest: %s", who.user, error)
            return known
        guest = bool(user.get("is_restricted") or user.get("is_ultra_restricted"))
        deactivated, name = bool(user.get("deleted")), str(user.get("name") or "")
        found = replace(who, guest=guest, deactivated=deactivated, name=name)
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        self._known[who.user] = (found, monotonic() + CACHE_TTL)
        return found


async def _send(body: Body, client: AsyncWebClient, respond: AsyncRespond | None, refusal: str) -> None:
    """Post the denial where the acknowledgment can't carry it."""
    event = body.get("event", {})
    try:
        async with asyncio.timeout(SLACK_TIMEOUT):
            if event.get("type") == "app_home_opened" and event.get("tab") == "home":
                view = {"type": "home", "blocks": [section(refusal)]}
                await client.views_publish(user_id=event["user"], view=view)
            elif event.get("type") in {"app_mention", "message"}:
                where = {"channel": event["channel"], "thread_ts": event.get("thread_ts")}
                await client.chat_postEphemeral(**where, user=event["user"], text=refusal)
            elif body.get("type") == "block_actions" and body.get("response_url") and respond:
                await respond(text=refusal, response_type="ephemeral", replace_original=False)
    except SLACK_ERRORS as error:
        log.warning("can't post a denial: %s", error)


async def _answer(body: Body, ack: AsyncAck, refusal: str) -> BoltResponse:
    match body.get("type"):
        case "view_submission":
            return await ack(response_action="update", view=modal("Sweepbot", [section(refusal)]))
        case "block_suggestion":
            return await ack(options=[])
        case None:
            return await ack(text=refusal)
        case _:
            return await ack()
