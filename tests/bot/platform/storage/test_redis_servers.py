"""Debian's own Redis as an installation runs it: with replicas and Sentinel, with TLS, as a cluster."""

import asyncio
import shutil
import subprocess
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from bot.core.errors import UserError
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.platform.storage.redis_client import connect, wait_until_writable
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from tests.bot.factories import NOW, a_sweep
from tests.free_port import free_port
from tests.servers import running

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")
OPENSSL = shutil.which("openssl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SERVER, reason="redis-server isn't installed"),
    pytest.mark.skipif(not OPENSSL, reason="openssl isn't installed"),
]
SENTINEL = """\
sentinel monitor sweepbot 127.0.0.1 {port} 1
sentinel auth-pass sweepbot secret
sentinel down-after-milliseconds sweepbot 1000
"""


class Servers:
    """Redis servers with TLS and the password `secret`; they end with the test."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.ca = folder / "cert.pem"
        subject = ["-subj", "/CN=redis", "-addext", "subjectAltName=IP:127.0.0.1"]
        key = ["-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem", "-out", self.ca]
        subprocess.run(
            [OPENSSL, "req", "-x509", "-days", "2", *subject, *key], check=True, capture_output=True
        )
        self.processes = {}

    def start(self, *more: object, sentinel: str = "", tls: bool = True, password: bool = True) -> int:
        port = free_port()
        (home := self.folder / str(port)).mkdir()
        words = [f"{'tls-port' if tls else 'port'} {port}", f"dir {home}", "bind 127.0.0.1", sentinel]
        if tls:
            files = [f"tls-cert-file {self.ca}", f"tls-key-file {self.folder / 'key.pem'}"]
            words += ["port 0", "tls-auth-clients no", "tls-replication yes", *files]
            words += [f"tls-ca-cert-file {self.ca}"]
        if password and not sentinel:
            words += ["requirepass secret", "masterauth secret"]
        (home / "conf").write_text("\n".join(words) + "\n")
        command = [SERVER, home / "conf", *(["--sentinel"] if sentinel else []), *more]
        self.processes[port] = self._stack.enter_context(running(command, port, home / "log"))
        return port

    def kill(self, port: int) -> None:
        self.processes[port].kill()
        self.processes[port].wait()


@pytest.fixture
async def servers(tmp_path):
    async with AsyncExitStack() as stack:
        yield Servers(tmp_path, stack)


async def test_queue_and_records_survive_a_failover_by_sentinel_over_tls(servers, wait_until):
    primary = servers.start()
    replica = servers.start("--replicaof", "127.0.0.1", primary)
    direct = f"rediss://:secret@127.0.0.1:{{}}?ssl_ca_certs={servers.ca}"
    async with connect(direct.format(replica)) as copy:
        await wait_until(lambda: is_synced(copy), "the replica follows")
    sentinel = servers.start(sentinel=SENTINEL.format(port=primary))
    hosts = f"127.0.0.1:{sentinel},127.0.0.1:{free_port()}"  # the second one is down
    async with connect(f"rediss+sentinel://:secret@{hosts}/sweepbot/0?ssl_ca_certs={servers.ca}") as redis:
        await wait_until(lambda: knows_replica(redis), "Sentinel knows the replica")
        queue, store = Queue(redis, lease=600), Store(redis)
        sweep, _ = await store.create(a_sweep(id="lr-x"), ["lr-x"], "r1", queue=queue)
        lease = await queue.get()
        await queue.add(WorkItem.sweep("lr-y"))
        saved = await store.save(sweep.to(Phase.RUNNING, NOW), lease)
        assert await redis.wait(1, 10_000) == 1
        servers.kill(primary)

        async def beats() -> bool:
            with suppress(RedisError):
                return await queue.heartbeat(lease)
            return False

        await wait_until(beats, "the new primary renews the lease")
        assert await store.get("lr-x") == saved
        assert await store.save(saved, lease)
        assert (await queue.get(wait=0)).item.key == "lr-y"
        assert await queue.get(wait=0) is None, "the first item still has its lease"


async def is_synced(replica) -> bool:
    with suppress(RedisError):
        return (await replica.info("replication"))["master_link_status"] == "up"
    return False


async def knows_replica(redis) -> bool:
    [sentinel, *_] = redis.connection_pool.sentinel_manager.sentinels
    with suppress(RedisError):
        return bool(await sentinel.sentinel_slaves("sweepbot"))
    return False


async def test_cluster_is_refused_with_what_to_use_instead(servers):
    # By default the bus listens on the port plus 10,000, which not every free port allows.
    bus = free_port()
    port = servers.start("--cluster-enabled", "yes", "--cluster-port", bus, tls=False, password=False)
    async with connect(f"redis://127.0.0.1:{port}") as redis, asyncio.timeout(200):
        with pytest.raises(UserError) as refused:
            await wait_until_writable(redis, asyncio.Event())
    text = str(refused.value)
    assert text.startswith("REDIS_URL: the server is part of a cluster, which can't run Sweepbot's scripts.")
    assert text.endswith("redis+sentinel://HOST:26379/NAME.")
