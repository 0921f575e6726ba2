"""From `/sweep` to the build's Job, and to the experiment when the image exists, beside a script.

Everything is the local world's: git over HTTP, registry, API server, Slack, and builds. The repository is
fetched already, and each Job builds a new commit. The script (bench/peers/launch_script.py) makes the same
calls in a row, with the same clients, and saves nothing in Redis.
"""

import asyncio
import copy
import json
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import yaml
from redis.asyncio import Redis

from bench.child import ROOT, child
from bench.table import Row, compared
from bot.platform.storage.redis_client import connect
from k8s.objects import Manifest
from local.world import NAMESPACE, World, commit, world

ROUNDS, LIMIT = 5, 1.3
TIMEOUT = 120.0  # seconds for one step
SETTLE = 5.0  # seconds after the end of a sweep, in which Slack accepts as many posts as it had
FILES = ("sweeps/lr.yaml", "uv.lock", "pyproject.toml")
COMMAND = "repo=uv branch=main space=lr trials=1"
AGAINST = "the same calls in a row by a script"
QUIET = {"USAGE_SECONDS": "300", "WATCH_SECONDS": "300"}  # no samples of GPUs meanwhile


async def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(world(Path(folder)))
            here.env |= QUIET
            await here.start_bot("serve", "work")
            redis = await stack.enter_async_context(connect(here.env["REDIS_URL"]))
            script = ("bench/peers/launch_script.py", here.env["REDIS_URL"])
            await stack.enter_async_context(child(*script, env={**here.env, "PYTHONPATH": str(ROOT)}))
            launches = Launches(here, redis)
            await launches.take()  # fetches the repositories and builds the dependencies
            taken = [await launches.take() for _ in range(ROUNDS)]
    ours, theirs = ([list(each) for each in zip(*side, strict=True)] for side in zip(*taken, strict=True))
    whats = "/sweep to build Job created, new commit", "/sweep to experiment created, image exists"
    return [
        compared(what, AGAINST, *figures, unit="ms", at_most=LIMIT)
        for what, *figures in zip(whats, ours, theirs, strict=True)
    ]


class Launches:
    def __init__(self, here: World, redis: Redis) -> None:
        self.here, self.redis, self.number = here, redis, 0
        config = yaml.safe_load(Path(here.env["SWEEPBOT_CONFIG"]).read_text())
        self.url = config["repositories"]["uv"]["url"]

    async def take(self) -> tuple[list[float], list[float]]:
        """Return the milliseconds until a Job and until an experiment: Sweepbot's, and the script's."""
        self._commit()
        until_job, job = await self._timed("Job", self._sweep())
        await self._cancel(await self._first("Experiment"))  # the build has ended
        until_experiment, experiment = await self._timed("Experiment", self._sweep())
        await self._cancel(experiment)
        self._commit()
        return [until_job, until_experiment], [await self._by_script(each) for each in (job, experiment)]

    def _commit(self) -> None:
        self.number += 1
        program = self.here.git / "uv" / "train.py"
        program.write_text(f"{program.read_text()}# {self.number}\n")
        commit(self.here.git / "uv", f"Change {self.number}")

    async def _timed(self, kind: str, action: Awaitable[object]) -> tuple[float, Manifest]:
        """Return the milliseconds from the action's start until an object of this kind is created."""
        started = monotonic()
        (found, at), _ = await asyncio.gather(self._created(kind), action)
        return 1000 * (at - started), found

    async def _created(self, kind: str) -> tuple[Manifest, float]:
        """Wait for a new object that no other one owns; return it, and when it was created."""
        store = self.here.store
        changes = store.follow(store.version)
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    change = await changes.get()
                    owned = "ownerReferences" in change.object["metadata"]
                    if (change.type, change.object["kind"], owned) == ("ADDED", kind, False):
                        return copy.deepcopy(change.object), monotonic()
        finally:
            store.unfollow(changes)

    async def _first(self, kind: str) -> Manifest:
        async with asyncio.timeout(TIMEOUT):
            while not (found := self.here.store.list(kind, NAMESPACE)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return found[0]

    async def _sweep(self, words: str = COMMAND) -> None:
        await self.here.slack.command("ada", "sweeps", "/sweep", words)

    async def _cancel(self, experiment: Manifest) -> None:
        """Cancel the sweep, delete its experiment, and wait until its pods are gone."""
        store, name = self.here.store, experiment["metadata"]["name"]
        await self._sweep(f"cancel {name}")
        async with asyncio.timeout(TIMEOUT):
            while any(map(_is_live, store.list("Pod", NAMESPACE))):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE)
        store.delete("Experiment", NAMESPACE, name)

    async def _by_script(self, manifest: Manifest) -> float:
        self.number += 1
        name = f"script-{self.number}"
        order = {"url": self.url, "files": FILES, "manifest": _copied(manifest, name)}
        milliseconds, made = await self._timed(
            manifest["kind"], self.redis.lpush("orders", json.dumps(order))
        )
        self.here.store.delete(made["kind"], NAMESPACE, name)
        return milliseconds


def _is_live(pod: Manifest) -> bool:
    return pod["status"]["phase"] in {"Pending", "Running"}


def _copied(manifest: Manifest, name: str) -> Manifest:
    """Return the manifest as a client sends it, without labels, by which it would be a sweep's."""
    spec = {key: value for key, value in manifest["spec"].items() if key != "selector"}
    if manifest["kind"] == "Job":
        spec["template"] = {**spec["template"], "metadata": {}}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": meta, "spec": spec}
