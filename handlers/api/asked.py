"""Wait for a worker's answer: this process has no access to git and the cluster."""

import asyncio

from starlette.exceptions import HTTPException

from bot.sweep.questions.store import Question, Questions
from handlers.context import ACK_TIMEOUT

WORKER_TIMEOUT = 25.0  # seconds for a worker to answer; the clients of the API wait 30
FIRST_POLL, MAX_POLL = 0.1, 1.0  # seconds: hundreds of waiting callers must leave this process time for Slack
LATE = (
    f"No worker has answered within {WORKER_TIMEOUT:g} s: none is free, or the cluster or the git host "
    "doesn't answer. Try again in a minute."
)


async def answered(questions: Questions, question: Question) -> bytes:
    """Return the answer. Raises HTTPException, RedisError, TimeoutError."""
    async with asyncio.timeout(ACK_TIMEOUT):
        found = await questions.answer(question.id)
        if found is None:
            await questions.ask(question)
    try:
        async with asyncio.timeout(WORKER_TIMEOUT):
            pause = FIRST_POLL
            while found is None:
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, MAX_POLL)
                found = await questions.answer(question.id)
    except TimeoutError:
        raise HTTPException(503, LATE, {"Retry-After": "60"}) from None
    if found.status != 200:
        headers = {"Retry-After": "60"} if found.status == 503 else None
        raise HTTPException(found.status, found.body.decode(), headers)
    return found.body
