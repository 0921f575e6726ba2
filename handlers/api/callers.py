"""Who calls the API: the owner of a token, as far as they can use Sweepbot and are in its channel, or a CI
job; how many calls a minute, and refusals (401, 403, 429, Idempotency-Key).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from time import monotonic

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bot.core.commands import API
from bot.core.request import Requester, is_team, team_account
from bot.platform.config.permissions import Visitor, entry_denial
from bot.platform.runtime.audit import audit
from bot.platform.slack.client import error_code
from bot.platform.storage.api_tokens import PREFIX, ApiTokens, TokenOwner
from handlers.api.ci_tokens import CiTokens, UnreadableKeysError
from handlers.context import ACK_TIMEOUT, SLACK_ERRORS, HandlerContext
from handlers.middleware import SLACK_TIMEOUT, Guests

log = logging.getLogger(__name__)

CALLS_PER_MINUTE = 60  # of one token; an event stream is one call
TTL, ABSENT_TTL = 3600.0, 60.0  # seconds; Slack allows 100 calls of conversations.members a minute
PAGE, MAX_PAGES = 999, 20  # members in one answer, the most that Slack gives; answers for one channel
MAX_CACHED = 1_000  # channels
GONE = {"channel_not_found"}  # a deleted channel, or a private one without the app: no thread can open there
UNAUTHORIZED = (
    "A valid token is required, as `Authorization: Bearer swb_...`. Get one with `/sweep token` in Slack, or "
    "ask an admin to admit the CI job in `api.ci`."
)
LEFT = (
    "You aren't in the token's channel any more, where its sweeps have their threads. Get a token in a "
    "channel of yours with `/sweep token`."
)


@dataclass(frozen=True, kw_only=True)
class Caller:
    owner: TokenOwner
    token: str  # its hash; the same for all tokens of one run of a CI job
    via: str = API  # the door, for the audit and the thread
    is_valid: Callable[[], Awaitable[bool]]  # whether the token still is, for calls that take long
    is_gone: Callable[[], Awaitable[bool]]  # whether the client has closed the connection

    @property
    def user(self) -> str:
        return self.owner.user

    @property
    def requester(self) -> Requester:
        owner = self.owner
        return Requester(
            user=owner.user,
            user_name=owner.user_name,
            channel=owner.channel,
            via=self.via,
            account=owner.account,
            account_budget=owner.budget,
        )

    def request_id(self, request: Request) -> str:
        """Return an id of this request, the same for each repetition. Raises HTTPException."""
        key = request.headers.get("idempotency-key", "")
        if not (0 < len(key) <= 200 and key.isascii() and key.isprintable()):
            detail = "Idempotency-Key must be a header of 1 to 200 printable ASCII characters."
            raise HTTPException(422, detail)
        about = f"{self.token} {request.url.path} {key}"
        return f"api/{sha256(about.encode()).hexdigest()[:32]}"


class Callers:
    """`home`: the app's own workspace."""

    def __init__(
        self, context: HandlerContext, tokens: ApiTokens, web: AsyncWebClient, home: Visitor
    ) -> None:
        self._context, self._tokens, self._web, self._home = context, tokens, web, home
        self._guests, self._members, self._ci = Guests(), Members(web), CiTokens()

    async def caller(self, request: Request) -> Caller:
        """Return whose token it is, before anything else is read. Raises HTTPException, RedisError."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        read = self._person if token.startswith(PREFIX) else self._job
        found = await read(token, request) if scheme.lower() == "bearer" else None
        if found is None:
            raise HTTPException(401, UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})
        owner = found.owner
        if is_team(owner.user):  # admitted by a rule, not by Slack
            return found
        who = Visitor(user=owner.user, team=owner.team, enterprise=owner.enterprise)
        known = await self._guests.look_up(self._web, who, from_slack=False)
        who = replace(known, team=who.team, enterprise=who.enterprise)  # those of another token
        if refusal := entry_denial(who, self._home, self._context.config):
            raise HTTPException(403, refusal)
        if not await self._members.has(owner.channel, owner.user):
            raise HTTPException(403, LEFT)
        return found if owner.user_name else replace(found, owner=replace(owner, user_name=who.name))

    async def _person(self, token: str, request: Request) -> Caller | None:
        async with asyncio.timeout(ACK_TIMEOUT):
            call = await self._tokens.call(token)
        if call is None:
            return None
        _check_rate(call.count, call.seconds_left)
        is_valid = partial(self._tokens.is_valid, call.token)
        return Caller(owner=call.owner, token=call.token, is_valid=is_valid, is_gone=request.is_disconnected)

    async def _job(self, token: str, request: Request) -> Caller | None:
        try:
            job = await self._ci.verified(token, self._context.config)
        except UnreadableKeysError as error:
            detail = f"The keys of {error} can't be read to check its tokens. Try again in a minute."
            raise HTTPException(503, detail, {"Retry-After": "60"}) from None
        if job is None:
            return None
        async with asyncio.timeout(ACK_TIMEOUT):
            _check_rate(*await self._tokens.count(job.id))
        rule = job.rule

        async def is_valid() -> bool:
            """A stream goes on after the token's few minutes, but not after its rule."""
            return rule in self._context.config.api.ci

        user = rule.person or team_account(rule.team)
        audit.info("user=%s ci=%r rule=%s: called the API", user, job.subject, rule.name)
        owner = TokenOwner(
            user=user,
            user_name=f"team {rule.team}" if rule.team else "",
            channel=rule.channel,
            budget=rule.budget,
            account=f"ci {rule.name}" if rule.budget else "",
        )
        return Caller(
            owner=owner,
            token=job.id,
            via=f"{API} for CI {rule.name}",
            is_valid=is_valid,
            is_gone=request.is_disconnected,
        )


def _check_rate(count: int, seconds_left: int) -> None:
    if count > CALLS_PER_MINUTE:
        detail = f"A token can make {CALLS_PER_MINUTE} calls a minute. Try again in {seconds_left} s."
        raise HTTPException(429, detail, {"Retry-After": str(seconds_left)})


@dataclass(frozen=True)
class _Known:
    members: frozenset[str] | None  # None: unknown
    at: float

    def has(self, user: str) -> bool:
        return self.members is None or user in self.members


class Members:
    """Whether people are still in the channel of their token: Slack is asked about one at most once an hour.

    About a person who isn't among the last known members, it is asked again after a minute: they can have
    joined.
    """

    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web
        self._known: dict[str, _Known] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def has(self, channel: str, user: str) -> bool:
        """Return whether the channel has this member; True as long as Slack has never said it.

        A large channel, or a slow Slack, makes no caller wait longer than for one call.
        """
        known = self._known.get(channel)
        if known is None or monotonic() - known.at > (TTL if known.has(user) else ABSENT_TTL):
            if channel not in self._reading:
                self._reading[channel] = asyncio.create_task(self._read(channel))
            await asyncio.wait([self._reading[channel]], timeout=SLACK_TIMEOUT)
            known = self._known.get(channel)
        return known is None or known.has(user)

    async def _read(self, channel: str) -> None:
        before = self._known.get(channel)
        found = before.members if before else None
        try:
            found = await self._members(channel)
        except SlackApiError as error:
            if error_code(error) in GONE:
                found = frozenset()
            log.warning("can't read the members of %s: %s", channel, error_code(error))
        except SLACK_ERRORS as error:
            log.warning("can't read the members of %s: %r", channel, error)
        finally:
            del self._reading[channel]
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        self._known[channel] = _Known(found, monotonic())

    async def _members(self, channel: str) -> frozenset[str] | None:
        """Return the members; None if there are too many to ask for. Raises SLACK_ERRORS."""
        found: set[str] = set()
        cursor = ""
        for _ in range(MAX_PAGES):
            answer = await self._web.conversations_members(channel=channel, limit=PAGE, cursor=cursor)
            found |= {*answer["members"]}
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return frozenset(found)
        return None
