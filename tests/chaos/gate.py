"""The order of all calls, drawn from a seed: which worker continues, and which calls fail, and how.

Workers run concurrently, but one call at a time: each waits at the gate until the schedule picks it. So the
same seed gives the same run, although the workers are real coroutines and Redis is a real server.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from aiohttp import ClientError
from redis.exceptions import ConnectionError as RedisDropped
from redis.exceptions import OutOfMemoryError, ReadOnlyError
from slack_sdk.errors import SlackApiError

from bot.platform.registry.auth import RegistryError
from bot.platform.repos.git_commands import GitUnavailableError
from bot.platform.slack.client import SlackBusyError
from k8s.api.errors import ApiError, UnreachableError
from tests.scenarios.sweep_in_memory import WorkerCrash

OUTAGE = (5.0, 60.0)  # seconds that a system is away
SERVER = "serve"  # the actor that answers Slack
SERVER_KILLED = "flushed, serve killed"  # at once
FLUSHES = ("flushed", SERVER_KILLED)
CLOCKS = (0.0, 0.0, 3600.0, -3600.0)  # seconds that a worker's clock is wrong
PAUSE = (40.0, 120.0)  # seconds that a worker is paused: longer than its lease

# Most calls are Redis': without weights the others would hardly meet a fault.
WEIGHTS = {"queue": 0.4, "cluster": 2, "slack": 4, "git": 4, "registry": 4, "results": 4}


def _slack_error() -> SlackApiError:
    return SlackApiError("fatal_error", SimpleNamespace(data={"error": "fatal_error"}, status_code=500))


REDIS_REFUSES = (
    lambda: RedisDropped("Redis does not answer"),
    lambda: ReadOnlyError("You can't write against a read only replica."),
    lambda: OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
)
REFUSED: dict[str, tuple[Callable[[], Exception], ...]] = {
    "cluster": (
        lambda: UnreachableError("the API server does not answer"),
        lambda: ApiError(500, "InternalError", "etcdserver: leader changed"),
        lambda: ApiError(429, "TooManyRequests", "storage is (re)initializing", wait=1),
    ),
    "slack": (_slack_error, lambda: ClientError("Slack does not answer"), lambda: SlackBusyError(3)),
    "git": (lambda: GitUnavailableError("The git host does not answer."),),
    "registry": (lambda: RegistryError("The registry does not answer."),),
    "store": REDIS_REFUSES,
    "queue": REDIS_REFUSES,
}
# The call took effect, and its answer was lost. What only reads has no such difference.
LOST_ANSWER: dict[str, Callable[[], Exception]] = {
    "cluster": lambda: UnreachableError("the connection broke"),
    "slack": lambda: ClientError("the connection broke"),
    "registry": lambda: RegistryError("The connection broke."),
    "store": lambda: RedisDropped("the connection broke"),
    "queue": lambda: RedisDropped("the connection broke"),
}


@dataclass(eq=False)
class Actor:
    """Whoever calls. `waits`: at the gate, so that others run between two of its calls."""

    name: str
    waits: bool = False
    item: str = ""
    leased_until: float = float("inf")
    paused_until: float = 0
    dead: bool = False
    clock: float = 0  # seconds that it is wrong


ACTOR: ContextVar[Actor] = ContextVar("ACTOR")


@dataclass(eq=False)
class Waiting:
    actor: Actor
    go: asyncio.Future[None]


@dataclass(eq=False)
class Gate:
    """`rate`: the share of calls that meet a fault."""

    rng: Random
    flush: Callable[[bool], Awaitable[None]] | None = None  # FLUSHALL; None: is not among the faults
    rate: float = 0
    seconds: float = 0  # the simulated time
    faults: Counter[str] = field(default_factory=Counter)
    journal: list[tuple[str, str]] = field(default_factory=list)  # the sweep, and what happened
    waiting: list[Waiting] = field(default_factory=list)
    in_flight: int = 0
    away: dict[str, float] = field(default_factory=dict)  # until when, by system

    def note(self, item: str, what: str) -> None:
        self.journal.append((item, f"{self.seconds:9.2f} {what}"))

    def release_one(self) -> bool:
        """Let one of the waiting calls happen. False: none can."""
        self.waiting = [each for each in self.waiting if not each.go.done()]
        able = [each for each in self.waiting if each.actor.paused_until <= self.seconds]
        if able:
            chosen = self.rng.choice(able)
            self.waiting.remove(chosen)
            chosen.go.set_result(None)
        return bool(able)

    async def call(self, system: str, name: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        actor = ACTOR.get()
        if actor.waits and not actor.dead:
            waiter = Waiting(actor, asyncio.get_running_loop().create_future())
            self.waiting.append(waiter)
            await waiter.go
        if actor.dead:  # also a call made beside the one that crashed
            raise WorkerCrash
        self.in_flight += 1
        try:
            return await self._perform(actor, system, name, partial(method, *args, **kwargs))
        finally:
            self.in_flight -= 1

    async def _perform(self, actor: Actor, system: str, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        fault = self._drawn(actor, system)
        self.note(actor.item, f"{actor.name} {system}.{name} {fault}".rstrip())
        if fault in FLUSHES and self.flush:
            await self.flush(fault == SERVER_KILLED)
            if fault == SERVER_KILLED and actor.name == SERVER:
                self._crash(actor)
        if fault == "killed before":
            self._crash(actor)
        if fault == "away" or self.away.get(system, 0) > self.seconds:
            error = REFUSED[system][0]()
            raise error
        if fault == "refused":
            error = self.rng.choice(REFUSED[system])()
            raise error
        try:
            answer = await call()
        finally:
            if fault == "killed after" or actor.leased_until < self.seconds:
                self._crash(actor)  # the second: paused in the middle of a call, it notices right after it
        if fault == "answer lost":
            error = LOST_ANSWER[system]()
            raise error
        return answer

    def _drawn(self, actor: Actor, system: str) -> str:
        """The fault of this call; "" for none."""
        if self.rng.random() >= self.rate * WEIGHTS.get(system, 1):
            return ""
        kinds = ["killed before", "killed after"] * 2
        kinds += ["paused"] * actor.waits
        kinds += ["refused", "refused", "away"] * (system in REFUSED)
        kinds += ["answer lost"] * 2 * (system in LOST_ANSWER)
        kinds += [*FLUSHES] * bool(self.flush)
        fault = self.rng.choice(kinds)
        self.faults[fault if fault in {*FLUSHES, "paused"} else f"{system} {fault}"] += 1
        if fault == "away":
            self.away[system] = self.seconds + self.rng.uniform(*OUTAGE)
        if fault == "paused":
            actor.paused_until = self.seconds + self.rng.uniform(*PAUSE)
        return fault

    def _crash(self, actor: Actor) -> None:
        actor.dead = True
        for each in self.waiting:
            if each.actor is actor and not each.go.done():
                each.go.set_result(None)
        raise WorkerCrash


class Gated:
    """A client whose calls all pass the gate."""

    def __init__(self, inner: Any, system: str, gate: Gate) -> None:
        self._inner, self._system, self._gate = inner, system, gate

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        if inspect.isasyncgenfunction(member):
            return partial(self._pages, name, member)
        if not inspect.iscoroutinefunction(member):
            return member
        return partial(self._gate.call, self._system, name, member)

    async def _pages(self, name: str, member: Any, *args: Any, **kwargs: Any) -> Any:
        async def whole() -> list[Any]:
            return [page async for page in member(*args, **kwargs)]

        for page in await self._gate.call(self._system, name, whole):
            yield page
