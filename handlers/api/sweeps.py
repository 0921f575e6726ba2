"""Sweeps in the API: start, list, and show them, check a space file, and give them commands, by what Slack's
handlers use; refuse approvals, commands that change none, and used keys.
"""

import asyncio
from datetime import UTC, datetime

from starlette.exceptions import HTTPException

from bot.core.commands import Action, AuditEntry
from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID
from bot.core.record import RENAMED, Phase, SweepRecord
from bot.core.request import Notify, SweepRequest, is_team
from bot.core.sweep_summary import SweepSummary
from bot.platform.commands.grammar import MAX_TEXT
from bot.platform.config.permissions import BY_A_PERSON, denial
from bot.platform.config.policy import Config
from bot.platform.runtime.audit import write_entry
from bot.platform.runtime.parser_thread import run_in_parser_thread
from bot.platform.storage.api_tokens import ApiTokens
from bot.platform.storage.sweeps import Store
from bot.sweep.answers.command_parser import COMMANDS, TABLE, parse_command, selected
from bot.sweep.launch.command_line import complete, parse_options
from bot.sweep.launch.options import EXAMPLE, LAUNCH
from bot.sweep.launch.space_check import read_space
from bot.sweep.model.api_sweep import named
from bot.sweep.questions.store import UNKNOWN, About, Question
from bot.sweep.spaces.describe import explain
from bot.text.masking import Mask
from handlers.api.callers import Caller
from handlers.api.models import ListedSweep, ListedTrials, ListQuery, SpaceCheck, SweepPage
from handlers.context import ACK_TIMEOUT, HandlerContext
from handlers.launch_form import refused_launch
from handlers.sweep_commands import SWEEP, Sender, handle_command

CHANGES = {each.name: each.does for each in COMMANDS if each.does and not each.does.is_read_only}
KEY_USED = "This Idempotency-Key was used for another command. Use a new key, or repeat the same command."
SPACE_TIMEOUT = 10.0  # seconds; the largest allowed file takes a few
CREATED = "%Y%m%dT%H%M%S.%f"  # in a cursor


async def launch(
    context: HandlerContext, tokens: ApiTokens, caller: Caller, text: str, request_id: str
) -> SweepRecord:
    """Store a new sweep. Raises HTTPException, UserError, RedisError, TimeoutError."""
    wanted = _wanted(context, caller, text)
    await _claim(tokens, request_id, text)
    return await context.create_sweep(wanted, caller.requester, request_id)


def planned(context: HandlerContext, caller: Caller, text: str) -> Question:
    """Return the question for the plan of a sweep that could be launched. Raises as `launch`."""
    _wanted(context, caller, text)
    return Question(about=About.PLAN, subject=text, requester=caller.requester)


def _wanted(context: HandlerContext, caller: Caller, text: str) -> SweepRequest:
    typed, rest = SWEEP.find(_checked(text))
    if typed is not LAUNCH:
        raise UserError(f"This isn't a sweep to start. Example: {EXAMPLE}, without `/sweep`.")
    if refusal := refused_launch(context, caller.user, caller.owner.channel, caller.via):
        raise HTTPException(403, refusal)
    wanted = complete(SWEEP.read(typed, rest), context.config, caller.user)
    if wanted.notify is Notify.DM and is_team(caller.user):
        raise UserError(f"notify=dm needs a person, and {caller.owner.user_name} starts this sweep. Omit it.")
    return wanted


async def command(
    context: HandlerContext,
    tokens: ApiTokens,
    caller: Caller,
    text: str,
    sweep: SweepRecord,
    request_id: str,
) -> None:
    """Store a command to a sweep, which is answered in its thread. Raises as `launch`."""
    if TABLE.find(_checked(text))[0].name not in CHANGES:
        names = ", ".join(f"`{each}`" for each in sorted(CHANGES) if not CHANGES[each].is_approval)
        raise UserError(f"This command isn't one that changes a sweep. Available: {names}.")
    action, user = parse_command(text, sweep.id).action, caller.user
    refusal = denial(user, action, sweep, context.config)
    if action.is_approval:  # a worker would refuse it, too, but after a 202
        refusal = BY_A_PERSON.format(sweep.id)
    if caller.owner.budget and action in {Action.EXTEND, Action.BUDGET}:
        refusal = (
            f"A token with a budget can't {action.label} a sweep. Start another one, or do this in Slack."
        )
    if refusal:
        entry = AuditEntry(at=context.now(), user=user, action=action, refused=refusal, via=caller.via)
        write_entry(sweep.id, entry)
        raise HTTPException(403, named(refusal, sweep))
    await _claim(tokens, request_id, text)
    sender = Sender(
        user=user,
        user_name=caller.owner.user_name,
        channel=caller.owner.channel,
        request_id=request_id,
        here=sweep.id,
        via=caller.via,
    )
    await handle_command(context, text, sender)


def _checked(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise UserError(f"The command can have at most {MAX_TEXT:,} characters; got {len(text):,}.")
    return text


async def _claim(tokens: ApiTokens, request_id: str, text: str) -> None:
    """Raise HTTPException if the key of this request was used for another command."""
    async with asyncio.timeout(ACK_TIMEOUT):
        is_ours = await tokens.claim(request_id, text)
    if not is_ours:
        raise HTTPException(422, KEY_USED)


async def record_of(context: HandlerContext, sweep_id: str) -> SweepRecord:
    """Return the sweep with this name. Raises HTTPException, NewerFormatError, RedisError."""
    async with asyncio.timeout(ACK_TIMEOUT):
        sweep = await current(context.store, sweep_id)
    if sweep is None:
        raise HTTPException(404, UNKNOWN)
    return sweep


async def current(store: Store, sweep_id: str) -> SweepRecord | None:
    """Return the sweep with this name, or the one to which a worker renamed it; None if there is none."""
    sweep = await store.get(sweep_id) if SWEEP_ID.fullmatch(sweep_id) else None
    return await store.get(name) if sweep and (name := new_name(sweep)) else sweep


def new_name(sweep: SweepRecord) -> str:
    """Return the name under which the sweep continues, because an older one has its own; "" for most."""
    is_renamed = sweep.phase is Phase.REFUSED and sweep.reason.startswith(RENAMED)
    return sweep.reason.removeprefix(RENAMED) if is_renamed else ""


async def check_space(text: str, options: str, config: Config, mask: Mask) -> SpaceCheck:
    """Check a file in the parser's thread: a person's large one must not delay others.

    Raises HTTPException.
    """
    try:
        async with asyncio.timeout(SPACE_TIMEOUT):
            return await run_in_parser_thread(_space_check, text, options, config, mask)
    except TimeoutError:
        detail = f"Checking the space took more than {SPACE_TIMEOUT:g} s. Try again in a minute."
        raise HTTPException(503, detail, {"Retry-After": "60"}) from None


def _space_check(text: str, options: str, config: Config, mask: Mask) -> SpaceCheck:
    try:
        space, request = read_space(text, "space.yaml", parse_options(options), config, on_cluster=True)
    except UserError as error:
        return SpaceCheck(valid=False, errors=mask(str(error)).splitlines(), notes=[], summary=None)
    summary = mask(explain(space, request.gpus, request.nodes or 1))
    return SpaceCheck(valid=True, errors=[], notes=[*map(mask, space.notes)], summary=summary)


async def listing(context: HandlerContext, query: ListQuery, user: str) -> SweepPage:
    """Return a page of what `/sweep list` shows, the newest sweep first. Raises UserError, RedisError."""
    async with asyncio.timeout(ACK_TIMEOUT):
        sweeps = await context.store.listed()
    found = [each for each in selected("", user, sweeps, context.config) if each.live or not query.active]
    if query.cursor:
        last = _place(query.cursor)
        found = [each for each in found if (each.created, each.id) < last]
    page = sorted(found, key=lambda each: (each.created, each.id), reverse=True)[: query.limit]
    listed = [
        ListedSweep(
            id=each.id,
            state=each.phase.name.lower(),
            owner=each.user_name or each.user,
            trials=ListedTrials(total=each.trials, done=each.finished, running=each.running),
            best=each.best,
            thread=each.permalink or None,
        )
        for each in page
    ]
    more = len(page) < len(found)
    return SweepPage(sweeps=listed, next=_cursor(page[-1]) if more else None)


def _cursor(sweep: SweepSummary) -> str:
    """Return its place in the list, which no save changes: a page neither repeats nor misses a sweep."""
    return f"{sweep.created.astimezone(UTC):{CREATED}}-{sweep.id}"


def _place(cursor: str) -> tuple[datetime, str]:
    """Raises UserError."""
    created, _, sweep_id = cursor.partition("-")
    try:
        return datetime.strptime(created, CREATED).replace(tzinfo=UTC), sweep_id
    except ValueError:
        raise UserError("cursor= must be `next` of another page. Start again without it.") from None
