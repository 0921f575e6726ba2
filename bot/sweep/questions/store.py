"""Pass questions from `serve` to a worker, and the answers back, through Redis.

question:<id>   the question           30 seconds: a worker that comes later answers nobody
answer:<id>     a hash: status, body   10 seconds

The id is a hash of the question: who asks the same within that time gets the same answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

from redis.asyncio import Redis

from bot.core.request import Requester
from bot.core.stored_format import cached, late_adapter
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.storage.work_queue import Queue

QUESTION_TTL = 30  # seconds; `serve` waits 25, and workers answer no question that nobody waits for
ANSWER_TTL = 10  # seconds; what is read of a running sweep is at most that old
UNKNOWN = "No sweep has this name. List the sweeps with `sweepbot list` or `GET /api/v1/sweeps`."


class About(StrEnum):
    """What a question is about; comments say what its `subject` is."""

    RESULTS = "results"  # a sweep's ID; `detail`: the format
    LOGS = "logs"  # a sweep's ID; `detail`: the trial
    PLAN = "plan"  # what follows /sweep
    COMPARISON = "comparison"  # sweeps' IDs, with spaces between
    HISTORY = "history"  # the space's name


@dataclass(frozen=True, kw_only=True)
class Question:
    about: About
    subject: str
    detail: str = ""
    requester: Requester | None = None  # plan: who would launch it

    @property
    def id(self) -> str:
        return sha256(_QUESTION.dump_json(self)).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`status`: of HTTP. `body`: if that isn't 200, the sentence that says why."""

    status: int
    body: bytes


_QUESTION = late_adapter(Question)


class Questions:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, queue: Queue) -> None:
        self._redis, self._queue = redis, queue

    async def ask(self, question: Question) -> None:
        """Let a worker answer; `answer` has it soon."""
        await self._redis.set(_key("question", question.id), _QUESTION.dump_json(question), ex=QUESTION_TTL)
        kind = ItemKind.PLAN_QUESTION if question.about is About.PLAN else ItemKind.QUESTION
        await self._queue.add(WorkItem(kind, question.id))

    async def get(self, question_id: str) -> Question | None:
        """Return the question; None if nobody waits for its answer any more."""
        return cached(_QUESTION, await self._redis.get(_key("question", question_id)))

    async def put(self, question_id: str, answer: Answer) -> None:
        """Keep the answer: `serve` only passes it on, whatever its size."""
        key = _key("answer", question_id)
        async with self._redis.pipeline(transaction=True) as both:
            both.hset(key, mapping={"status": answer.status, "body": answer.body})
            both.expire(key, ANSWER_TTL)
            await both.execute()

    async def answer(self, question_id: str) -> Answer | None:
        """Return what `put` kept; None if no worker has answered yet."""
        found: Any = await self._redis.hmget(_key("answer", question_id), ["status", "body"])
        return None if found[0] is None else Answer(status=int(found[0]), body=found[1])


def _key(kind: str, question_id: str) -> str:
    return f"sweepbot:{kind}:{question_id}"
