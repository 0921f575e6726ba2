"""Handle /env service and its form: check the syntax, queue, and acknowledge."""

from dataclasses import replace
from typing import Any

from bot.core.errors import UserError
from bot.platform.config.environments import EnvironmentConfig
from bot.platform.slack.blocks import View, modal, section
from bot.platform.slack.mrkdwn import code
from bot.text.wording import IF_NOTHING_APPEARS
from bot.workspaces.environments.command_line import SERVICE_HELP, SERVICE_TABLE, parse_service
from bot.workspaces.environments.form import request_of, started
from bot.workspaces.environments.permissions import NO_SERVICES, service_start_denial
from bot.workspaces.environments.requests import (
    ITEM,
    KEEP,
    EnvironmentRequest,
    Verb,
    dump,
    write_audit,
)
from bot.workspaces.services.form import TITLE, read_service_form, service_errors, service_form
from handlers.context import HandlerContext, stored

LISTING = f"Looking up services… {IF_NOTHING_APPEARS}"
QUEUED = "Request sent. The service's message shows the result."


async def answer_service(
    context: HandlerContext, text: str, request: EnvironmentRequest, config: EnvironmentConfig
) -> str | View:
    """Return the acknowledgment, or the form to open. Raises UserError, RedisError, TimeoutError."""
    if config.services is None:
        return NO_SERVICES
    if SERVICE_TABLE.find(text)[0].name == "service help":
        return SERVICE_HELP
    parsed = parse_service(text, request, config.services)
    starts = parsed is None or parsed.verb is Verb.START
    if starts and (refusal := service_start_denial(request.user, request.channel, context.config)):
        write_audit(parsed or replace(request, verb=Verb.START), parsed.name if parsed else "", refusal)
        return refusal
    if parsed is None:
        return service_form(request.channel, config.services)
    await context.add_request(str(ITEM), dump(parsed), ttl=KEEP)
    if parsed.verb is Verb.LIST:
        return LISTING
    if parsed.verb is Verb.DELETE:
        return QUEUED
    return f"Starting {code(parsed.name)}… A message in this channel shows the progress."


async def service_submitted(context: HandlerContext, body: dict[str, Any]) -> dict[str, Any]:
    """Queue the form's request. Return the response to Slack."""
    config = context.config.environments
    request = request_of(body)
    refusal = service_start_denial(request.user, request.channel, context.config)
    if config is None or refusal:
        write_audit(request, "", refusal)
        return updated(modal(TITLE, [section(refusal)]))
    try:
        name, service = read_service_form(body["view"], config.services)
    except UserError as error:
        return {"response_action": "errors", "errors": service_errors(body["view"], error)}
    request = replace(request, name=name, service=service)
    if failure := await stored("a service form", context.add_request(str(ITEM), dump(request), ttl=KEEP)):
        return updated(service_form(request.channel, config.services, failure))
    return updated(started(name, service.gpus * service.replicas, TITLE))


def updated(view: View) -> dict[str, Any]:
    """Return the response to Slack that replaces a submitted form."""
    return {"response_action": "update", "view": view}
