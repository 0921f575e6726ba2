"""What an installation costs that runs no sweep: requests to the API server an hour, and CPU time.

One `serve` and one worker with default settings, without Prometheus, in the local world: two namespaces with
sweeps, and two nodes with GPUs. It is watched over two resyncs of 5 minutes each.
"""

import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

from bench.child import Child
from bench.real_sweeps import Counts, counting
from bench.table import Row, bounded
from bot.platform.config.settings import Settings
from local.world import world

SETTLING, WATCHED = 45.0, 600.0  # seconds
MOST_REQUESTS, MOST_CPU = 300, 0.5  # an hour; % of a core
# The local world asks for more samples; here they are as in an installation.
DEFAULTS = {
    name.upper(): str(Settings.model_fields[name].default) for name in ("usage_seconds", "watch_seconds")
}


async def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            requests: Counts = Counter()
            stack.enter_context(counting(requests))
            here = await stack.enter_async_context(world(Path(folder)))
            here.env |= DEFAULTS
            await here.start_bot("serve", "work")
            parts = [Child(here.processes.process(name)) for name in ("serve", "work")]
            await asyncio.sleep(SETTLING)
            before, used, began = Counter(requests), sum(each.cpu for each in parts), monotonic()
            await asyncio.sleep(WATCHED)
            seconds = monotonic() - began
            found, used = requests - before, sum(each.cpu for each in parts) - used
    hourly = {kind: round(number * 3600 / seconds) for kind, number in found.items()}
    share = 100 * used / seconds
    asked = Row(
        what="an idle installation: requests to the API server an hour",
        against="",
        measured=f"{hourly['Kubernetes']:,}",
        goal=f"at most {MOST_REQUESTS}",
        met=hourly["Kubernetes"] <= MOST_REQUESTS,
        samples={kind: [number] for kind, number in sorted(hourly.items())},
    )
    cpu = "an idle installation: CPU of `serve` and a worker, of a core"
    return [asked, bounded(cpu, [share], unit="%", at_most=MOST_CPU)]
