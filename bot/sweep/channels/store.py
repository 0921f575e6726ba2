"""Store settings made in Slack, in a ConfigMap, which survives a loss of Redis, and in Redis for the
handlers; greet new users, and confirm a chosen team.

setup              the entries of the ConfigMap, as a worker last read them
greeting:<user>    a new user is being greeted; ten minutes
"""

import asyncio
import itertools
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError
from slack_sdk.errors import SlackApiError

from bot.core.stored_format import late_adapter
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.personal import Personal
from bot.platform.config.policy import Config
from bot.platform.config.teams import team_of
from bot.platform.runtime.audit import audit
from bot.platform.slack.blocks import SUBMISSION_DELAY
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code
from bot.platform.storage.configmaps import ConfigMapStore
from bot.platform.storage.work_queue import Queue
from bot.sweep.channels import quiet
from bot.sweep.channels.groups import changed_groups
from bot.sweep.channels.models import (
    OWN,
    ChannelSetup,
    Person,
    Setup,
    applied,
    entry,
    read,
    team_by_mail,
    with_groups,
)
from bot.sweep.channels.views import greeting, saved
from k8s.api.errors import ApiError, UnreachableError
from k8s.retry import Retry

if TYPE_CHECKING:  # serve, which only reads, has no clients
    from bot.platform.clients import Clients

log = logging.getLogger(__name__)

CONFIGMAP_NAME = "sweepbot-setup"
NOW = "now"  # key of the item that applies requests; any other key is a user to greet
WRITER_INTERVAL, READER_INTERVAL = 10.0, 2.0  # seconds
CONFIGMAP_EVERY = 30  # rounds of a worker; in the others, it takes from Redis what another one has written
RETRY = Retry(base=2.0)  # of the first read, which sweeps wait for
SETUP_KEY = "sweepbot:setup"
REQUESTS = WorkItem(ItemKind.SETUP, NOW)
TOO_LARGE = {413, 422}  # statuses of the API server
FULL = "Your settings couldn't be saved: the cluster rejected them. *Fix:* Ask an admin to check the log."
KEY = re.compile(r"[A-Z0-9]{1,64}")  # a Slack ID; also a valid key of a ConfigMap


@dataclass(frozen=True, kw_only=True)
class SetupRequest:
    """A request to change a channel's or the user's own settings, or to join a `team`."""

    user: str
    channel: str = ""
    settings: ChannelSetup | None = None
    team: str = ""
    own: dict[str, str] = field(default_factory=dict)  # as `Personal.changed` takes them
    view: str = ""  # Slack view to update with the result


_REQUEST = late_adapter(SetupRequest)


def dump(request: SetupRequest) -> str:
    return _REQUEST.dump_json(request, exclude_defaults=True).decode()


def _readable(raw: bytes | str) -> SetupRequest | None:
    """Return the request; None, with a log line, if it is damaged: it would block all later ones.

    The ConfigMap would reject a key that isn't of a channel or user, at each attempt.
    """
    try:
        request = _REQUEST.validate_json(raw)
    except ValidationError as error:
        log.error("damaged setup request dropped: %d bytes, %s", len(raw), error.errors()[0]["type"])  # noqa: TRY400
        return None
    if not KEY.fullmatch(request.channel if request.settings else request.user):
        log.error("setup request dropped: no Slack ID of a channel or user")
        return None
    return request


class SetupReader:
    """The handlers' side. Methods raise RedisError."""

    def __init__(self, redis: Redis, queue: Queue, policy: LivePolicy) -> None:
        self._redis, self._queue, self._policy = redis, queue, policy
        self.config, self.setup = policy.config, Setup()
        self.loaded = False  # whether a worker has published the settings
        policy.used_by(self._take)

    async def follow(self) -> None:
        """Refresh until cancelled. If Redis lost the settings, the last known ones stay in effect."""
        while True:
            try:
                await self.refresh()
            except RedisError as error:
                log.warning("can't read ConfigMap sweepbot-setup: %s", error)
            await asyncio.sleep(READER_INTERVAL)

    async def refresh(self) -> None:
        if found := await self._redis.get(SETUP_KEY):
            self.setup, self.loaded = read(json.loads(found)), True
        self._take()

    def _take(self) -> None:
        self.config = applied(self._policy.config, self.setup)

    def is_new(self, user: str) -> bool:
        """Return whether the user may need a greeting; known without a request to Redis."""
        known = self.setup.people.get(user)
        return self.loaded and (known is None or known.is_outdated)

    async def queue_greeting(self, user: str) -> None:
        """Queue a greeting for a new user; does nothing for a known one."""
        if not self.is_new(user):
            return
        if await self._redis.set(f"sweepbot:greeting:{user}", "1", nx=True, ex=timedelta(minutes=10)):
            await self._queue.add(WorkItem(ItemKind.SETUP, user))


class SetupWriter:
    """The workers' side: the ConfigMap is the source of truth."""

    def __init__(self, clients: "Clients", redis: Redis, policy: LivePolicy) -> None:
        self._clients, self._redis, self._policy = clients, redis, policy
        namespace = clients.settings.k8s_namespace
        self._stored = ConfigMapStore[str](clients.cluster, namespace, CONFIGMAP_NAME)
        self.setup = Setup()
        policy.used_by(self._take)

    def _take(self) -> None:
        self._clients.config = applied(self._base, self.setup)

    @property
    def _base(self) -> Config:
        return with_groups(self._policy.config, self.setup)

    async def ready(self, stop: asyncio.Event) -> None:
        """Return once the settings are loaded: no sweep can be resolved before."""
        while not stop.is_set() and not await self._try(self.refresh):  # noqa: ASYNC110 - polls another system
            await asyncio.sleep(RETRY.seconds())

    async def follow(self) -> None:
        """Refresh until cancelled."""
        for rounds in itertools.count(1):
            await self.refresh_groups()
            await asyncio.sleep(WRITER_INTERVAL)
            await self._try(self._reread if rounds % CONFIGMAP_EVERY else self.refresh)

    async def refresh_groups(self) -> None:
        """Store who is in the user groups of teams, if that is due and has changed."""
        slack = self._clients.slack
        try:
            if found := await changed_groups(self._policy.config, self.setup, slack, self._redis):
                await self._stored.write({key: entry(group) for key, group in found.items()})
                await self.refresh()
        except (ApiError, UnreachableError, RedisError) as error:
            log.warning("can't update user groups: %s", error)

    async def _try(self, refresh: Callable[[], Awaitable[None]]) -> bool:
        try:
            await refresh()
        except (ApiError, UnreachableError, RedisError) as error:
            log.warning("can't read ConfigMap sweepbot-setup: %s", error)
            return isinstance(error, ApiError) and error.permanent
        return True

    async def _reread(self) -> None:
        """Read what Redis has; if it has lost that, the ConfigMap."""
        if found := await self._redis.get(SETUP_KEY):
            self.setup = read(json.loads(found))
            self._take()
        else:
            await self.refresh()

    async def refresh(self) -> None:
        entries = (await self._stored.read()).values
        self.setup = read(entries)
        self._take()
        await self._redis.set(SETUP_KEY, json.dumps(dict(entries)))

    async def run(self, key: str) -> None:
        """Handle a work item: greet a new user, and apply all waiting requests."""
        await self.refresh()
        if key != NOW:
            await self._stores(self._greet(key), key)
        for raw in await self._clients.store.requests(str(REQUESTS)):
            request = _readable(raw)
            if request and not await self._stores(self._apply(request), request.user):
                await self._post(request.user, FULL)
            await self._clients.store.remove_requests(str(REQUESTS), [raw])

    async def _stores(self, applied: Awaitable[None], user: str) -> bool:
        """Return False if a full ConfigMap has no room: later requests would wait, and greetings repeat."""
        try:
            await applied
        except ApiError as error:
            if error.status not in TOO_LARGE:
                raise
            log.error("setup request of %s dropped: %s", user, error)  # noqa: TRY400 - no bug
            return False
        return True

    async def _apply(self, request: SetupRequest) -> None:
        if request.settings:
            audit.info(
                "user=%s action=setup channel=%s settings=%s",
                request.user,
                request.channel,
                entry(request.settings),
            )
            await self._write(request.channel, request.settings)
            if request.view:
                view = saved(request.channel, request.settings)
                await asyncio.sleep(SUBMISSION_DELAY)
                await self._try_to_send(self._clients.slack.update_view(request.view, view))
            return
        if request.own:
            await self._set_own(request.user, request.own)
        if any(team.name == request.team for team in self._base.teams):
            audit.info("user=%s action=choose_team team=%s", request.user, request.team)
            await self._write(request.user, Person(team=request.team, chosen=True))
            await self._post(request.user, f"You're now in team {code(request.team)}.")

    async def _set_own(self, user: str, values: dict[str, str]) -> None:
        audit.info("user=%s action=me settings=%s", user, ", ".join(sorted(values)))
        own = self.setup.own.get(user, Personal()).changed(values)
        await self._write(f"{OWN}{user}", (await self._without_deleted({user: own}))[user])
        await self._clients.queue.add(quiet.item(user))  # what was kept, if the quiet hours are over now

    async def _without_deleted(self, people: Mapping[str, Personal]) -> dict[str, Personal]:
        """Return these settings, by user, without mutes of sweeps that don't exist anymore."""
        muted = sorted({sweep for own in people.values() for sweep in own.muted})
        versions = await self._clients.store.versions(muted)
        deleted = {sweep for sweep, version in zip(muted, versions, strict=True) if version is None}
        return {
            user: replace(own, muted=tuple(each for each in own.muted if each not in deleted))
            for user, own in people.items()
        }

    async def _greet(self, user: str) -> None:
        """Post, then record: a worker that crashes in between greets twice rather than never."""
        known = self.setup.people.get(user)
        if known and not known.is_outdated:
            return
        name, mail = await self._clients.slack.profile(user)
        own, by_mail = team_of(self._base.teams, "", user), team_by_mail(mail, self._base)
        if known and not (own or mail):  # Slack doesn't return it now
            return
        if known is None:
            with suppress(NotInChannelError, MessageRejectedError):  # greeted later while Slack is down
                await self._clients.slack.post_ephemeral(user, greeting(name, own or by_mail, self._base))
        matched = bool(by_mail) and not own
        await self._write(user, Person(team=by_mail, mail=mail.lower()) if matched else Person())

    async def _post(self, user: str, message: Message | str) -> None:
        await self._try_to_send(self._clients.slack.post_ephemeral(user, message))

    async def _try_to_send(self, sending: Awaitable[object]) -> None:
        try:
            await sending
        except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
            log.warning("Slack rejected a message about settings: %s", error)

    async def _write(self, key: str, value: ChannelSetup | Person | Personal) -> None:
        """Write one entry, so that concurrent writers don't overwrite each other.

        If the ConfigMap is full, make room: others' mutes of sweeps that don't exist anymore are removed.
        """
        try:
            await self._stored.write({key: entry(value)})
        except ApiError as error:
            if error.status not in TOO_LARGE:
                raise
            before, after = self.setup.own, await self._without_deleted(self.setup.own)
            shorter = {f"{OWN}{user}": entry(own) for user, own in after.items() if own != before[user]}
            await self._stored.write(shorter | {key: entry(value)})
        await self.refresh()
