"""What a build costs: bytes pushed and pulled, registry requests and Jobs. `python -m bench.builds`

A local world with the uv example, and a relay before the registry that counts the requests of Sweepbot and
Kaniko. Seconds depend on the machine; the counts don't, and tests check them.
"""

import argparse
import asyncio
import gzip
import json
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import distribution
from bench.relay import Relay
from local.world import NAMESPACE, World, commit, world

RESULTS = Path(__file__).parent / "results" / "builds.json"
TIMEOUT_SECONDS = 120  # seconds for one build


@dataclass(frozen=True)
class Cost:
    case: str
    seconds: float  # from the command to "image ready", with all waiting
    pushed: int  # bytes
    pulled: int
    requests: int
    jobs: int
    changed: int  # bytes of the changed files, compressed


class Bench:
    def __init__(self, here: World, relay: Relay) -> None:
        self.here, self.relay = here, relay
        self.copy = here.git / "uv"
        self.jobs: set[str] = set()

    async def run(self) -> list[Cost]:
        await self.here.start_bot("serve", "work")
        costs = [await self._cost("first build"), await self._cost("same commit")]
        program = (self.copy / "train.py").read_text().replace("1000", "900")
        costs.append(await self._cost("code only", {"train.py": program}))
        lock = (self.copy / "uv.lock").read_text() + "# changed\n"
        costs.append(await self._cost("dependencies", {"uv.lock": lock}))
        return costs

    async def _cost(self, case: str, change: dict[str, str] | None = None) -> Cost:
        changed = 0
        for name, text in (change or {}).items():
            (self.copy / name).write_text(text)
            changed += len(gzip.compress(text.encode()))
        if change:
            commit(self.copy, case)
        self.relay.take()
        started_at = time.monotonic()
        await self._sweep()
        seconds, counts = time.monotonic() - started_at, self.relay.take()
        jobs = self._new_jobs()
        return Cost(case, round(seconds, 1), counts.pushed, counts.pulled, counts.requests, jobs, changed)

    async def _sweep(self) -> None:
        """Wait for its image; then cancel the sweep, which sends nothing to the registry."""
        slack, built, more = self.here.slack, list[str](), asyncio.Event()

        def on_message(change: dict[str, Any]) -> None:
            if "✓ Image" in (text := str(change["message"])):  # in a block of the parent message
                built.append(text)
                more.set()

        stop_listening = slack.listen(on_message)
        answer = await slack.command("ada", "sweeps", "/sweep", "repo=uv branch=main space=lr trials=1")
        name = str(answer).split("`")[1]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not any(name in text for text in built):
                more.clear()
                await more.wait()
        stop_listening()
        await slack.command("ada", "sweeps", "/sweep", f"cancel {name}")

    def _new_jobs(self) -> int:
        named = [job["metadata"]["name"] for job in self.here.store.list("Job", NAMESPACE)]
        new = {name for name in named if name.startswith("build-")} - self.jobs
        self.jobs |= new
        return len(new)


@asynccontextmanager
async def bench(folder: Path, tracking: str = "", *, real: bool) -> AsyncIterator[Bench]:
    """`tracking`: URL of an MLflow to use. `real`: Debian's docker-registry in place of the local world's."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(world(folder, tracking))
        address = await distribution.start(folder, here.processes) if real else here.env["IMAGE_REGISTRY"]
        relay = Relay(address)
        context = await relay.start()
        stack.push_async_callback(context.close)
        here.env |= {"IMAGE_REGISTRY_PUSH": context.address, "IMAGE_REGISTRY_API": context.address}
        yield Bench(here, relay)


async def measure(folder: Path, tracking: str = "", *, real: bool) -> list[Cost]:
    async with bench(folder, tracking, real=real) as made:
        return await made.run()


def table(costs: list[Cost]) -> str:
    head = f"{'':14}{'seconds':>8}{'pushed':>12}{'pulled':>10}{'requests':>10}{'Jobs':>6}"
    lines = [
        f"{c.case:14}{c.seconds:>8}{c.pushed:>12,}{c.pulled:>10,}{c.requests:>10}{c.jobs:>6}" for c in costs
    ]
    return "\n".join([head, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.builds", description=__doc__)
    parser.add_argument("--real", action="store_true", help="against Debian's docker-registry")
    real = parser.parse_args().real
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as folder:
        costs = asyncio.run(measure(Path(folder), real=real))
    against = "Debian's docker-registry" if real else "the local world's registry"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"bodies in bytes, against {against}, on {machine}\n{table(costs)}")
    RESULTS.parent.mkdir(exist_ok=True)
    document = {"against": against, "on": machine, "builds": [asdict(cost) for cost in costs]}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
