"""Who calls the API: the owner of a token, as far as they can use Sweepbot."""

import asyncio
from dataclasses import dataclass
from hashlib import sha256

from slack_sdk.web.async_client import AsyncWebClient
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bot.core.commands import API
from bot.core.request import Requester
from bot.platform.config.permissions import Visitor, entry_denial
from bot.platform.storage.api_tokens import ApiTokens, TokenCall, TokenOwner
from handlers.context import ACK_TIMEOUT, HandlerContext
from handlers.middleware import Guests

CALLS_PER_MINUTE = 60  # of one token; an event stream is one call
UNAUTHORIZED = (
    "A valid token is required, as `Authorization: Bearer swb_...`. Get one with `/sweep token` in Slack."
)


@dataclass(frozen=True, kw_only=True)
class Caller:
    owner: TokenOwner
    token: str  # its hash

    @property
    def user(self) -> str:
        return self.owner.user

    @property
    def requester(self) -> Requester:
        owner = self.owner
        return Requester(user=owner.user, user_name=owner.user_name, channel=owner.channel, via=API)

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
        self._guests = Guests()

    async def caller(self, request: Request) -> Caller:
        """Return whose token it is, before anything else is read. Raises HTTPException."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        call = await self._call(token.strip()) if scheme.lower() == "bearer" else None
        if call is None:
            raise HTTPException(401, UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})
        if call.count > CALLS_PER_MINUTE:
            detail = (
                f"A token can make {CALLS_PER_MINUTE} calls a minute. Try again in {call.seconds_left} s."
            )
            raise HTTPException(429, detail, {"Retry-After": str(call.seconds_left)})
        owner = call.owner
        who = Visitor(user=owner.user, team=owner.team, enterprise=owner.enterprise)
        who = await self._guests.look_up(self._web, who, from_slack=False)
        if refusal := entry_denial(who, self._home, self._context.config):
            raise HTTPException(403, refusal)
        return Caller(owner=owner, token=call.token)

    async def _call(self, token: str) -> TokenCall | None:
        async with asyncio.timeout(ACK_TIMEOUT):
            return await self._tokens.call(token)
