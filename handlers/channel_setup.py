"""Handlers of /sweep setup and of a new user's choice of a team; a worker stores both."""

import asyncio
import logging
from contextlib import suppress

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.config.permissions import doctor_denial
from bot.platform.slack.blocks import modal, section
from bot.platform.slack.mrkdwn import direct
from bot.sweep.channels.models import ChannelSetup
from bot.sweep.channels.store import REQUESTS, SetupRequest, dump
from bot.sweep.channels.views import SETUP_FORM, TEAM_CHOICE, ZONE, read_setup, saving, setup_form, zones
from handlers.buttons import tell
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, Body, HandlerContext, stored, trigger_of

log = logging.getLogger(__name__)

NOT_LOADED = "Settings aren't loaded yet. Try again in a few seconds."


def add_setup(app: AsyncApp, context: HandlerContext) -> None:
    @app.options(ZONE)
    async def offered(ack: AsyncAck, body: Body) -> None:
        await ack(options=zones(body.get("value", "")))

    @app.view(SETUP_FORM)
    async def submitted(ack: AsyncAck, body: Body) -> None:
        channel, settings = read_setup(body["view"])
        request = SetupRequest(
            user=body["user"]["id"], channel=channel, settings=settings, view=body["view"]["id"]
        )
        refusal = doctor_denial(request.user, context.config)
        refusal = refusal or await stored("a setup", context.add_request(str(REQUESTS), dump(request)))
        answer = modal("Set up this channel", [section(refusal)]) if refusal else saving()
        await ack(response_action="update", view=answer)

    @app.action(TEAM_CHOICE)
    async def chosen(ack: AsyncAck, body: Body, action: Body, respond: AsyncRespond) -> None:
        await ack()
        request = SetupRequest(user=body["user"]["id"], team=action["selected_option"]["value"])
        if trouble := await stored("a setup", context.add_request(str(REQUESTS), dump(request))):
            await tell(respond, body, trouble)


async def open_setup(context: HandlerContext, web: AsyncWebClient, command: Body) -> str:
    """Open the setup form. Return an error, or ""."""
    channel = command["channel_id"]
    if refusal := doctor_denial(command["user_id"], context.config):
        return refusal
    if direct(channel):
        return "Run `/sweep setup` in the channel you want to set up."
    if not context.channel_setup.loaded:
        with suppress(RedisError):
            await context.channel_setup.refresh()
    if not context.channel_setup.loaded:
        return NOT_LOADED
    settings = context.channel_setup.setup.channels.get(channel, ChannelSetup())
    try:
        async with asyncio.timeout(ACK_TIMEOUT):
            view = setup_form(channel, settings, context.config)
            await web.views_open(trigger_id=trigger_of(command), view=view)
    except SLACK_ERRORS as error:
        log.warning("can't open the setup form: %r", error)
        return "Slack couldn't open the form. Run `/sweep setup` again."
    return ""
