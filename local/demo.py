"""Run Sweepbot with a local cluster and a Slack page; `--once` runs one sweep and exits.

`--repo PATH` adds a repository of your own, whose commits it reads where they are. `--full` adds what a
shared cluster has: Kueue's queues, kinds of machines, and services.
"""

import argparse
import asyncio
import contextlib
import html
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from local import demo_environments, demo_full, demo_usage
from local.processes import EndedError
from local.redis import free_port
from local.slack.workspace import ADA, Change
from local.world import REPOSITORIES, World, git, world

STARTING = "Starting Redis, Kubernetes, Katib, a registry, a git host, MLflow, and Slack on this machine..."
COMMAND = "branch=main gpus=1 space=lr"
REFUSED = "`.*` didn't start"
# Exit code by the start of the refusal, or of the thread's last message, after the mention of the owner.
ENDS = {REFUSED: 1, ":white_check_mark: .* · Finished": 0, ":x:": 1, ":no_entry_sign:": 1}
SWEEP_TIMEOUT = 600  # seconds


@dataclass(frozen=True)
class OwnRepository:
    name: str
    folder: Path
    git: Path  # its git directory
    command: str  # options of a first sweep

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raise ValueError if it can't be used."""
        try:
            top = Path(git(folder, "rev-parse", "--show-toplevel").strip())
            common = (folder / git(folder, "rev-parse", "--git-common-dir").strip()).resolve()
            branch = git(folder, "symbolic-ref", "--short", "HEAD").strip()
            files = git(top, "ls-tree", "--name-only", "HEAD", "sweeps/").split()
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", "") or error
            raise ValueError(f"{folder} isn't a git repository with a branch and a commit: {why}") from None
        spaces = [Path(file).stem for file in files if file.endswith(".yaml")]
        if not spaces:
            raise ValueError(f"{top} has no sweeps/NAME.yaml in a commit: see docs/first-sweep.md")
        name = re.sub(r"[^a-z0-9._-]+", "-", top.name.lower()).strip("-._") or "own"
        name = f"my-{name}" if name in REPOSITORIES else name
        return cls(name, top, common, f"branch={branch} gpus=1 space={spaces[0]}")


async def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m local demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="run one sweep, and exit with 0 if it succeeds")
    parser.add_argument("--repo", metavar="PATH", type=Path, help="a git repository of your own")
    parser.add_argument("--full", action="store_true", help="with queues, profiles, and services")
    options = parser.parse_args(arguments)
    try:
        own = OwnRepository.read(options.repo) if options.repo else None
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="sweepbot-demo-", ignore_cleanup_errors=True) as folder:
        print(STARTING, flush=True)
        try:
            repositories = {own.name: own.git} if own else None
            async with world(Path(folder), repositories=repositories) as here:
                return await _live(here, own, once=options.once, full=options.full)
        except EndedError as error:
            print(error, flush=True)
            return 1


async def _live(here: World, own: OwnRepository | None, *, once: bool, full: bool) -> int:
    command, to_try = own.command if own else COMMAND, demo_full.TO_TRY if full else ""
    try:
        await demo_usage.write(here.env["REDIS_URL"])
        demo_environments.install(here)
        here.env["SWEEPBOT_API_PORT"] = str(free_port())
        async with demo_full.installed(here) if full else contextlib.nullcontext():
            await here.start_bot("serve", "work")
            print(_welcome(here, command, own, to_try), flush=True)
            if once:
                return await _sweep(here, command)
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


def _welcome(here: World, command: str, own: OwnRepository | None, to_try: str) -> str:
    place = f"commit in {own.folder}" if own else f"edit, commit, and push in {here.git / 'digits'}"
    sweepbot = Path(sys.executable).with_name("sweepbot")
    return f"""
  Slack     {here.slack.url}
            open it and run   /sweep {command}   in #sweeps
            repo=digits space=idle waits before training: an idle-GPU warning appears after a few seconds
            /gpus shows free GPUs; yesterday's GPU digest is in the channel
            /env start lab starts a research environment, with a page in place of Jupyter
  terminal  {sweepbot} login http://127.0.0.1:{here.env["SWEEPBOT_API_PORT"]}   asks for a token: /sweep token
            then {sweepbot} launch space=lr --wait   in a clone
  MLflow    {here.env["MLFLOW_TRACKING_URI"]}
  kubectl   export KUBECONFIG={here.folder / "kubeconfig"}; kubectl -n sweeps get pods,experiments
  git       {place}, then start another sweep; your own repository: make demo REPO=PATH
  config    {here.env["SWEEPBOT_CONFIG"]}
  logs      {here.folder / "logs"}
{to_try}  Ctrl-C stops everything.
"""


async def _sweep(here: World, command: str) -> int:
    """Run a sweep, print the steps of its parent message and its thread, and return 0 if it succeeds."""
    ends, steps = list[int](), set[str]()

    def on_change(change: Change) -> None:
        message = change["message"]
        refused = message.get("is_ephemeral") and re.match(REFUSED, message["text"])
        if "thread_ts" not in message and not refused:
            blocks = message.get("blocks", ())
            texts = [str(part.get("text")) for block in blocks for part in block.get("elements", ())]
            for step in re.findall(r"[✓○] [^✓○\n]+", "\n".join(texts)):
                if step.strip() not in steps:
                    print(_readable(step.strip()), flush=True)
                    steps.add(step.strip())
        elif change["type"] == "posted":
            text = message["text"]
            print(_readable(text), flush=True)
            ends.extend(code for begin, code in ENDS.items() if re.match(begin, text))

    here.slack.listen(on_change)
    print(f"Ada in #sweeps: /sweep {command}")
    print(_readable(await here.slack.command("ada", "sweeps", "/sweep", command) or ""), flush=True)
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
