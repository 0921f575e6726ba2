"""Sweeps in the API: start, list, and show them, and give them commands, by what Slack's handlers use."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bot.core.commands import API, Action, AuditEntry
from bot.core.errors import UserError
from bot.core.ids import SWEEP_ID
from bot.core.record import RENAMED, Phase, SweepRecord
from bot.core.request import Requester
from bot.core.sweep_summary import SweepSummary
from bot.platform.commands.grammar import MAX_TEXT
from bot.platform.config.permissions import denial
from bot.platform.runtime.audit import write_entry
from bot.platform.storage.api_tokens import TokenOwner
from bot.platform.storage.sweeps import Store
from bot.sweep.answers.command_parser import COMMANDS, TABLE, parse_command, selected
from bot.sweep.launch.command_line import complete
from bot.sweep.launch.options import EXAMPLE, LAUNCH
from handlers.context import ACK_TIMEOUT, HandlerContext
from handlers.http_server import BODY_TIMEOUT, read_body
from handlers.launch_form import refused_launch
from handlers.sweep_commands import SWEEP, Sender, handle_command

MAX_BODY = 64 * 1024  # bytes
MAX_LISTED, DEFAULT_LISTED = 200, 50  # sweeps in one answer
COMMANDS_SHOWN = 12  # of a sweep, the latest
CHANGES = {each.name for each in COMMANDS if each.does and not each.does.is_read_only}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    command: str


async def launch(
    context: HandlerContext, request: Request, owner: TokenOwner, request_id: str
) -> SweepRecord:
    """Store a new sweep. Raises HTTPException, UserError, RedisError, TimeoutError."""
    typed, rest = SWEEP.find(await _command(request))
    if typed is not LAUNCH:
        raise UserError(f"This isn't a sweep to start. Example: {EXAMPLE}, without `/sweep`.")
    if refusal := refused_launch(context, owner.user, owner.channel, API):
        raise HTTPException(403, refusal)
    wanted = complete(SWEEP.read(typed, rest), context.config)
    requester = Requester(
        user=owner.user,
        user_name=owner.user_name,
        channel=owner.channel,
        via=API,
        account=owner.account,
        account_budget=owner.budget,
    )
    return await context.create_sweep(wanted, requester, request_id)


async def command(
    context: HandlerContext, request: Request, sweep: SweepRecord, owner: TokenOwner, request_id: str
) -> None:
    """Store a command to a sweep, which is answered in its thread. Raises as `launch`."""
    text = await _command(request)
    if TABLE.find(text)[0].name not in CHANGES:
        names = ", ".join(f"`{each}`" for each in sorted(CHANGES))
        raise UserError(f"This command isn't one that changes a sweep. Available: {names}.")
    action = parse_command(text, sweep.id).action
    refusal = denial(owner.user, action, sweep, context.config)
    if owner.budget and action in {Action.EXTEND, Action.BUDGET}:
        refusal = (
            f"A token with a budget can't {action.label} a sweep. Start another one, or do this in Slack."
        )
    if refusal:
        entry = AuditEntry(at=context.now(), user=owner.user, action=action, refused=refusal, via=API)
        write_entry(sweep.id, entry)
        raise HTTPException(403, refusal)
    sender = Sender(
        user=owner.user,
        user_name=owner.user_name,
        channel=owner.channel,
        request_id=request_id,
        here=sweep.id,
        via=API,
    )
    await handle_command(context, text, sender)


async def _command(request: Request) -> str:
    """Return the body's command. Raises HTTPException, and UserError if it is too long for one."""
    length = request.headers.get("content-length", "")
    try:
        is_large = len(length) > 9 or int(length or 0) > MAX_BODY
        async with asyncio.timeout(BODY_TIMEOUT):
            body = None if is_large else await read_body(request.receive, MAX_BODY)  # type: ignore[arg-type]
    except TimeoutError:
        raise HTTPException(408, f"The body must arrive within {BODY_TIMEOUT:g} s.") from None
    if body is None:
        raise HTTPException(413, f"The body can have at most {MAX_BODY // 1024} KiB.")
    try:
        text = _Body.model_validate_json(body).command
    except ValidationError:
        raise HTTPException(422, 'The body must be JSON like {"command": "branch=main space=lr"}.') from None
    if len(text) > MAX_TEXT:
        raise UserError(f"The command can have at most {MAX_TEXT:,} characters; got {len(text):,}.")
    return text


async def record_of(context: HandlerContext, request: Request) -> SweepRecord:
    """Return the sweep that the path names. Raises HTTPException, NewerFormatError, RedisError."""
    sweep_id = request.path_params["id"]
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


UNKNOWN = "No sweep has this name. List the sweeps with `GET /api/v1/sweeps`."


async def listing(context: HandlerContext, options: Mapping[str, str], user: str) -> dict[str, Any]:
    """Return a page of what `/sweep list` shows, the sweep saved last first. Raises UserError, RedisError."""
    unknown = options.keys() - {"limit", "cursor", "active"}
    if unknown:
        raise UserError(f"Unknown option: {min(unknown)[:40]}=. Available: active=, cursor=, limit=.")
    limit, cursor = options.get("limit", str(DEFAULT_LISTED)), options.get("cursor", "")
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3 and 1 <= int(limit) <= MAX_LISTED):
        raise UserError(f"limit= must be a whole number from 1 to {MAX_LISTED}.")
    if (active := options.get("active", "false")) not in {"true", "false"}:
        raise UserError("active= must be true or false.")
    async with asyncio.timeout(ACK_TIMEOUT):
        sweeps = await context.store.listed()
    found = selected("", user, sweeps, context.config)
    found = [each for each in found if each.live or active == "false"]
    start = 0
    if cursor:
        start = next((n for n, each in enumerate(found, 1) if each.id == cursor), 0)
        if not start:
            raise UserError("cursor= names no sweep of this list any more. Start again without it.")
    page = found[start : start + int(limit)]
    more = start + len(page) < len(found)
    return {"sweeps": [_summary(each) for each in page], "next": page[-1].id if more else None}


def _summary(sweep: SweepSummary) -> dict[str, Any]:
    return {
        "id": sweep.id,
        "state": sweep.phase.name.lower(),
        "owner": sweep.user_name or sweep.user,
        "trials": {"total": sweep.trials, "done": sweep.finished, "running": sweep.running},
        "best": sweep.best,
        "thread": sweep.permalink or None,
    }


def _audited(entry: AuditEntry) -> dict[str, Any]:
    return {
        "at": entry.at.isoformat(),
        "user": entry.name or entry.user,
        "command": entry.action.name.lower(),
        "about": entry.about or None,
        "denied": entry.refused or None,
    }


def shown(sweep: SweepRecord) -> dict[str, Any]:
    """Return what the API shows of one sweep; None where unknown. Pure."""
    progress, plan, requester = sweep.progress, sweep.plan, sweep.requester
    best = progress.best
    return {
        "id": sweep.id,
        "state": sweep.phase.name.lower(),
        "owner": requester.user_name or requester.user,
        "branch": sweep.request.branch,
        "commit": plan.pinned if plan else sweep.request.commit,
        "space": sweep.request.space,
        "objective": {"metric": plan.space.metric, "goal": plan.space.goal} if plan else None,
        "reason": sweep.reason or sweep.failure or None,
        "cause": sweep.cause or None,
        "trials": {
            "total": plan.space.max_trials if plan and sweep.submitted else 0,
            "done": progress.finished,
            "failed": progress.failed,
            "running": progress.running,
        },
        "best": {"value": best.value, "parameters": best.parameters} if best else None,
        "thread": sweep.permalink or None,
        "results_url": sweep.results_url,
        "started": sweep.created.isoformat(),
        "ended": sweep.since.isoformat() if sweep.phase.final else None,
        "commands": [_audited(each) for each in sweep.audit_log[-COMMANDS_SHOWN:]],
    }
