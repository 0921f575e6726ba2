"""Handle /env service and its form: check the syntax, queue, and acknowledge."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck

from bot.config.environments import EnvironmentConfig
from bot.core.errors import UserError
from bot.environments.form import request_of, started
from bot.environments.permissions import NO_SERVICES, service_start_denial
from bot.environments.requests import EnvironmentRequest, Verb, with_command, write_audit
from bot.services.command_line import HELP, parse_service
from bot.services.form import TITLE, read_service_form, service_errors, service_form
from bot.slack.blocks import View, modal, section
from bot.slack.mrkdwn import code
from handlers.buttons import Handler
from handlers.context import ACK_TIMEOUT, HandlerContext, unconfirmed

log = logging.getLogger(__name__)

LISTING = "Looking up services… If nothing appears in a few seconds, no worker is running."
QUEUED = "Request sent. The service's message shows the result."


async def answer_service(
    context: HandlerContext, text: str, request: EnvironmentRequest, config: EnvironmentConfig
) -> str | View:
    """Return the acknowledgment, or the form to open. Raises UserError, RedisError, TimeoutError."""
    if config.services is None:
        return NO_SERVICES
    if text == "help":
        return HELP
    command = parse_service(text, config.services)
    parsed = with_command(request, command) if command else None
    starts = parsed is None or parsed.verb is Verb.START
    if starts and (refusal := service_start_denial(request.user, request.channel, context.config)):
        write_audit(parsed or replace(request, verb=Verb.START), parsed.name if parsed else "", refusal)
        return refusal
    if parsed is None:
        return service_form(request.channel, config.services)
    await _queue(context, parsed)
    if parsed.verb is Verb.LIST:
        return LISTING
    if parsed.verb is Verb.DELETE:
        return QUEUED
    return f"Starting {code(parsed.name)}… A message in this channel shows the progress."


def on_service_form(context: HandlerContext) -> Handler:
    async def submitted(ack: AsyncAck, body: dict[str, Any]) -> None:
        await ack(**await _submitted(context, body))

    return submitted


async def _submitted(context: HandlerContext, body: dict[str, Any]) -> dict[str, Any]:
    """Queue the form's request. Return the response to Slack."""
    config = context.config.environments
    request = request_of(body)
    refusal = service_start_denial(request.user, request.channel, context.config)
    if config is None or refusal:
        write_audit(request, "", refusal)
        return _updated(modal(TITLE, [section(refusal)]))
    try:
        request = with_command(request, read_service_form(body["view"], config.services))
        await _queue(context, request)
    except UserError as error:
        return {"response_action": "errors", "errors": service_errors(body["view"], error)}
    except (RedisError, TimeoutError) as error:
        log.exception("failed to queue the form of a service")
        return _updated(service_form(request.channel, config.services, unconfirmed(error)))
    gpus = request.service.gpus * request.service.replicas if request.service else 0
    return _updated(started(request.name, gpus, TITLE))


async def _queue(context: HandlerContext, request: EnvironmentRequest) -> None:
    async with asyncio.timeout(ACK_TIMEOUT):
        await context.environments.add(request)


def _updated(view: View) -> dict[str, Any]:
    return {"response_action": "update", "view": view}
