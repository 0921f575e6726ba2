"""What all tests share: a real Redis (Valkey) of their own, and waiting for facts."""

import asyncio
import gc
import os
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from inspect import isawaitable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from aiohttp import web
from redis import __version__ as redis_version
from redis.asyncio import Redis

from bot.measure.gpus import hourly_store
from bot.platform.storage import redis_client
from bot.platform.storage.redis_client import connect
from k8s.katib.training import COLLECTOR_VARIABLE
from local.redis import redis as server
from tests.free_port import free_port
from tests.shared_mlflow import shared_mlflow

TESTS = Path(__file__).parent
hypothesis.settings.register_profile("few", max_examples=25, deadline=None)  # 25 others at each run
hypothesis.settings.load_profile("few")
WaitUntil = Callable[..., Awaitable[Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
os.environ[COLLECTOR_VARIABLE] = "0"  # trainings' shells that tests start don't wait for Katib's collector


# `make slow` starts the files that take longest first; else one process would run the last of them alone.
LONGEST = (
    "scenarios/test_processes.py",
    "scenarios/test_command_line.py",
    "scenarios/test_builds.py",
    "scenarios/test_sweeps.py",
    "deploy/test_deployed.py",
    "scenarios/test_event_files.py",
    "scenarios/test_high_availability.py",
    "bot/measure/sources/test_prometheus_source.py",
    "scenarios/test_load.py",
    "bot/measure/sources/test_uneven_scrapes.py",
    "scenarios/test_metrics.py",
    "bot/sweep/results/test_mlflow_server.py",
    "handlers/test_http_bursts.py",
    "scenarios/test_second_cluster.py",
    "browser/test_environments.py",
    "browser/test_page.py",
    "bench/test_builds.py",
    "scenarios/test_cancel_drain_extend.py",
    "browser/test_form.py",
    "scenarios/test_device_claims.py",
    "scenarios/test_operator.py",
    "search/test_service.py",
    "chaos/test_faults.py",
    "scenarios/test_idle_gpus.py",
    "scenarios/test_gate_in_a_cluster.py",
    "local/test_demo.py",
    "scenarios/test_digest.py",
    "docs/test_install.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without",
        metavar="FEATURE",
        action="append",
        default=[],
        help="leave out stories that need this feature of a sweep, or this workspace",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = {TESTS / file: number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    without = {*config.getoption("--without")}
    needs = {item: {name for mark in item.iter_markers("features") for name in mark.args} for item in items}
    parts = [*TESTS.parent.glob("bot/sweep/features/*"), *TESTS.parent.glob("bot/workspaces/*")]
    known = {*without, *(folder.name for folder in parts)}
    if unknown := set().union(*needs.values()) - known:
        raise pytest.UsageError(f"marked with features that don't exist: {', '.join(sorted(unknown))}")
    if left_out := [item for item in items if needs[item] & without]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not needs[item] & without]


def pytest_collection() -> None:
    """Collect without garbage collection: thousands of tests only add objects that stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what was collected, which garbage collection would look through again and again.

    Few objects of a test are in cycles: collecting after each 700 took 4% of the tests' CPU time.
    """
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_public_certificates() -> Iterator[None]:
    """No test asks a public host, and to read the machine's certificates takes 33 ms for each client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def known_version() -> Iterator[None]:
    """redis-py reads its version from its package's metadata for each connection: 1% of a story's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redis.utils.get_lib_version", lambda version=redis_version: version)
        yield


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """One server for this test run, on a free port of 127.0.0.1."""
    # A terminated run has to end as an interrupted one does, or the server would outlive it.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with server() as url:
            yield url
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def mlflow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of this run's MLflow, which the processes of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "mlflow"


@pytest.fixture(scope="session")
def mlflow_url(mlflow_folder: Path) -> Iterator[str]:
    with shared_mlflow(mlflow_folder) as url:
        yield url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of an empty Redis, emptied again afterwards."""
    async with connect(redis_url) as client:
        yield client
        await client.flushall()


@pytest.fixture
async def no_litter(redis: Redis) -> AsyncIterator[None]:
    """Fails a test which leaves keys in Redis that would stay for ever."""
    yield
    left = [key.decode() async for key in redis.scan_iter() if await redis.ttl(key) == -1]
    assert not left, f"left in Redis for ever: {left}"


@pytest.fixture
def kept_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the hourly GPU use of fixed days: Redis has the machine's time and would expire them at once."""
    monkeypatch.setattr(hourly_store, "RETENTION", timedelta(days=100 * 365))


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is sent to Redis, one entry for each round trip."""
    sent: list[bytes] = []
    send = redis_client._Cancellable.send_packed_command

    async def counted(connection: Any, command: Any, check_health: bool = True) -> None:
        sent.append(b"".join(command) if isinstance(command, list) else bytes(command))
        await send(connection, command, check_health)

    monkeypatch.setattr(redis_client._Cancellable, "send_packed_command", counted)
    return sent


@pytest.fixture
def wait_until() -> WaitUntil:
    """`await wait_until(fact, "what the fact is")`: poll until it is true, give up after 200 seconds.

    Long enough for a machine that stands still for a while. Pauses grow to 0.1 s: a process that starts needs
    the CPU time that many requests would take.
    """

    async def wait(fact: Callable[[], Any], what: str, *, seconds: float = 200) -> Any:
        pause = 0.005
        try:
            async with asyncio.timeout(seconds) as limit:
                while not (found := await _value(fact)):
                    await asyncio.sleep(pause)
                    pause = min(0.1, 1.1 * pause)
                return found
        except TimeoutError:
            if not limit.expired():  # the fact's own
                raise
            pytest.fail(f"waited {seconds} s until {what}")

    return wait


async def _value(fact: Callable[[], Any]) -> Any:
    value = fact()
    return await value if isawaitable(value) else value


@pytest.fixture(name="free_port")
def _free_port() -> int:
    return free_port()


@pytest.fixture
async def toy() -> AsyncIterator[Callable[[Handler], Awaitable[str]]]:
    """`await toy(handler)`: an HTTP server that asks `handler` everything; its host and port."""
    async with AsyncExitStack() as stack:

        async def start(handler: Handler) -> str:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", handler)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return f"127.0.0.1:{runner.addresses[0][1]}"

        yield start
