"""Run Sweepbot with a local cluster and a Slack page; `--once` runs one sweep and exits."""

import argparse
import asyncio
import contextlib
import html
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from local import demo_environments, demo_usage
from local.processes import EndedError
from local.slack.workspace import ADA, Change
from local.world import World, world

STARTING = "Starting Redis, Kubernetes, Katib, a registry, a git host, MLflow, and Slack on this machine..."
COMMAND = "branch=main gpus=1 space=lr"
# Exit code by the start of the thread's last message, after the mention of the owner.
ENDS = {":white_check_mark: Finished": 0, ":x:": 1, ":no_entry_sign:": 1}
SWEEP_TIMEOUT = 600  # seconds


async def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m local demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="run one sweep, and exit with 0 if it succeeds")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sweepbot-demo-", ignore_cleanup_errors=True) as folder:
        print(STARTING, flush=True)
        try:
            async with world(Path(folder)) as here:
                return await _live(here, once=options.once)
        except EndedError as error:
            print(error, flush=True)
            return 1


async def _live(here: World, *, once: bool) -> int:
    try:
        await demo_usage.write(here.env["REDIS_URL"])
        demo_environments.install(here)
        await here.start_bot("serve", "work")
        print(_welcome(here), flush=True)
        if once:
            return await _sweep(here)
        await asyncio.sleep(5)  # for a worker to see the nodes
        await here.slack.command("ada", "sweeps", "/gpus", "digest")
        return await _until(here, lambda: False)
    except asyncio.CancelledError:
        print("\nStopping everything...", flush=True)
        raise


async def _until(here: World, done: Callable[[], bool]) -> int:
    """Wait until `done()`. Raises EndedError if a process exits."""
    while not done():
        here.processes.check()
        await asyncio.sleep(0.2)
    return 0


def _welcome(here: World) -> str:
    return f"""
  Slack     {here.slack.url}
            open it and run   /sweep {COMMAND}   in #sweeps
            space=idle waits before training: after a few seconds, a warning about idle GPUs follows
            /gpus shows free GPUs; yesterday's GPU digest is in the channel
            /env start lab starts a research environment, with a page in place of Jupyter
  MLflow    {here.env["MLFLOW_TRACKING_URI"]}
  kubectl   export KUBECONFIG={here.folder / "kubeconfig"}; kubectl -n sweeps get pods,experiments
  git       commit in {here.git / "digits"} and push, then start another sweep
  logs      {here.folder / "logs"}
  Ctrl-C stops everything.
"""


async def _sweep(here: World) -> int:
    """Run a sweep, print its thread, and return 0 if it succeeds."""
    ends: list[int] = []

    def on_change(change: Change) -> None:
        if change["type"] == "posted" and "thread_ts" in change["message"]:
            text = change["message"]["text"]
            print(_readable(text), flush=True)
            unaddressed = re.sub(r"<@\w+> ", "", text, count=1)
            ends.extend(code for begin, code in ENDS.items() if unaddressed.startswith(begin))

    here.slack.listen(on_change)
    print(f"Ada in #sweeps: /sweep {COMMAND}")
    print(_readable(await here.slack.command("ada", "sweeps", "/sweep", COMMAND) or ""), flush=True)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_until(here, lambda: bool(ends)), SWEEP_TIMEOUT)
    if ends != [0]:
        print("" if ends else f"The sweep didn't finish within {SWEEP_TIMEOUT} s.")
        print(here.processes.last_lines("work"))
    return ends[0] if ends else 1


def _readable(text: str) -> str:
    """Return the text without Slack's markup, indented."""
    text = re.sub(r"<[^|>]*\|([^>]*)>", r"\1", text).replace(f"<@{ADA.id}>", "@ada")
    text = html.unescape(re.sub(r"^:[a-z_]+: |```\n?|[`*]", "", text))
    return "\n".join(f"  | {line}" for line in text.splitlines())
