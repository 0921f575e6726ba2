"""A world with a Sweepbot in it, as its users meet it: what they type, and what they then read.

The repository in it is the digits example and small programs beside it, which train in a blink or for ever.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from local import image_pull
from local.world import NAMESPACE, World, commit, git, world

APART = ("serve", "work")  # the bot's processes, for stories in which one of them is killed
WAIT_SECONDS = 300  # seconds until a fact that needs builds and trainings on a busy machine

TRAINING = """
import argparse, os, time
options = argparse.ArgumentParser()
options.add_argument("--width", type=int)
options.add_argument("--kind")
options.add_argument("--depth", type=int)
options.add_argument("--wait", type=float, default=0)
options.add_argument("--tensorboard_dir", default="runs")
options = options.parse_args()
assert (options.kind == "deep") == (options.depth is not None), "depth is of the deep ones only"
print("training with width", options.width)
while options.wait and os.path.exists(os.environ["HOLD"]):
    time.sleep(0.5)  # rarely enough that a busy machine doesn't measure it as work
from tensorboardX import SummaryWriter
with SummaryWriter(options.tensorboard_dir) as log:
    log.add_scalar("loss", 1 / options.width, 1)
"""
SPACE = """\
command: python tiny.py{flags}
objective: {{metric: loss, goal: minimize}}
algorithm: grid
trials: {{parallel: {parallel}}}
parameters:
  width: {{min: 1, max: {trials}}}
"""
SPACES = {
    "tiny": {"flags": "", "parallel": 2, "trials": 2},
    "held": {"flags": " --wait=1", "parallel": 2, "trials": 2},
}
BROKEN = """\
command: python tiny.py
objective: {metric: loss, goal: smallest}
trials: {max: 4, paralel: 2}
parameters:
  width: {min: 8, max: 1}
"""


class Sweep:
    """One sweep, as its thread and the cluster show it."""

    def __init__(self, instance: "Instance", sweep_id: str, channel: str) -> None:
        self.instance, self.id, self.channel = instance, sweep_id, channel

    def parent(self) -> dict[str, Any]:
        found = [m for m in self.instance.slack.messages(self.channel) if f"*{self.id}*" in shown(m)]
        assert len(found) <= 1, f"{self.id} has {len(found)} parents"
        return found[0] if found else {}

    def thread(self) -> list[str]:
        parent = self.parent()
        return (
            [m["text"] for m in self.instance.slack.messages(self.channel, parent["ts"])[1:]]
            if parent
            else []
        )

    def story(self) -> str:
        return "\n".join([shown(self.parent()), *self.thread()])

    async def posts(self, *words: str) -> str:
        """The first message of the thread with all these words, waited for."""

        def found() -> str | None:
            self.instance.check()
            return next((text for text in self.thread() if all(word in text for word in words)), None)

        return await until(found, f"{self.id} says {words}", self.story)

    async def shows(self, *words: str) -> str:
        """The parent, once it has all these words."""

        def found() -> str | None:
            self.instance.check()
            text = shown(self.parent())
            return text if all(word in text for word in words) else None

        return await until(
            found,
            f"the parent of {self.id} shows {words}",
            self.story,
        )

    async def click_cancel(self, person: str) -> None:
        assert (
            await self.instance.slack.click(person, self.channel, self.parent()["ts"], "cancel_sweep") is None
        )

    def button(self) -> dict[str, Any] | None:
        blocks = self.parent().get("blocks", [])
        buttons = [each for b in blocks if b["type"] == "actions" for each in b["elements"]]
        return next((each for each in buttons if each["action_id"] == "cancel_sweep"), None)

    def objects(self, kind: str) -> list[dict[str, Any]]:
        return self.instance.here.store.list(kind, NAMESPACE, {"sweepbot/sweep": self.id})

    def pods_alive(self) -> list[str]:
        return [p["metadata"]["name"] for p in self.objects("Pod") if is_alive(p)]

    def conditions(self, kind: str) -> list[set[str]]:
        """What is true of each object of this kind."""
        return [
            {c["type"] for c in obj.get("status", {}).get("conditions", []) if c["status"] == "True"}
            for obj in self.objects(kind)
        ]


class Instance:
    """`hold` is a file: trainings of the space "held" go on as long as it exists."""

    def __init__(self, here: World) -> None:
        self.here, self.slack = here, here.slack
        self.copy = here.git / "digits"
        self.hold = here.folder / "hold"

    async def types(self, text: str, person: str = "ada", channel: str = "sweeps") -> str:
        """Type `/sweep` with this text; the words it is acknowledged with."""
        answer = await self.slack.command(person, channel, "/sweep", text)
        assert answer is not None, "the bot did not acknowledge"
        return answer

    async def sweep(self, text: str, person: str = "ada", channel: str = "sweeps") -> Sweep:
        return Sweep(self, sweep_id(await self.types(text, person, channel)), channel)

    async def answer(self, text: str, person: str = "ada", channel: str = "sweeps") -> str:
        """Type `/sweep`; the private answer that comes after the acknowledgement."""
        before = len(self.slack.ephemerals(person))
        acknowledged = await self.types(text, person, channel)
        return await self.whispered(person, before, acknowledged)

    async def whispered(self, person: str, before: int, acknowledged: str = "") -> str:
        """Return this user's next ephemeral message, after so many; one that only announces it isn't it.

        The answer can come before what `acknowledged` the command.
        """

        def answers() -> list[str]:
            texts = (str(each["text"]) for each in self.slack.ephemerals(person)[before:])
            return [text for text in texts if not text.startswith("Looking up") and text != acknowledged]

        return str((await until(answers, f"{person} is told something"))[0])

    def commit(self, message: str, files: dict[str, str] | None = None, branch: str = "main") -> str:
        """On a branch that is new unless it is main; afterwards main is there again."""
        if branch != "main":
            git(self.copy, "switch", "--quiet", "--create", branch)
        for name, text in (files or {"note.txt": str(time.time_ns())}).items():
            (self.copy / name).write_text(text)
        made = commit(self.copy, message)
        git(self.copy, "switch", "--quiet", "main")
        return made

    def check(self) -> None:
        """Raise EndedError if one of Sweepbot's processes has ended by itself; stories kill others."""
        self.here.processes.check(killed=True)

    def builds(self, of: str) -> list[dict[str, Any]]:
        return self.here.store.list("Job", NAMESPACE, {"sweepbot/commit": of})

    def pods_alive(self) -> list[str]:
        return [p["metadata"]["name"] for p in self.here.store.list("Pod", NAMESPACE) if is_alive(p)]

    async def kill_worker(self) -> None:
        """SIGKILL, and a new one as a Deployment would start it."""
        await self.kill("work")

    async def kill(self, command: str) -> None:
        async with self.without(command):
            pass

    def without_worker(self) -> AbstractAsyncContextManager[None]:
        return self.without("work")

    @asynccontextmanager
    async def without(self, command: str) -> AsyncIterator[None]:
        process = self.here.processes._running[command]
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        yield
        await self.here.start_bot(command)


@asynccontextmanager
async def instance(
    folder: Path, tracking: str = "", bots: tuple[str, ...] = ("all",), **env: str
) -> AsyncIterator[Instance]:
    """Start a world and its bot.

    Args:
        tracking: URL of an MLflow to use.
        bots: its processes. One is cheaper: each needs two seconds of CPU time to import its modules.
        env: what the bot gets in place of the world's own settings.
    """
    async with world(folder, tracking) as here:
        here.env.update(env)
        made = prepared(here)
        await here.start_bot(*bots)
        yield made


def prepared(here: World, config: str = "") -> Instance:
    """Publish the small programs, and add to the configuration; the bot isn't started."""
    made = Instance(here)
    spaces = {f"sweeps/{name}.yaml": SPACE.format(**what) for name, what in SPACES.items()}
    files = {"tiny.py": TRAINING.replace('os.environ["HOLD"]', repr(str(made.hold)))}
    made.commit("Add programs that train in a blink", files | spaces | {"sweeps/broken.yaml": BROKEN})
    made.hold.touch()
    image_pull.TRIAL["PYTHONPATH"] = str(_without_boto3(Path(here.env["PYTHONPATH"])))
    file = here.folder / "config.yaml"
    file.write_text(f"{file.read_text()}gate: false\n{config}")
    return made


def _without_boto3(modules: Path) -> Path:
    """Return this directory, which hides pandas, with a module that hides boto3, too.

    MLflow and tensorboardX import them where they are installed, which takes half the CPU time of a training
    that ends in a blink.
    """
    (modules / "boto3.py").write_text("raise ModuleNotFoundError(__name__)\n")
    return modules


def sweep_id(answer: str) -> str:
    found = re.match(r"Sweep `([a-z0-9-]+)` queued", answer)
    assert found, answer
    return found[1]


def shown(message: dict[str, Any]) -> str:
    """All text of a message's blocks."""
    texts = [b["text"]["text"] for b in message.get("blocks", []) if b["type"] == "section"]
    below = [e["text"] for b in message.get("blocks", []) if b["type"] == "context" for e in b["elements"]]
    return "\n".join(texts + below)


def is_alive(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}


async def until(fact: Callable[[], Any], what: str, instead: Callable[[], str] = lambda: "") -> Any:
    """The fact, once it is there; else what was found instead."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not (found := fact()):  # noqa: ASYNC110 - facts of other processes
                await asyncio.sleep(0.05)
            return found
    except TimeoutError:
        raise AssertionError(f"waited {WAIT_SECONDS} s until {what}; instead:\n{instead()}") from None
