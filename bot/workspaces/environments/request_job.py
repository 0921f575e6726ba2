"""Handle requests about environments: check them against all others (names, homes, limits), write what is
wanted, and answer, also why it can't be done.

One work item handles all of them, one after another, so that two starts can't both pass a limit. A request is
removed after it was handled; a worker that dies before repeats it, which changes nothing. A request of a
newer Sweepbot waits for that version, while those after it are handled.
"""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from aiohttp import ClientError
from redis.exceptions import RedisError
from slack_sdk.errors import SlackApiError

from bot.core.errors import RetryAfterError, UserError
from bot.core.stored_format import NewerFormatError
from bot.platform.clients import Clients
from bot.platform.config.environments import NAME
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.mrkdwn import code, plain
from bot.text.wording import did_you_mean, listed
from bot.workspaces.environments import access, cluster
from bot.workspaces.environments.idle import unwarned
from bot.workspaces.environments.listings import answer_list
from bot.workspaces.environments.permissions import denial, home_denial, size_denial, start_denial
from bot.workspaces.environments.record import Environment, EnvironmentRecord, Wanted
from bot.workspaces.environments.requests import ITEM, EnvironmentRequest, Verb, load, write_audit
from bot.workspaces.environments.spec import checked_gpus, still_configured
from bot.workspaces.environments.start_service import new_record, start_service
from k8s.api.errors import ApiError, UnreachableError
from k8s.environments import home_ref

log = logging.getLogger(__name__)

NEWER = (
    "{} was saved by a newer version of Sweepbot, and this version can't change it. *Fix:* Try again when "
    "the update is complete, or ask an admin to update Sweepbot."
)
INTERNAL_ERROR = "Couldn't handle `/env {}`: internal error. *Fix:* Ask an admin to check the log."


@dataclass(frozen=True)
class RequestJob:
    clients: Clients

    async def run(self, _: str) -> timedelta | None:
        """Handle all requests. Raises NewerFormatError, at the end, for one of a newer version."""
        newer: NewerFormatError | None = None
        for stored in await self.clients.store.requests(str(ITEM)):
            try:
                request = load(stored)
            except NewerFormatError as error:
                newer = error
                continue
            await self._handle(request)
            await self.clients.store.remove_requests(str(ITEM), [stored])
        if newer:
            raise newer
        return None

    async def _handle(self, request: EnvironmentRequest) -> None:
        """Handle a request and answer it. A bug must not keep the requests after it waiting."""
        try:
            answer = await self._apply(request)
        except UserError as error:
            answer = str(error)
        except ApiError as error:
            if not error.permanent:
                raise
            answer = f"The cluster rejected the request: {plain(self.clients.mask(error.message))}"
        except (UnreachableError, RetryAfterError, RedisError, NewerFormatError):
            raise
        except Exception:
            log.exception("can't handle a request about environments: %s", request.verb)
            answer = INTERNAL_ERROR.format(request.verb)
        if answer:
            await self._answer(request, answer)

    async def _answer(self, request: EnvironmentRequest, answer: str) -> None:
        """Show it in the modal that waits for it, or below the command. No other request waits for Slack."""
        try:
            if request.view:
                return await self.clients.slack.update_view(request.view, access.saying(answer))
            await self.clients.slack.post_ephemeral(request.user, answer, request.response_url)
        except (SlackApiError, ClientError, OSError, NotInChannelError, MessageRejectedError) as error:
            log.warning("can't answer a request about environments: %r", error)

    async def _apply(self, request: EnvironmentRequest) -> str:
        """Return the answer; "" if its message shows the result. Raises UserError."""
        everything = await cluster.load_all(self.clients)
        match request.verb:
            case Verb.START:
                return await self._start(request, everything)
            case Verb.LIST:
                return await answer_list(request, everything, self.clients)
            case Verb.DELETE_HOME:
                return await self._delete_home(request, everything)
        environment = _readable(self._chosen(request, everything))
        if environment.record.service and request.verb in {Verb.OPEN, Verb.KEEP}:
            raise UserError(f"{code(environment.record.name)} is a service: its message has its address.")
        if refusal := denial(request.user, request.verb, environment.record, self.clients.config):
            write_audit(request, environment.record.name, refusal)
            return refusal
        write_audit(request, environment.record.name)
        if request.verb is Verb.OPEN:
            await access.show(request.view, environment, self.clients)
            return ""
        return await self._change(request, environment)

    def _chosen(self, request: EnvironmentRequest, everything: list[Environment]) -> Environment:
        """Return the named environment, or the user's only one. Raises UserError."""
        if request.name:
            there = [each for each in everything if each.record.service or not request.services]
            found = next((each for each in there if each.record.name == request.name), None)
            if found is None:
                what = "service" if request.services else "environment"
                hint = did_you_mean(request.name, [each.record.name for each in there])
                raise UserError(f"No {what} {code(request.name)}.{hint}")
            return found
        own = [each for each in everything if each.record.owner == request.user and not each.record.service]
        if len(own) == 1:
            return own[0]
        if not own:
            raise UserError("You have no environment. `/env start` starts one.")
        names = [code(each.record.name) for each in own]
        raise UserError(f"You have several environments. Add a name: {listed(names, 'or')}.")

    async def _change(self, request: EnvironmentRequest, environment: Environment) -> str:
        record, now, by = environment.record, self.clients.now(), request.user
        if request.verb is Verb.STOP and record.wanted is Wanted.RUNNING:
            after = record.stop(now, by=by)
        elif request.verb is Verb.DELETE:
            after = record.delete(now, by=by)
        elif request.verb is Verb.KEEP and record.wanted is Wanted.RUNNING:
            after = replace(unwarned(record), keep_until=now + timedelta(hours=request.hours))
        else:
            return f"{code(record.name)} isn't running."
        await cluster.save(environment, after, self.clients)
        await self.clients.queue.add(cluster.item(record.name))
        return ""

    async def _start(self, request: EnvironmentRequest, everything: list[Environment]) -> str:
        if request.service:
            await start_service(request, request.service, everything, self.clients)
            return ""
        _allow(request, request.name, start_denial(request.user, request.channel, self.clients.config))
        if request.name:
            same = (each for each in everything if each.record.name == request.name)
        else:  # repeated after a crash, it can have created one
            same = (each for each in everything if each.record.request_id == request.request_id)
        if existing := next(same, None):
            return await self._start_again(request, _readable(existing), everything)
        record = await self._new(request, everything)
        self._check_size(request, record, everything)
        write_audit(request, record.name)
        await cluster.create(record, self.clients)
        await self.clients.queue.add(cluster.item(record.name))
        return ""

    async def _start_again(
        self, request: EnvironmentRequest, environment: Environment, everything: list[Environment]
    ) -> str:
        record = environment.record
        if refusal := denial(request.user, Verb.START, record, self.clients.config):
            write_audit(request, record.name, refusal)
            return f"{refusal} To start your own, use another name."
        if record.request_id == request.request_id:
            await self.clients.queue.add(cluster.item(record.name))
            return ""
        if record.wanted is Wanted.DELETED:
            return f"{code(record.name)} is being deleted. Try again in a few seconds."
        if record.wanted is Wanted.RUNNING:
            change = "" if record.service else " To change its options, stop it first."
            return f"{code(record.name)} is already running or starting.{change}"
        if record.service and request.has_options:
            raise UserError(
                f"{code(record.name)} is a service, and its options can't be changed. Delete it and start a "
                "new one, or use another name."
            )
        profiles = self.clients.config.profiles
        profile = request.profile or still_configured(record.profile, profiles)
        changes = {
            "image": request.image or record.image,
            "size": request.size or record.size,
            "gpus": checked_gpus(profile, request.gpus, record.gpus, profiles),
            "profile": profile,
            "request_id": request.request_id,
        }
        if request.home and request.home != record.home:
            raise UserError(
                f"{code(record.name)} uses home {code(record.home)}. To use another home, delete the "
                "environment; its home is kept."
            )
        after = record.start(self.clients.now(), **changes)
        self._check_size(request, after, everything)
        write_audit(request, record.name)
        await cluster.save(environment, after, self.clients)
        await self.clients.queue.add(cluster.item(record.name))
        return ""

    async def _new(self, request: EnvironmentRequest, everything: list[Environment]) -> EnvironmentRecord:
        config, name = cluster.configured(self.clients.config), request.name or request.suggested
        home = request.home if NAME.fullmatch(request.home) else name
        users = [each.record.name for each in everything if each.record.home == home]
        if users:
            raise UserError(f"Home {code(home)} is used by environment {code(users[0])}.")
        there = await self.clients.cluster.get(home_ref(config.namespace, home))
        if there and cluster.owner_of(there) != request.user:
            raise UserError(f"Home {code(home)} belongs to someone else. Use another name.")
        if there and "deletionTimestamp" in there["metadata"]:
            raise UserError(f"Home {code(home)} is being deleted. Use another name, or try again later.")
        if there is None and home == request.home:
            raise UserError(f"No home {code(home)}. For a new one, set its size, such as home={config.home}.")
        return new_record(
            request,
            self.clients,
            name,
            image=request.image or config.images[0].name,
            size=request.size or config.sizes[0].name,
            gpus=checked_gpus(request.profile, request.gpus, 0, self.clients.config.profiles),
            profile=request.profile,
            home=home,
            home_size=config.home if not request.home or home == request.home else request.home,
        )

    def _check_size(
        self, request: EnvironmentRequest, record: EnvironmentRecord, everything: list[Environment]
    ) -> None:
        others = [each.record for each in everything if each.record.name != record.name]
        _allow(request, record.name, size_denial(request.user, record, others, self.clients.config))

    async def _delete_home(self, request: EnvironmentRequest, everything: list[Environment]) -> str:
        """Delete a home and its files: the user has typed its name."""
        users = [each.record.name for each in everything if each.record.home == request.name]
        ref = home_ref(cluster.configured(self.clients.config).namespace, request.name)
        found = await self.clients.cluster.get(ref)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return f"No home {code(request.name)}. `/env list` shows yours."
        if refusal := home_denial(request.user, request.name, cluster.owner_of(found)):
            write_audit(request, request.name, refusal)
            return refusal
        if users:
            used = f"Home {code(request.name)} is used by environment {code(users[0])}."
            return f"{used} Delete that environment first."
        write_audit(request, request.name)
        await self.clients.cluster.delete(ref, uid=found["metadata"]["uid"])
        return f"Home {code(request.name)} and its files are deleted."


def _readable(environment: Environment) -> Environment:
    """Raises UserError for one whose record only a newer version can read."""
    if environment.newer:
        raise UserError(NEWER.format(code(environment.record.name)))
    return environment


def _allow(request: EnvironmentRequest, name: str, refusal: str) -> None:
    """Log a denial. Raises UserError with its reason."""
    if refusal:
        write_audit(request, name, refusal)
        raise UserError(refusal)
