"""/sweep: the grammar is checked here and now, everything else by a turn."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError
from slack_bolt.async_app import AsyncAck

from bot.identity import candidates
from bot.models import Asker, SweepRecord, SweepRequest, UserError
from bot.mrkdwn import code, plain
from bot.request import HELP, parse
from handlers.door import UNREACHABLE, Door

log = logging.getLogger(__name__)

Handler = Callable[[AsyncAck, dict[str, Any]], Awaitable[None]]


def on_sweep(door: Door) -> Handler:
    async def sweep(ack: AsyncAck, command: dict[str, Any]) -> None:
        await ack(text=await _answer(door, command))

    return sweep


async def _answer(door: Door, command: dict[str, Any]) -> str:
    text = command.get("text", "").strip()
    if text in {"", "help"}:
        return HELP
    try:
        record = await _take(door, command, parse(text, door.config))
    except UserError as error:
        return plain(str(error))
    except RedisError:
        log.exception("a sweep could not be queued")
        return UNREACHABLE
    branch = code(record.request.branch)
    return f"On it: `{record.id}`. Its thread tells the story as soon as {branch} is checked."


async def _take(door: Door, command: dict[str, Any], request: SweepRequest) -> SweepRecord:
    """Durably, before Slack hears anything. A repeated delivery has the same trigger_id: the same sweep."""
    now, delivery = door.now(), command["trigger_id"]
    asker = Asker(
        user=command["user_id"],
        user_name=command.get("user_name", ""),
        channel=command["channel_id"],
        response_url=command.get("response_url", ""),
    )

    def named(sweep_id: str) -> SweepRecord:
        return SweepRecord(
            id=sweep_id,
            namespace=door.namespace,
            request=request,
            asker=asker,
            delivery=delivery,
            created=now,
            since=now,
        )

    ids = candidates(request.name or request.space, delivery)
    record, _ = await door.store.create(named, ids, delivery)
    await door.queue.add(record.id)
    return record
