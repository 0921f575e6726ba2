"""`make demo`: the world, a Sweepbot in it, and a Slack page to type in; `--once` types a sweep itself."""

import argparse
import asyncio
import contextlib
import re
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from local.slack.workspace import Change
from local.world import World, world

STARTING = "Starting Redis, Kubernetes, Katib, a registry, a git host, MLflow and Slack on this machine ..."
COMMAND = "branch=main gpus=1 space=lr"
ENDS = {":tada:": 0, ":x:": 1, ":no_entry_sign:": 1}
PATIENCE = 600  # seconds for a whole sweep


async def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m local demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="type one sweep and exit with its result")
    parser.add_argument("--port", type=int, default=0, help="of the Slack page; any free one without")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sweepbot-demo-", ignore_cleanup_errors=True) as folder:
        print(STARTING, flush=True)
        async with world(Path(folder), port=options.port) as here:
            await here.start_bot("serve", "work")
            print(_welcome(here), flush=True)
            return await _first([_watch(here), _sweep(here)] if options.once else [_watch(here)])


async def _first(works: list[Coroutine[Any, Any, int]]) -> int:
    """The answer of whichever ends first."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()


def _welcome(here: World) -> str:
    return f"""
  Slack     {here.slack.url}
            open it and type   /sweep {COMMAND}   in #sweeps
  MLflow    {here.env["MLFLOW_TRACKING_URI"]}
  kubectl   KUBECONFIG={here.folder / "kubeconfig"}
  git       commit in {here.git / "digits"} and push, then sweep again
  logs      {here.folder / "logs"}
  Ctrl-C ends everything.
"""


async def _watch(here: World) -> int:
    print(await here.processes.first_to_end(), flush=True)
    return 1


async def _sweep(here: World) -> int:
    """Type the sweep, print the thread as it grows; 0 only if the sweep succeeded."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def hear(change: Change) -> None:
        if change["type"] != "posted" or "thread_ts" not in change["message"]:
            return
        text = change["message"]["text"]
        print(_indented(text), flush=True)
        for emoji, code in ENDS.items():
            if text.startswith(emoji) and not ended.done():
                ended.set_result(code)

    here.slack.listen(hear)
    print(f"ada in #sweeps: /sweep {COMMAND}")
    print(_indented(await here.slack.command("ada", "sweeps", "/sweep", COMMAND) or ""), flush=True)
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(ended, PATIENCE)
    print(f"The sweep did not end within {PATIENCE} s.")
    return 1


def _indented(text: str) -> str:
    return "\n".join(f"  | {line}" for line in re.sub(r"<[^|>]*\|([^>]*)>", r"\1", text).splitlines())
