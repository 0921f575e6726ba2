"""Handle /env, its forms, and the buttons of environments: check the syntax, queue, and acknowledge."""

import asyncio
import logging
from dataclasses import replace

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.errors import UserError
from bot.core.ids import candidates
from bot.platform.config.environments import NAME
from bot.platform.slack.blocks import View, modal, section, user_name
from bot.platform.slack.mrkdwn import code
from bot.text.wording import IF_NOTHING_APPEARS
from bot.workspaces.environments import message
from bot.workspaces.environments.access import LOADING, OPEN_LINK, saying
from bot.workspaces.environments.command_line import HELP, TABLE, parse
from bot.workspaces.environments.form import (
    DELETE_HOME_FORM,
    FORM,
    delete_home_form,
    errors_of,
    form,
    read_form,
    request_of,
    started,
    typed_home,
)
from bot.workspaces.environments.permissions import NOT_CONFIGURED, start_denial
from bot.workspaces.environments.requests import ITEM, KEEP, EnvironmentRequest, Verb, dump, write_audit
from bot.workspaces.services.form import SERVICE_FORM
from handlers.any_wording import add_command
from handlers.buttons import Handler, tell
from handlers.context import (
    ACK_TIMEOUT,
    NOT_OPENED,
    SLACK_ERRORS,
    Body,
    HandlerContext,
    request_id_of,
    stored,
    trigger_of,
)
from handlers.slash_env_service import answer_service, service_submitted, updated

log = logging.getLogger(__name__)
BUTTONS = {
    message.KEEP: Verb.KEEP,
    message.STOP: Verb.STOP,
    message.START: Verb.START,
    message.DELETE: Verb.DELETE,
}
QUEUED = "Request sent. The environment's message shows the result."
LISTING = f"Looking up environments… {IF_NOTHING_APPEARS}"


def add_env(app: AsyncApp, context: HandlerContext) -> None:
    add_command(app, context, TABLE, answer_env)
    for action, verb in BUTTONS.items():
        app.action(action, matchers=[names_an_environment])(_on_click(context, verb))

    @app.action(message.OPEN, matchers=[names_an_environment])
    async def open_details(
        ack: AsyncAck, client: AsyncWebClient, respond: AsyncRespond, body: Body, action: Body
    ) -> None:
        try:
            await _open(context, client, body["trigger_id"], _clicked(body, action, Verb.OPEN))
        except (RedisError, *SLACK_ERRORS):
            log.exception("failed to open an environment's modal")
            await tell(respond, body, NOT_OPENED)
        await ack()

    @app.action(OPEN_LINK)
    async def opened(ack: AsyncAck) -> None:
        """Slack requires an ack, although the browser has already opened the link."""
        await ack()

    @app.view(FORM)
    async def submitted(ack: AsyncAck, body: Body) -> None:
        await ack(**await _submitted(context, body))

    @app.view(SERVICE_FORM)
    async def service(ack: AsyncAck, body: Body) -> None:
        await ack(**await service_submitted(context, body))

    @app.view(DELETE_HOME_FORM)
    async def deleted(ack: AsyncAck, body: Body) -> None:
        await ack(**await _delete_home(context, body))


async def names_an_environment(action: Body) -> bool:
    """Ignore forged values."""
    return bool(NAME.fullmatch(action.get("value", "")))


async def answer_env(context: HandlerContext, command: Body, client: AsyncWebClient) -> str:
    """Return the acknowledgment; "" if a modal opened. Raises UserError, RedisError, SLACK_ERRORS."""
    config, text = context.config.environments, command.get("text", "")
    if config is None:
        return NOT_CONFIGURED
    typed, _ = TABLE.find(text)
    request = _request(command)
    if typed.name.startswith("service"):
        answer = await answer_service(context, text, request, config)
        return answer if isinstance(answer, str) else await _show(client, trigger_of(command), answer)
    if typed.name == "help":
        return HELP
    if not typed.name:
        if refusal := start_denial(request.user, request.channel, context.config):
            return refusal
        return await _show(
            client, trigger_of(command), form(request.channel, config, context.config.profiles)
        )
    request = parse(text, request, config, context.config.profiles)
    if request.verb is Verb.DELETE_HOME:
        return await _show(client, trigger_of(command), delete_home_form(request.name))
    if request.verb is Verb.OPEN:
        return await _open(context, client, trigger_of(command), request)
    return await _queue(context, request)


async def _show(client: AsyncWebClient, trigger: str, view: View) -> str:
    async with asyncio.timeout(ACK_TIMEOUT):
        await client.views_open(trigger_id=trigger, view=view)
    return ""


async def _open(
    context: HandlerContext, client: AsyncWebClient, trigger: str, request: EnvironmentRequest
) -> str:
    """Open the modal at once, because Slack allows 3 seconds; a worker fills it."""
    async with asyncio.timeout(ACK_TIMEOUT):
        opened = await client.views_open(trigger_id=trigger, view=saying(LOADING))
        await context.add_request(str(ITEM), dump(replace(request, view=opened["view"]["id"])), ttl=KEEP)
    return ""


async def _queue(context: HandlerContext, request: EnvironmentRequest) -> str:
    if request.verb is Verb.START:
        if refusal := start_denial(request.user, request.channel, context.config):
            write_audit(request, request.name, refusal)
            return refusal
        request = _with_name(request)
    await context.add_request(str(ITEM), dump(request), ttl=KEEP)
    if request.verb is Verb.LIST:
        return LISTING
    if request.verb is Verb.START:
        name = code(request.name or request.suggested)
        return f"Starting {name}… A message in this channel shows the progress."
    return QUEUED


def _with_name(request: EnvironmentRequest) -> EnvironmentRequest:
    """Suggest a name if none is given, the same for a repeated delivery."""
    if request.name:
        return request
    head = request.user_name or "env"
    return replace(request, suggested=next(candidates(head, request.request_id, 1)))


def _request(command: Body) -> EnvironmentRequest:
    return EnvironmentRequest(
        verb=Verb.LIST,
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
        request_id=request_id_of(command),
    )


def _clicked(body: Body, action: Body, verb: Verb) -> EnvironmentRequest:
    user = body["user"]
    return EnvironmentRequest(
        verb=verb,
        user=user["id"],
        user_name=user_name(user),
        channel=body.get("container", {}).get("channel_id", ""),
        response_url=body.get("response_url", ""),
        request_id=body["trigger_id"],
        name=action["value"],
        hours=message.KEEP_HOURS if verb is Verb.KEEP else 0,
    )


def _on_click(context: HandlerContext, verb: Verb) -> Handler:
    async def click(ack: AsyncAck, respond: AsyncRespond, body: Body, action: Body) -> None:
        request = _clicked(body, action, verb)
        if failure := await stored("an env click", context.add_request(str(ITEM), dump(request), ttl=KEEP)):
            await tell(respond, body, failure)
        await ack()

    return click


async def _submitted(context: HandlerContext, body: Body) -> Body:
    """Queue the form's request. Return the response to Slack."""
    config, profiles = context.config.environments, context.config.profiles
    if config is None:
        return updated(_notice(NOT_CONFIGURED))
    try:
        request = _with_name(read_form(body["view"], request_of(body), config, profiles))
    except UserError as error:
        return {"response_action": "errors", "errors": errors_of(error)}
    refusal = start_denial(request.user, request.channel, context.config)
    if refusal:
        write_audit(request, request.name, refusal)
    refusal = refusal or await stored("an env form", context.add_request(str(ITEM), dump(request), ttl=KEEP))
    if refusal:
        return updated(form(request.channel, config, profiles, refusal))
    return updated(started(request.name or request.suggested, request.gpus or 0))


async def _delete_home(context: HandlerContext, body: Body) -> Body:
    """Queue the deletion if the home's name was typed. Return the response to Slack."""
    try:
        home = typed_home(body["view"])
    except UserError as error:
        return {"response_action": "errors", "errors": {"typed": str(error)}}
    request = EnvironmentRequest(verb=Verb.DELETE_HOME, user=body["user"]["id"], name=home)
    failure = await stored("a home deletion", context.add_request(str(ITEM), dump(request), ttl=KEEP))
    return updated(_notice(failure or f"Deleting home {code(home)}… The result is sent by direct message."))


def _notice(text: str) -> View:
    return modal("Environments", [section(text)])
