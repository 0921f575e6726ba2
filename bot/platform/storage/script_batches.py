"""Send the scripts that are called at one moment in one round trip, on one connection.

Otherwise each of many calls at once takes a connection of its own. Each connection costs several round trips
to open, and is closed when its call is cancelled, so that a busy process would become busier.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError

MAX_BATCH = 100  # calls

Value = Any  # what a Redis client encodes: str, bytes, int, float


class _Call(NamedTuple):
    script: AsyncScript
    keys: Sequence[Value]
    args: Sequence[Value]
    answer: "asyncio.Future[Any]"


class ScriptBatches:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: list[_Call] = []
        self._sending: asyncio.Task[None] | None = None

    async def call(self, script: AsyncScript, keys: Sequence[Value], args: Sequence[Value]) -> Any:
        """Return the script's answer. Raises RedisError. A cancelled call can still reach Redis."""
        call = _Call(script, keys, args, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await call.answer

    async def _send_all(self) -> None:
        try:
            while batch := self._waiting[:MAX_BATCH]:
                del self._waiting[:MAX_BATCH]
                for call, answer in zip(batch, await self._send(batch), strict=True):
                    _settle(call, answer)
        finally:
            self._sending = None

    async def _send(self, batch: Sequence[_Call]) -> list[Any]:
        """Return answers and errors; a script that Redis doesn't know is sent whole."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for call in batch:
                    pipeline.evalsha(call.script.sha, len(call.keys), *call.keys, *call.args)
                answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - raised by each call
            return [error] * len(batch)
        unknown = [isinstance(answer, NoScriptError) for answer in answers]
        return [
            await _whole(call) if again else answer
            for call, answer, again in zip(batch, answers, unknown, strict=True)
        ]


async def _whole(call: _Call) -> Any:
    try:
        return await call.script(call.keys, call.args)
    except Exception as error:  # noqa: BLE001 - raised by its own call; the others have their answers
        return error


def _settle(call: _Call, answer: Any) -> None:
    if call.answer.done():
        return
    if isinstance(answer, Exception):
        call.answer.set_exception(answer)
    else:
        call.answer.set_result(answer)
