"""Connect to Redis, by a server's URL or through Sentinels, with calls that can be cancelled at any moment;
refuse an invalid REDIS_URL or a cluster, and wait until it stores values.

    redis+sentinel://:PASSWORD@HOST:PORT,HOST:PORT/NAME/DATABASE

With `rediss+sentinel`, all connections use TLS. Query parameters are redis-py's, such as `ssl_ca_certs`, and
`sentinel_password` for Sentinels with a password.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from redis import exceptions
from redis.asyncio import Redis, SSLConnection
from redis.asyncio.connection import URL_QUERY_ARGUMENT_PARSERS, AbstractConnection, parse_url
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from bot.core.errors import UserError
from k8s.retry import Retry

log = logging.getLogger(__name__)

REDIS_RETRY = Retry(base=1.0)
START_KEY = "sweepbot:start"
NO_CLUSTER = (
    "REDIS_URL: the server is part of a cluster, which can't run Sweepbot's scripts. Use a single primary; "
    "for failover, replicas with Sentinel: redis+sentinel://HOST:26379/NAME."
)
INVALID = (
    "REDIS_URL must be a URL such as redis://host:6379/0, with special characters of a password "
    "percent-encoded: / as %2F, for example."
)
SCHEMES = ("redis+sentinel", "rediss+sentinel")
DEFAULT_PORT = 26379
# Of redis-py, those with a text or a number, and without an effect on what calls return.
PARAMETERS = (
    *("client_name", "db", "health_check_interval", "max_connections", "password", "protocol", "username"),
    *("retry_on_timeout", "sentinel_password", "socket_connect_timeout", "socket_keepalive"),
    *("socket_timeout", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile"),
    *("ssl_check_hostname", "ssl_ciphers", "ssl_keyfile", "ssl_min_version", "ssl_password"),
)


def connect(url: str, **options: Any) -> Redis:
    """Return a client of the URL with calls that never lose a cancellation.

    redis-py sends with asyncio.wait_for, which on Python 3.11 swallows a cancellation that arrives just as
    the call succeeds (https://github.com/python/cpython/issues/86296): a loop of calls would never end.
    It also starts a task for each command, a fifth of the client's CPU time.
    Python 3.12 does neither.

    Raises UserError for an invalid URL, and for TLS files that can't be read.
    """
    try:
        _check(url)
        with_sentinel = urlsplit(url).scheme in SCHEMES
        redis = _connect_primary(url, **options) if with_sentinel else Redis.from_url(url, **options)
        pool = redis.connection_pool
        pool.connection_class = _cancellable(pool.connection_class)
        connection = pool.make_connection()  # type: ignore[no-untyped-call]
        if isinstance(connection, SSLConnection):
            connection.ssl_context.get()
    except ValueError:  # with a part of a password that isn't encoded
        raise UserError(INVALID) from None
    except OSError as error:
        raise UserError(f"REDIS_URL: a file or cipher of an ssl_ parameter can't be used: {error}.") from None
    except RedisError as error:
        raise UserError(f"REDIS_URL: {error}.") from None
    return redis


def _check(url: str) -> None:
    """Raise UserError for what redis-py ignores or fails on later, and ValueError for what isn't a URL."""
    parts = urlsplit(url)
    is_socket = parts.scheme == "unix"
    if is_socket and not parts.path:
        raise ValueError
    if not is_socket and "@" in parts.path + parts.fragment:  # a part of a password
        raise ValueError
    for name, value in parse_qsl(parts.query):
        if name not in PARAMETERS:
            if "@" in parts.query:  # a part of a password, too
                raise ValueError
            raise UserError(f'REDIS_URL: unknown parameter "{name}". Available: {", ".join(PARAMETERS)}.')
        if name.startswith("ssl_") and not parts.scheme.startswith("rediss"):
            raise UserError(f"REDIS_URL: {name} needs TLS, that is, a URL that starts with rediss.")
        try:
            URL_QUERY_ARGUMENT_PARSERS.get(name, str)(value)
        except ValueError:
            raise UserError(f"REDIS_URL: the value of {name} is invalid.") from None
    path = parts.path.strip("/")
    database = path.partition("/")[2] if parts.scheme in SCHEMES else path
    if database and not is_socket and not database.isdecimal():
        raise UserError("REDIS_URL: the database must be a number, as in redis://host:6379/0.")


async def wait_until_writable(redis: Redis, stop: asyncio.Event) -> bool:
    """Return True once Redis stores values, False if `stop` is set first.

    A replica, a full server, and one whose disk is full answer but store nothing.

    Raises UserError on a rejected login, and if the server is part of a cluster.

    A process that exits instead would be restarted by Kubernetes with delays of up to 5 min
    (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
    """
    logged = False
    while not stop.is_set():
        try:
            await _reject_cluster(redis)
            await redis.set(START_KEY, b"", px=1)
        except AuthenticationError:
            raise UserError("REDIS_URL: Redis rejected the login.") from None
        except (RedisError, TimeoutError) as error:
            if not logged:
                log.warning("waiting for Redis: %s", error)
            logged = True
        else:
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), REDIS_RETRY.seconds())
    return False


async def _reject_cluster(redis: Redis) -> None:
    """Raise UserError for a cluster: a script there can only use keys of one slot.

    All keys in one slot would be on one server again, without the cluster's size and with its restrictions.
    """
    try:
        info = await redis.info("cluster")
    except ResponseError:  # some managed services forbid INFO
        return
    if info.get("cluster_enabled"):
        raise UserError(NO_CLUSTER)


class _Cancellable(AbstractConnection):
    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send as redis-py does, with asyncio.timeout instead of asyncio.wait_for."""
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(self.socket_timeout):
                await self._send_packed_command([command] if isinstance(command, bytes) else command)
        except TimeoutError as error:
            await self.disconnect(nowait=True)
            raise exceptions.TimeoutError("Timeout writing to socket") from error
        except OSError as error:
            await self.disconnect(nowait=True)
            raise exceptions.ConnectionError(f"Error writing to socket: {error}") from error
        except BaseException:
            await self.disconnect(nowait=True)  # the next call would read this one's reply
            raise


def _cancellable(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a cancellable subclass of the connection class for the URL: TCP, TLS, or a Unix socket."""
    return type(kind.__name__, (_Cancellable, kind), {})


def _connect_primary(url: str, **options: Any) -> Redis:
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
    parts = urlsplit(f"//{host.strip()}")
    return parts.hostname or "", parts.port or DEFAULT_PORT


class _Pool(SentinelConnectionPool):
    """Closes the connections to the Sentinels, too."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        await super().disconnect(inuse_connections)
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()
