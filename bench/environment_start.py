"""From `/env start` to a ready environment, beside `kubectl apply` of the same objects and `kubectl wait`.

Everything is the local world's: API server, controllers, node, and Slack. The image is pulled, the home is
new, and the readiness probe asks every 2 seconds, as in a cluster. The local node shares this machine's
ports, so one environment runs at a time. Needs kubectl (Debian's package kubernetes-client).
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from bench.table import Row, compared, interleaved
from bot.platform.config.policy import Config, read_config
from bot.workspaces.environments import cluster
from bot.workspaces.environments.record import EnvironmentRecord
from bot.workspaces.environments.spec import spec_of
from k8s.environments import claim, ingress, secret, service, stateful_set
from k8s.objects import MANAGED_BY, Manifest
from local import demo_environments
from local.slack.workspace import ADA, Change
from local.world import World, world

ROUNDS, LIMIT = 7, 1.2
TIMEOUT = 120.0  # seconds for one step
NAME, SCRIPT = "lab", "script"
AGAINST = "kubectl apply of the same objects, and kubectl wait"
QUIET = {"USAGE_SECONDS": "300", "WATCH_SECONDS": "300"}  # no samples of GPUs meanwhile

WHATS = (
    "/env start to its pod created",
    "/env start to ready",
    "/env start to Running in its message",
)
Times = tuple[float, float, float]  # milliseconds, one for each of WHATS


async def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(world(Path(folder)))
            here.env |= QUIET
            demo_environments.install(here)
            await here.start_bot("serve", "work")
            starts = Starts(here)
            taken = await interleaved(ROUNDS, starts.by_command, starts.by_kubectl)
    ours, theirs = (list(zip(*side, strict=True)) for side in taken)
    return [
        compared(what, AGAINST, *figures, unit="ms", at_most=LIMIT)
        for what, *figures in zip(WHATS, ours, theirs, strict=True)
    ]


class Starts:
    def __init__(self, here: World) -> None:
        self.here = here
        config = read_config(Path(here.env["SWEEPBOT_CONFIG"]))
        self.namespace = cluster.configured(config).namespace
        self.manifest = here.folder / "environment.json"
        objects = {"apiVersion": "v1", "kind": "List", "items": _objects(config)}
        self.manifest.write_text(json.dumps(objects))

    async def by_command(self) -> Times:
        times = await self._timed(NAME, self._start())
        await self._env(f"delete {NAME}")
        await self._removed(NAME)
        return times

    async def by_kubectl(self) -> Times:
        times = await self._timed(SCRIPT, self._apply())
        await self._kubectl("delete", "--wait=false", "-f", str(self.manifest))
        await self._removed(SCRIPT)
        return times

    async def _timed(self, name: str, action: Awaitable[None]) -> Times:
        started = monotonic()
        (created, ready), _ = await asyncio.gather(self._ready(f"env-{name}"), action)
        return 1000 * (created - started), 1000 * (ready - started), 1000 * (monotonic() - started)

    async def _ready(self, name: str) -> tuple[float, float]:
        """Return when the StatefulSet's pod was created, and when it became ready."""
        created = 0.0
        changes = self.here.store.follow(self.here.store.version)
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    found = (await changes.get()).object
                    match found["kind"], found["metadata"]["name"]:
                        case ("Pod", pod) if pod == f"{name}-0":
                            created = created or monotonic()
                        case ("StatefulSet", own) if own == name and found["status"].get("readyReplicas"):
                            return created, monotonic()
        finally:
            self.here.store.unfollow(changes)

    async def _start(self) -> None:
        """Start the environment, and wait until its message says that it runs."""
        shown = asyncio.Event()

        def on_change(change: Change) -> None:
            if change.get("message", {}).get("text", "") == f"{NAME}: Running":
                shown.set()

        unlisten = self.here.slack.listen(on_change)
        await self._env(f"start {NAME}")
        await asyncio.wait_for(shown.wait(), TIMEOUT)
        unlisten()

    async def _env(self, text: str) -> None:
        await self.here.slack.command("ada", "sweeps", "/env", text)

    async def _apply(self) -> None:
        # The local API server has no schemas for kubectl to validate with: a real one is a request slower.
        await self._kubectl("apply", "--validate=false", "-f", str(self.manifest))
        ready = "--for=jsonpath={.status.readyReplicas}=1"
        await self._kubectl("wait", ready, f"statefulset/env-{SCRIPT}", f"--timeout={TIMEOUT:.0f}s")

    async def _kubectl(self, *arguments: str) -> None:
        """Raises RuntimeError if it fails."""
        env = {**os.environ, "KUBECONFIG": str(self.here.folder / "kubeconfig")}
        cache = f"--cache-dir={self.here.folder / 'kubectl'}"
        command = ("kubectl", cache, "--namespace", self.namespace, *arguments)
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=quiet)
        if code := await process.wait():
            raise RuntimeError(f"kubectl {arguments[0]} exited with {code}")

    async def _removed(self, name: str) -> None:
        """Wait until nothing is left of it, and delete its home."""
        store, kinds = self.here.store, ("StatefulSet", "Pod", "Secret")
        async with asyncio.timeout(TIMEOUT):
            while any(store.list(kind, self.namespace) for kind in kinds):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        if store.get("PersistentVolumeClaim", self.namespace, f"home-{name}"):
            store.delete("PersistentVolumeClaim", self.namespace, f"home-{name}")


def _objects(config: Config) -> list[Manifest]:
    """Return what a start creates, without the label by which it would be Sweepbot's."""
    environments = cluster.configured(config)
    record = EnvironmentRecord(
        name=SCRIPT,
        owner=ADA.id,
        channel="",
        request_id="",
        image=environments.images[0].name,
        size=environments.sizes[0].name,
        gpus=0,
        home=SCRIPT,
        home_size=environments.home,
        since=datetime.now(UTC),
    )
    spec = spec_of(record, config)
    home = claim(spec.namespace, SCRIPT, ADA.id, record.home_size)
    pods = stateful_set(spec, "")
    pods["spec"]["replicas"] = 1
    made = [home, secret(spec, "", "login"), service(spec, ""), ingress(spec, ""), pods]
    for each in (*made, pods["spec"]["template"]):
        del each["metadata"]["labels"][MANAGED_BY]
    return made
