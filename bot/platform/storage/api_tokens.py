"""Store the personal tokens of the HTTP API in Redis, of each only its SHA-256, the number of calls in a
minute, and idempotency keys.

api-token:<hash>     its owner, and the channel of what it starts     until it expires
api-tokens:<user>    sorted set: hashes of the user's tokens by expiry
api-owners           hash: names of people who got a token, by id     90 days after the last one
api-calls:<hash>     its calls in this minute                         a minute
api-key:<request>    the hash of the command of an idempotency key    a day
"""

import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from redis.asyncio import Redis

from bot.core.stored_format import late_adapter
from bot.platform.storage.script_batches import ScriptBatches

PREFIX = "swb_"
TOKEN = re.compile(r"swb_[A-Za-z0-9_-]{43}", re.ASCII)
MAX_TOKENS = 10  # of one person at a time
OWNERS, OWNERS_TTL = "sweepbot:api-owners", timedelta(days=90)  # as long as the last token can be valid
KEY_TTL = timedelta(days=1)  # of an idempotency key, as long as its sweep is known by it

_ADD = """
local theirs, token, owners, call = KEYS[1], KEYS[2], KEYS[3], redis.call
local now = tonumber(call('TIME')[1])
call('ZREMRANGEBYSCORE', theirs, '-inf', now)
if call('ZCARD', theirs) >= tonumber(ARGV[4]) then return 0 end
call('SET', token, ARGV[2], 'EX', ARGV[3])
call('HSET', owners, ARGV[5], ARGV[6])
call('EXPIRE', owners, ARGV[7])
call('ZADD', theirs, now + ARGV[3], ARGV[1])
if call('TTL', theirs) < tonumber(ARGV[3]) then call('EXPIRE', theirs, ARGV[3]) end
return 1
"""

_REVOKE = """
local all = redis.call('ZRANGE', KEYS[1], 0, -1)
local count = 0
for _, each in ipairs(all) do count = count + redis.call('DEL', ARGV[1] .. each) end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], ARGV[2])
return count
"""

_INCREASE = """
local calls = redis.call('INCR', KEYS[1])
if calls == 1 then redis.call('EXPIRE', KEYS[1], 60) end
"""

_COUNT = f"{_INCREASE} return {{calls, redis.call('TTL', KEYS[1])}}"

# SET with NX and GET at once needs Redis 7.
_CLAIM = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then return ARGV[1] end
return redis.call('GET', KEYS[1])
"""

# An unknown token leaves nothing in Redis: strangers can try any number of them.
_CALL = f"""
local token = redis.call('GET', KEYS[2])
if not token then return false end
{_INCREASE}
return {{token, calls, redis.call('TTL', KEYS[1])}}
"""


@dataclass(frozen=True, kw_only=True)
class TokenOwner:
    """Whose token it is, and where its sweeps have their threads: all as Slack reported it."""

    user: str
    user_name: str
    channel: str
    team: str = ""  # the workspace
    enterprise: str = ""
    budget: str = ""  # of a month, for what it starts, as `AMOUNT` reads it; "": none of its own
    account: str = ""  # its sweeps have this in common; "": it has no budget


@dataclass(frozen=True, kw_only=True)
class TokenCall:
    """A call with a valid token."""

    token: str  # its hash
    owner: TokenOwner
    count: int  # of the calls in this minute, including this one
    seconds_left: int  # of this minute


_OWNER = late_adapter(TokenOwner)


class ApiTokens:
    """Methods raise redis.exceptions.RedisError when Redis can't be reached."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._batches = redis, ScriptBatches(redis)
        self._add, self._revoke, self._call = map(redis.register_script, (_ADD, _REVOKE, _CALL))
        self._count, self._claim = map(redis.register_script, (_COUNT, _CLAIM))

    async def create(self, owner: TokenOwner, valid: timedelta) -> str | None:
        """Return a new token, which can't be read again; None if its owner has too many."""
        token = PREFIX + secrets.token_urlsafe(32)
        hashed = hash_of(token)
        args: list[Any] = [hashed, _OWNER.dump_json(owner), int(valid.total_seconds()), MAX_TOKENS]
        args += [owner.user, owner.user_name, int(OWNERS_TTL.total_seconds())]
        return token if await self._add([_of_user(owner.user), _of_token(hashed), OWNERS], args) else None

    async def revoke_all(self, user: str) -> int:
        """Revoke all tokens of a person, and return how many were valid."""
        return int(await self._revoke([_of_user(user), OWNERS], [_of_token(""), user]))

    async def owners(self) -> dict[str, str]:
        """Return the names of people who got a token, by id; their tokens can have expired."""
        found: Any = await self._redis.hgetall(OWNERS)
        return {bytes(user).decode(): bytes(name).decode() for user, name in found.items()}

    async def call(self, token: str) -> TokenCall | None:
        """Count a call with this token, and return it; None if the token isn't valid."""
        if not TOKEN.fullmatch(token):
            return None
        hashed = hash_of(token)
        found = await self._batches.call(self._call, [f"sweepbot:api-calls:{hashed}", _of_token(hashed)], [])
        if not found:
            return None
        owner, count, left = found
        return TokenCall(
            token=hashed, owner=_OWNER.validate_json(owner), count=int(count), seconds_left=max(int(left), 1)
        )

    async def count(self, caller: str) -> tuple[int, int]:
        """Count a call without a stored token; return how many in this minute, and its seconds left."""
        count, left = await self._batches.call(self._count, [f"sweepbot:api-calls:{caller}"], [])
        return int(count), max(int(left), 1)

    async def claim(self, request_id: str, command: str) -> bool:
        """Return whether the request has this command, and not another one with the same idempotency key."""
        key, hashed = f"sweepbot:api-key:{request_id}", hash_of(command)
        first = await self._batches.call(self._claim, [key], [hashed, int(KEY_TTL.total_seconds())])
        return bytes(first).decode() == hashed

    async def is_valid(self, hashed: str) -> bool:
        """Return whether the token with this hash is still valid, without counting a call."""
        return bool(await self._redis.exists(_of_token(hashed)))


def hash_of(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _of_token(hashed: str) -> str:
    return f"sweepbot:api-token:{hashed}"


def _of_user(user: str) -> str:
    return f"sweepbot:api-tokens:{user}"
