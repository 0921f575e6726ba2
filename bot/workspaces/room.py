"""What a workspace adds to workers and `/gpus`. `bot.workspace_table` lists all, with handlers and checks."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from bot.core.work_item import WorkItem
from bot.measure.gpus.models import Source
from bot.platform.clients import Clients
from bot.platform.commands.grammar import Command
from bot.platform.config.policy import Config
from bot.platform.config.section import Section

# Runs a work item, given its key. Returns after how long to run it again; None: when it is queued again.
Job = Callable[[str], Awaitable[timedelta | None]]


@dataclass(frozen=True, kw_only=True)
class Room:
    # By kind of work item.
    jobs: Callable[[Clients, Redis, Source], Mapping[str, Job]] = lambda *_: {}
    # What each worker runs until it ends.
    tasks: Callable[[Clients, Redis], Iterable[Coroutine[Any, Any, None]]] = lambda *_: ()
    # Queued when a worker starts, and now and then, also after Redis lost its data.
    starts: tuple[WorkItem, ...] = ()
    resync: Callable[[Config], Iterable[WorkItem]] = lambda _: ()
    # Commands after `/gpus`, each with a `Later`.
    gpu_commands: tuple[Command, ...] = ()
    # What people write for it, for the reference: by heading, an introduction and its keys.
    formats: Mapping[str, tuple[str, type[Section]]] = field(default_factory=dict)
    # A line below free GPUs and in the digest; "": there is nothing to say.
    line: Callable[[Clients], Awaitable[str]] | None = None
