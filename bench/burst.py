"""How long it takes to tell of 40 sweeps that are started at once in one channel, within Slack's rate limits.

The local Slack has the documented ones: one post a second in a channel, after 10 at once, and 50 edits a
minute of the app. The image exists, and only four of the sweeps fit on the cluster, as when so many start.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

from bench.real_sweeps import QUIET
from bench.table import Row, bounded
from local.slack.workspace import Change
from local.world import World, commit, world

SWEEPS, LIMIT = 40, 46.0  # seconds until all have their message
TIMEOUT = 600.0  # seconds
COMMAND = "repo=requirements branch=main space=sleep gpus=1 trials=1"
SPACE = """
command: python -c 'import time; time.sleep(600)'
objective: {metric: loss, goal: minimize}
algorithm: grid
metrics: {from: stdout}
parameters:
  width: [1]
"""
STARTED, SUBMITTED = "/sweep to its message in the channel", "/sweep to its trial in that message"
TRIAL = (": Waiting for first trial", ": Running")  # in the message once the experiment exists


async def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(world(Path(folder)))
            here.env |= QUIET
            copy = here.git / "requirements"
            (copy / "sweeps" / "sleep.yaml").write_text(SPACE)
            commit(copy, "Sleep")
            await here.start_bot("serve", "work")
            await _told(here, 1)  # builds the image
            posted, submitted = await _told(here, SWEEPS)
    return [
        bounded(f"{what}, {SWEEPS} at once, the last", [max(figures)], unit="s", at_most=LIMIT)
        for what, figures in ((STARTED, posted), (SUBMITTED, submitted))
    ]


async def _told(here: World, count: int) -> tuple[list[float], list[float]]:
    """Start sweeps at once. Return the seconds until each has its message, and until that names its trial."""
    posted, submitted, told = dict[str, float](), dict[str, float](), asyncio.Event()

    def on_change(change: Change) -> None:
        message = change["message"] if change["type"] in {"posted", "edited"} else {"text": ""}
        if "thread_ts" not in message and ": " in message["text"]:
            posted.setdefault(message["ts"], monotonic() - started)
            if any(each in message["text"] for each in TRIAL):
                submitted.setdefault(message["ts"], monotonic() - started)
        if len(submitted) == count:
            told.set()

    unlisten, started = here.slack.listen(on_change), monotonic()
    try:
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(
                *(here.slack.command("ada", "sweeps", "/sweep", COMMAND) for _ in range(count))
            )
            await told.wait()
    finally:
        unlisten()
    return [*posted.values()], [*submitted.values()]
