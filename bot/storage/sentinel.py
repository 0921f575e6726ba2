"""A client of the primary of a replicated Redis or Valkey, found through its Sentinels.

    redis+sentinel://:PASSWORD@HOST:PORT,HOST:PORT/NAME/DATABASE

With `rediss+sentinel`, all connections use TLS. Query parameters are redis-py's, such as `ssl_ca_certs`, and
`sentinel_password` for Sentinels with a password.
"""

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

from bot.core.errors import UserError

SCHEMES = ("redis+sentinel", "rediss+sentinel")
DEFAULT_PORT = 26379


def connect_primary(url: str, **options: Any) -> Redis:
    """Return a client that asks the Sentinels for the primary at each new connection.

    Raises UserError if the URL names no primary.
    """
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    name, _, database = parts.path.strip("/").partition("/")
    if not name:
        raise UserError("REDIS_URL must name Sentinel's primary: redis+sentinel://HOST:26379/NAME.")
    plain = f"{parts.scheme.partition('+')[0]}://{login}@host/{database}?{parts.query}"
    found: dict[str, Any] = {**parse_url(plain), **options}
    own = {"password": found.pop("sentinel_password", None)}
    del found["host"]
    if found.pop("connection_class", None):
        found["ssl"] = True
    own |= {key: value for key, value in found.items() if key.startswith(("ssl", "socket_"))}
    addresses = [_address(each) for each in hosts.split(",")]
    sentinels: Any = Sentinel(addresses, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
    primary: Redis = sentinels.master_for(name, connection_pool_class=_Pool, **found)
    return primary


def _address(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    return parts.hostname or "", parts.port or DEFAULT_PORT


class _Pool(SentinelConnectionPool):
    """Closes the connections to the Sentinels, too."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        await super().disconnect(inuse_connections)
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()
