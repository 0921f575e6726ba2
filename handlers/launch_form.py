"""Handle the launch form, from opening to Launch; a worker reads git."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.commands import Action, AuditEntry
from bot.core.errors import UserError
from bot.core.request import Requester, SweepRequest
from bot.measure.gpus import snapshot_store
from bot.platform.config.permissions import launch_denial
from bot.platform.config.policy import Config, repository
from bot.platform.runtime.audit import write_entry
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.platform.slack.blocks import SUBMISSION_DELAY, user_name
from bot.platform.slack.mrkdwn import plain
from bot.sweep.form.drafts import SubmittedForm, item
from bot.sweep.form.preview import previewed_commit
from bot.sweep.form.view import (
    BRANCH_MENU,
    CHECK_AGAIN,
    EDIT,
    FORM,
    LAUNCH,
    MORE,
    REPO_MENU,
    TOGGLE_INLINE,
    Draft,
    checking,
    errors_by_block,
    expired,
    form,
    launched,
    read,
    request,
)
from bot.sweep.launch.command_line import own_options
from bot.sweep.launch.options import EXAMPLE
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, UNREACHABLE, Body, HandlerContext, unconfirmed_reply

log = logging.getLogger(__name__)
NOT_OPENED = (
    f"Slack couldn't open the form. Run `/sweep` again, or start directly: {EXAMPLE}. "
    "All commands: `/sweep help`."
)
TOO_LONG = f"Checking the space took more than {ACK_TIMEOUT:g} s. Try again, or commit it as a file."
EXPIRED = "This form has expired. Run `/sweep` again; it's prefilled from your last sweep."


def add_form(app: AsyncApp, context: HandlerContext) -> None:
    app.view(FORM)(_on_form(context))
    for action in (REPO_MENU, BRANCH_MENU, TOGGLE_INLINE, MORE):
        app.action(action)(_on_choice(context))

    @app.view(LAUNCH)
    async def launch(ack: AsyncAck, body: Body) -> None:
        await ack(response_action="update", view=await _launched(context, body["view"]))

    @app.action(EDIT)
    async def edit(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        await ack()
        filled = await _mark_left(context, body["view"]["id"])
        draft = filled.draft if filled else read(body["view"])
        await _redraw(client, body["view"], form(draft, context.config))

    @app.action(CHECK_AGAIN)  # no worker responded, or the branch has moved
    async def check_again(ack: AsyncAck, body: Body, client: AsyncWebClient) -> None:
        view = body["view"]
        if await context.drafts.get(view["id"]):
            await context.queue.add(item(view["id"]))
        else:
            await _redraw(client, view, expired(read(view), EXPIRED))
        await ack()


async def open_form(
    context: HandlerContext,
    web: AsyncWebClient,
    trigger: str,
    user: str,
    channel: str,
    options: dict[str, str],
    note: str = "",
) -> str:
    """Open the form, prefilled from the last sweep and the typed options. Return an error, or "".

    `note`: one line about what wasn't understood.
    """
    try:
        async with asyncio.timeout(ACK_TIMEOUT):
            draft = await _draft(context, web, user, channel, options)
            await _refresh_menus(context, draft)
            await web.views_open(trigger_id=trigger, view=form(draft, context.config, {"": plain(note)}))
    except (RedisError, *SLACK_ERRORS) as error:
        log.warning("can't open the form: %s", error)
        return UNREACHABLE if isinstance(error, RedisError) else NOT_OPENED
    return ""


async def _draft(
    context: HandlerContext, web: AsyncWebClient, user: str, channel: str, options: dict[str, str]
) -> Draft:
    """Return the prefilled draft. Without a channel (home tab): the last sweep's, or direct messages."""
    last = await context.drafts.last(user) or Draft(channel="")
    own = context.config.channel_repos.get(channel)
    repo = options.get("repo") or own or last.options.get("repo") or context.config.repositories[0].name
    if not (channel or last.channel):  # edits need a conversation id; a user id only works for posts
        channel = (await web.conversations_open(users=user))["channel"]["id"]
    if repo != last.options.get("repo", context.config.repositories[0].name):
        last = Draft(channel=last.channel)  # its branches and spaces are of another repository
    inline = last.inline and not options.keys() & {"space", "seeds"}
    earlier = last.without("seeds") if "space" in options else last
    mine = {name: value.value for name, value in own_options(user, context.config).items()}
    known = {**earlier.options, **mine, **options, "repo": repo}
    return Draft(options=known, channel=channel or last.channel, inline=inline)


async def _refresh_menus(context: HandlerContext, draft: Draft) -> None:
    """Refresh the menus' data before they are opened."""
    try:
        url = repository(draft.options.get("repo"), context.config).url
    except UserError:
        return
    await context.queue.add(snapshot_store.ITEM)
    await context.catalog.names(url, wait=0)
    if branch := draft.options.get("branch"):
        await context.catalog.names(url, branch, wait=0)


def _on_choice(context: HandlerContext) -> Callable[..., Awaitable[None]]:
    """Update the form after a change of repository or branch, an inline space, or for more options."""

    async def chosen(ack: AsyncAck, body: Body, client: AsyncWebClient, action: Body) -> None:
        await ack()
        view = body["view"]
        draft = read(view)
        if action["action_id"] == REPO_MENU:
            draft = draft.without("branch", "space")
        elif action["action_id"] == TOGGLE_INLINE:
            draft = replace(draft, inline=not draft.inline)
        elif action["action_id"] == MORE:
            draft = replace(draft, more=True)
        try:
            await _refresh_menus(context, draft)
        except (RedisError, TimeoutError):
            log.warning("can't refresh the menus: Redis isn't responding")
        await _redraw(client, view, form(draft, context.config))

    return chosen


async def _redraw(client: AsyncWebClient, old: Body, new: Body) -> None:
    try:
        async with asyncio.timeout(ACK_TIMEOUT):  # the click is acknowledged only after this
            await client.views_update(view_id=old["id"], hash=old["hash"], view=new)
    except SLACK_ERRORS as error:  # the view was closed, or updated by another click
        log.info("form not updated: %r", error)


def refused_launch(context: HandlerContext, user: str, channel: str, via: str = "") -> str:
    """Return why this user can't start sweeps here; a worker also checks the sweep's size."""
    if refusal := launch_denial(user, channel, context.config):
        about = f"in {channel}"
        entry = AuditEntry(
            at=context.now(), user=user, action=Action.LAUNCH, about=about, refused=refusal, via=via
        )
        write_entry("", entry)
    return refusal


def _on_form(context: HandlerContext) -> Callable[..., Awaitable[None]]:
    async def submitted(ack: AsyncAck, body: Body) -> None:
        view, user = body["view"], body["user"]
        draft = read(view)
        parsed, errors = await _parsed(draft, context.config)
        if parsed is None:
            await ack(response_action="errors", errors=errors_by_block(view, errors))
        elif refusal := refused_launch(context, user["id"], draft.channel):
            await ack(response_action="update", view=form(draft, context.config, {"": refusal}))
        else:
            name = user_name(user)
            filled = SubmittedForm(draft=draft, request=parsed, user=user["id"], user_name=name)
            await ack(response_action="update", view=await _queue_check(context, view["id"], filled))

    return submitted


async def _parsed(draft: Draft, config: Config) -> tuple[SweepRequest | None, dict[str, str]]:
    """Return the request, or None and errors by key. A space can hold 3,000 characters of YAML."""
    try:
        async with asyncio.timeout(ACK_TIMEOUT):
            return await run_in_parser_thread(request, draft, config)
    except TimeoutError:
        return None, {"text": TOO_LONG}


async def _queue_check(context: HandlerContext, view_id: str, filled: SubmittedForm) -> Body:
    """Store the form and queue its preview. Return the view to show meanwhile."""
    try:
        async with asyncio.timeout(ACK_TIMEOUT):
            await context.drafts.save(view_id, filled)
            await context.queue.add_after(item(view_id), SUBMISSION_DELAY)
    except (RedisError, TimeoutError) as error:
        log.exception("failed to queue a form")
        return form(filled.draft, context.config, {"": unconfirmed_reply(error)})
    return checking(filled.draft)


async def _launched(context: HandlerContext, view: Body) -> Body:
    """Launch the previewed sweep. The view id is the request id: a second press starts no second sweep."""
    try:
        async with asyncio.timeout(ACK_TIMEOUT):
            filled = await _mark_left(context, view["id"])
        if filled is None:
            return expired(read(view), EXPIRED)
        requester = Requester(user=filled.user, user_name=filled.user_name, channel=filled.draft.channel)
        previewed = replace(filled.request, commit=previewed_commit(view))
        record = await context.create_sweep(previewed, requester, view["id"])
    except (RedisError, TimeoutError) as error:
        log.exception("failed to launch a form")
        return expired(read(view), unconfirmed_reply(error))
    return launched(filled.draft, record.id)


async def _mark_left(context: HandlerContext, view_id: str) -> SubmittedForm | None:
    """Return the submitted form, and mark it as left so that no late preview replaces the view."""
    if filled := await context.drafts.get(view_id):
        await context.drafts.save(view_id, replace(filled, left=True))
    return filled


def hidden(view: Body) -> Body:
    """Return the values in private_metadata: Slack sends options requests without the view's state."""
    found: Body = json.loads(view["private_metadata"])["options"]
    return found
