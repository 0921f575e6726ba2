"""Who comes in at all: every request passes here first, whatever it asks for.

In a channel shared by Slack Connect, people of other companies see the bot and its buttons. Slack's requests
are signed, so what they say of a person holds; whether somebody is a guest only users.info says.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncBoltContext, AsyncRespond
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.config.permissions import Visitor, entry_denial
from bot.runtime.audit import audit
from bot.slack.blocks import modal, section
from handlers.context import NOT_SAID, HandlerContext

log = logging.getLogger(__name__)

Body = dict[str, Any]
Middleware = Callable[..., Awaitable[BoltResponse | None]]
PATIENCE = 1.0  # seconds for one call of Slack, of the three that it waits for an answer
KEPT = 3600.0  # seconds that somebody is known to be a guest, or none
MOST = 10_000  # people that are kept


def admitting(handlers: HandlerContext) -> Middleware:
    guests = Guests()

    async def report_failure(
        body: Body,
        context: AsyncBoltContext,
        client: AsyncWebClient,
        ack: AsyncAck,
        respond: AsyncRespond,
        next: Callable[[], Awaitable[None]],  # noqa: A002 - Bolt gives it by this name
    ) -> BoltResponse | None:
        who, home, config = visitor(body), _home(context), handlers.config
        refusal = entry_denial(who, home, config)
        if not refusal and not config.guests and not config.names(who.user):
            refusal = entry_denial(await guests.look(client, who), home, config)
        if not refusal:
            await next()
            return None
        audit.info("%s of %s is turned away: %s", who.user, who.team or who.enterprise, refusal)
        await _tell(body, client, respond, refusal)
        return await _answer(body, ack, refusal)

    return report_failure


def visitor(body: Body) -> Visitor:
    """Who asks, and of which workspace; of an Enterprise Grid, its id may stand in place of that."""
    event, user = body.get("event"), body.get("user")
    place: Body = body["team"] if isinstance(body.get("team"), dict) else {}
    received = Visitor(
        user="", team=body.get("team_id") or place.get("id", ""), enterprise=_enterprise(body, place)
    )
    if isinstance(event, dict):
        who, team = event.get("user", ""), event.get("user_team") or event.get("team")
    elif isinstance(user, dict):
        who, team = user.get("id", ""), user.get("team_id")
    else:
        return replace(received, user=body.get("user_id", ""))
    if team in {None, "", received.team}:
        return replace(received, user=who)
    return Visitor(user=who, team=team)


def _enterprise(body: Body, place: Body) -> str:
    named = body.get("enterprise") or {}
    return str(body.get("enterprise_id") or place.get("enterprise_id") or named.get("id") or "")


def _home(context: AsyncBoltContext) -> Visitor:
    """The app's own workspace, as auth.test says."""
    found = context.authorize_result
    return Visitor(
        user="", team=(found and found.team_id) or "", enterprise=(found and found.enterprise_id) or ""
    )


class Guests:
    """Asks Slack who is a guest, at most once an hour for each person."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Visitor, float]] = {}

    async def look(self, client: AsyncWebClient, who: Visitor) -> Visitor:
        """With what users.info says; as it came while that does not answer: most people are no guests."""
        known, until = self._known.get(who.user, (who, 0.0))
        if monotonic() < until:
            return known
        try:
            async with asyncio.timeout(PATIENCE):
                user = (await client.users_info(user=who.user))["user"]
        except NOT_SAID as error:
            log.info("whether %s is a guest is unknown: %s", who.user, error)
            return known
        guest = bool(user.get("is_restricted") or user.get("is_ultra_restricted"))
        found = replace(who, guest=guest)
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[who.user] = (found, monotonic() + KEPT)
        return found


async def _tell(body: Body, client: AsyncWebClient, respond: AsyncRespond, refusal: str) -> None:
    """Where an acknowledgment can't carry it."""
    event = body.get("event", {})
    try:
        async with asyncio.timeout(PATIENCE):
            if event.get("type") == "app_mention":
                await client.chat_postEphemeral(channel=event["channel"], user=event["user"], text=refusal)
            elif body.get("type") == "block_actions" and body.get("response_url"):
                await respond(text=refusal, response_type="ephemeral", replace_original=False)
    except NOT_SAID as error:
        log.warning("somebody can't be told of being turned away: %s", error)


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
