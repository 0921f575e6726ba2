"""Requests about environments, from a command, a form, or a button, and their list in Redis.

environments:commands   list: requests for the next run of the item `environment-commands: now`; expires a day
                        after the last one, because a start that comes later would surprise
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from redis.asyncio import Redis

from bot.core.stored_format import parse, strict_adapter
from bot.core.work_item import ItemKind, WorkItem
from bot.runtime.audit import audit
from bot.services.command_line import ServiceCommand
from bot.services.snippet import Service
from bot.storage.work_queue import Queue, text

ITEM = WorkItem(ItemKind.ENVIRONMENT_COMMANDS, "now")
REQUESTS_KEY = "sweepbot:environments:commands"
KEEP = timedelta(days=1)


class Verb(StrEnum):
    START = "start"
    LIST = "list"
    OPEN = "open"
    STOP = "stop"
    KEEP = "keep"
    DELETE = "delete"
    DELETE_HOME = "delete home"


@dataclass(frozen=True, kw_only=True)
class EnvironmentRequest:
    verb: Verb
    user: str
    user_name: str = ""
    channel: str = ""
    response_url: str = ""
    request_id: str = ""  # Slack's id: a repeated delivery starts no second environment
    name: str = ""  # of the environment, or of the home; "": the user's only one
    suggested: str = ""  # start without a name: the name of a new environment
    image: str = ""  # start; "" leaves it as it is, or is the default; also below
    size: str = ""
    gpus: int | None = None
    profile: str = ""
    home: str = ""  # a size, or the name of a home
    hours: int = 0  # keep
    which: str = ""  # list: "", "team", or "idle"
    view: str = ""  # open: id of the modal
    services: bool = False  # it is about services: the ones to list, and the one to delete
    service: Service | None = None  # start

    @property
    def has_options(self) -> bool:
        """Return whether a start sets anything but the name."""
        return bool(self.image or self.size or self.gpus is not None or self.profile or self.home)


_REQUEST = strict_adapter(EnvironmentRequest)


def with_command(request: EnvironmentRequest, command: ServiceCommand) -> EnvironmentRequest:
    """Return the request with a command about services."""
    verb, is_start = Verb(command.verb), command.service is not None
    request = replace(request, verb=verb, name=command.name, which=command.which)
    return replace(request, service=command.service, services=not is_start)


def write_audit(request: EnvironmentRequest, name: str, refusal: str = "") -> None:
    """Log a request about the environment or home `name`. `refusal`: why it is denied."""
    audit.info(
        "user=%s action=environment_%s environment=%s: %s",
        request.user,
        request.verb.replace(" ", "_"),
        name or "new",
        f"denied: {refusal}" if refusal else "allowed",
    )


class RequestStore:
    """Methods raise redis.exceptions.RedisError."""

    def __init__(self, redis: Redis, queue: Queue) -> None:
        self._redis, self._queue = redis, queue

    async def add(self, request: EnvironmentRequest) -> None:
        stored = _REQUEST.dump_json(request, exclude_defaults=True).decode()
        async with self._redis.pipeline(transaction=True) as both:
            both.rpush(REQUESTS_KEY, stored)
            both.expire(REQUESTS_KEY, KEEP)
            await both.execute()
        await self._queue.add(ITEM)

    async def all(self) -> list[str]:
        """Return the requests that were not handled yet, oldest first, each as `load` reads it."""
        return [text(each) for each in await self._redis.lrange(REQUESTS_KEY, 0, -1)]

    async def remove(self, stored: str) -> None:
        await self._redis.lrem(REQUESTS_KEY, 1, stored)


def load(stored: str) -> EnvironmentRequest:
    """Raises NewerFormatError for a request that only a newer version can read completely."""
    return parse(_REQUEST, stored, "a request about environments")
