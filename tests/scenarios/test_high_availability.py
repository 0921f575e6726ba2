"""A worker is killed, one loses Redis, one freezes, a server dies: others take over, and nothing is doubled.

At the end, workers of two versions share the sweeps of an update.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from local.world import ROOT
from tests.scenarios.local_world import WAIT_SECONDS, Instance, Sweep, instance, until
from tests.scenarios.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = pytest.mark.slow
LEASE = 30_000  # milliseconds, of a work item
NEW_FIELD = "    version: int = 0\n", "    version: int = 0\n    starred: bool = False\n"
MASKED = "replace(sweep, reason=self.clients.mask(sweep.reason)"
USED = f"{MASKED})", f"{MASKED}, starred=True)"


class Bots:
    """Sweepbot's processes, by name. `git` and `cut` can be paused: the git host, and one worker's Redis."""

    def __init__(self, here: Instance, redis: Redis, git: TcpProxy, cut: TcpProxy, config: Path) -> None:
        self.here, self.redis, self.git, self.cut, self.config = here, redis, git, cut, config
        self.changes = here.here.store.follow(here.here.store.version)

    async def start(self, name: str, command: str, *prefix: str, **env: str) -> None:
        words = (*prefix, sys.executable, "-m", "bot", command)
        env = {**self.here.here.env, "SWEEPBOT_CONFIG": str(self.config), **env}
        await self.here.here.processes.start(name, *words, env=env)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.killpg(self.here.here.processes._running[name].pid, number)

    def log(self, name: str) -> str:
        return self.here.here.processes._log(name)

    async def sockets(self, count: int) -> None:
        sockets = self.here.slack.sockets
        await until(lambda: len(sockets.connections) == count, f"{count} servers are connected to Slack")

    async def are_leased(self, sweeps: list[Sweep]) -> bool:
        return -2 not in await self.leases(sweeps)

    async def leases(self, sweeps: list[Sweep]) -> list[int]:
        """The milliseconds left of each sweep's lease; -2: none."""
        return [int(await self.redis.pttl(f"sweepbot:queue:lease:{each.id}")) for each in sweeps]

    async def saved(self, sweep: Sweep, text: str) -> None:
        """Return once the record in Redis contains this text."""

        async def is_saved() -> bool:
            record = await self.redis.hget(f"sweepbot:sweep:{sweep.id}", "record")
            return text.encode() in (record or b"")

        async with asyncio.timeout(WAIT_SECONDS):
            while not await is_saved():  # noqa: ASYNC110 - another process's record
                await asyncio.sleep(0.05)

    async def leader(self, *, not_: bytes | None = None) -> bytes | None:
        holder = await self.redis.get("sweepbot:resync")
        return holder if holder != not_ else None

    def created(self) -> dict[str, list[str]]:
        """The names of all created objects by kind, repetitions included."""
        found: dict[str, list[str]] = {"Experiment": [], "Job": []}
        for change in [self.changes.get_nowait() for _ in range(self.changes.qsize())]:
            if change.type == "ADDED":
                found.setdefault(change.object["kind"], []).append(change.object["metadata"]["name"])
        return found


@asynccontextmanager
async def bots(folder: Path, mlflow_url: str) -> AsyncIterator[Bots]:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(instance(folder / "world", mlflow_url, bots=("serve",)))
        env = here.here.env
        redis = await stack.enter_async_context(Redis.from_url(env["REDIS_URL"]))
        known = await asyncio.to_thread(Path(env["SWEEPBOT_CONFIG"]).read_text)
        [url] = re.findall(r"url: (\S+)/digits\.git", known)
        git = await stack.enter_async_context(tcp_proxy(url))
        cut = await stack.enter_async_context(tcp_proxy(env["REDIS_URL"]))
        (config := folder / "config.yaml").write_text(known.replace(url, git.url))
        yield Bots(here, redis, git, cut, config)


def copy_newer_version(folder: Path) -> None:
    """Copy the product, compiled as it is, and use a new field of the record in each save."""
    for name in ("bot", "handlers", "k8s"):
        shutil.copytree(ROOT / name, folder / name)
    for file, (old, new) in {"bot/core/record.py": NEW_FIELD, "bot/sweep/sweeps/reconciler.py": USED}.items():
        text = (folder / file).read_text()
        assert text.count(old) == 1, file
        (folder / file).write_text(text.replace(old, new))


async def finished(sweeps: list[Sweep]) -> None:
    for sweep in sweeps:
        await sweep.posts("results.csv")


async def one_sweep_in_each_of_three_workers(all_: Bots) -> list[Sweep]:
    """Each waits for git. One of the two servers is killed in between."""
    all_.git.pause()
    await all_.start("serve-2", "serve")
    for name, redis in (("killed", {}), ("cut", {"REDIS_URL": all_.cut.url}), ("frozen", {})):
        await all_.start(name, "work", WORKER_CONCURRENCY="1", **redis)
    await all_.sockets(2)
    sweeps = [await all_.here.sweep("branch=main space=tiny")]
    all_.signal("serve", signal.SIGKILL)
    await all_.sockets(1)
    return [*sweeps, *[await all_.here.sweep("branch=main space=tiny") for _ in range(2)]]


async def test_other_processes_take_over_what_lost_ones_held(
    tmp_path: Path, mlflow_url: str, wait_until
) -> None:
    async with bots(tmp_path, mlflow_url) as all_:
        sweeps = await one_sweep_in_each_of_three_workers(all_)
        await wait_until(lambda: all_.are_leased(sweeps), "each worker holds a sweep")
        leader = await wait_until(all_.leader, "one of them leads")

        await all_.start("healthy", "work")
        all_.signal("killed", signal.SIGKILL)
        all_.cut.pause()
        all_.signal("frozen", signal.SIGSTOP)
        assert all(left <= LEASE for left in await all_.leases(sweeps))
        all_.git.resume()
        await finished(sweeps)
        await wait_until(lambda: all_.leader(not_=leader), "the healthy worker leads")

        before = len(all_.log("frozen"))
        all_.signal("frozen", signal.SIGCONT)
        all_.cut.resume()
        await until(lambda: len(all_.log("frozen")) > before, "the frozen worker continues")
        await until(lambda: "Redis" in all_.log("cut"), "the other one has noticed", lambda: all_.log("cut"))

        sweeps += await update(all_, tmp_path / "newer")
        created = all_.created()
        assert Counter(created["Experiment"]) == Counter(sweep.id for sweep in sweeps)
        assert max(Counter(name for name in created["Job"] if name.startswith("build")).values()) == 1
        for sweep in sweeps:
            assert max(Counter(sweep.thread()).values()) == 1, sweep.story()
        assert all_.here.pods_alive() == []


async def update(all_: Bots, folder: Path) -> list[Sweep]:
    """A newer version joins, and saves a sweep first; then the older workers run beside it."""
    older = ("healthy", "frozen", "cut")
    await asyncio.to_thread(copy_newer_version, folder)
    await all_.start("newer", "work", "env", "-C", str(folder))
    for name in older:
        all_.signal(name, signal.SIGSTOP)
    sweep = await all_.here.sweep("branch=main space=tiny")
    await all_.saved(sweep, '"starred":true')
    for name in older:
        all_.signal(name, signal.SIGCONT)
    await finished([sweep])
    await all_.saved(sweep, '"starred":true')
    assert not any("Traceback" in all_.log(name) for name in (*older, "newer"))
    return [sweep]
