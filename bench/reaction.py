"""From a change in the cluster to the call to Slack: Sweepbot beside scripts that poll every 2 and 10 s.

Trials of different sweeps succeed with a better result, one at a random time every few seconds. A bare watch
of the same API server also runs: its latency, which no program can avoid, is measured for each trial.
"""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from bench.child import ROOT, Child, child
from bench.scale import running_record, running_worker, settled
from bench.scale_cluster import a_cluster, succeed, sweep_name, trial_name
from bench.site import Site, site
from bench.table import Row, bounded, compared
from bot.platform.storage.redis_client import connect
from bot.platform.storage.sweeps import Store
from local.kubernetes.apiserver.api import serve
from local.kubernetes.apiserver.store import Store as Cluster
from local.slack.workspace import BOT, Change

SWEEPS, PAUSE = 18, (1.2, 2.6)  # seconds between two changes: Slack accepts one post per second in a channel
TIMEOUT = 60.0  # seconds until all have noticed the last change
LIMIT = 50  # ms over the watch's own latency
WATCH = "a bare watch"
OBSERVERS = {WATCH: 0, "Sweepbot": None, "a 2 s poller": 2, "a 10 s poller": 10}  # seconds between two lists
CHANNEL = "C01VISION00"  # where the pollers post


class Times:
    """When each trial changed, and when each observer noticed, by the machine's monotonic clock."""

    def __init__(self) -> None:
        self.changed: dict[str, float] = {}
        self.seen: dict[str, dict[str, float]] = {name: {} for name in OBSERVERS}  # by observer and trial

    def see(self, observer: str, trial: str, at: float) -> None:
        if trial in self.changed:
            self.seen[observer].setdefault(trial, at)

    def missing(self) -> dict[str, list[str]]:
        """Return the trials whose change an observer hasn't noticed, by observer."""
        unseen = {name: sorted(self.changed.keys() - seen.keys()) for name, seen in self.seen.items()}
        return {name: trials for name, trials in unseen.items() if trials}

    def after(self, observer: str) -> list[float]:
        """Return the milliseconds from each change."""
        return [1000 * (self.seen[observer][trial] - at) for trial, at in self.changed.items()]


async def run() -> list[Row]:
    times = Times()
    async with AsyncExitStack() as stack:
        here: Site = await stack.enter_async_context(site())
        folder = stack.enter_context(TemporaryDirectory(prefix="sweepbot-bench-"))
        cluster, threads = a_cluster(SWEEPS), await _records(here)
        server = await serve(cluster)
        stack.push_async_callback(server.close)
        server.kubeconfig(Path(folder) / "kubeconfig")
        env = {**here.env, "KUBECONFIG": f"{folder}/kubeconfig", "K8S_NAMESPACE": "sweeps"}
        stack.callback(here.slack.listen(partial(_on_slack, times, threads)))
        worker = await stack.enter_async_context(running_worker(env))
        async with connect(here.redis_url) as redis:
            await settled(redis, worker)
        watch = await _scripts(stack, env)
        async with asyncio.TaskGroup() as tasks:  # a broken observer ends the measurement
            following = tasks.create_task(_follow(watch, times))
            await _change(cluster, times)
            following.cancel()
    return _rows(times)


async def _records(here: Site) -> dict[str, str]:
    """Store the sweeps with a thread each; return the trial that will succeed, by thread."""
    workspace, threads = here.slack.workspace, dict[str, str]()
    channel = workspace.channel("sweeps")
    async with connect(here.redis_url) as redis:
        for name in map(sweep_name, range(SWEEPS)):
            thread = workspace.post(channel, BOT, {"text": name})["ts"]
            record = running_record(name)
            requester = replace(record.requester, channel=channel.id)
            await Store(redis).restore(replace(record, thread=thread, requester=requester))
            threads[thread] = trial_name(name, 1)
    return threads


def _on_slack(times: Times, threads: dict[str, str], change: Change) -> None:
    """Note Sweepbot's edits of a sweep's message, and the posts of the scripts, which name the trial."""
    message, at = change["message"], monotonic()
    if change["type"] == "edited" and (trial := threads.get(message["ts"])):
        times.see("Sweepbot", trial, at)
    observer, _, trial = message["text"].partition(": ")
    if change["type"] == "posted" and observer in times.seen:
        times.see(observer, trial, at)


async def _scripts(stack: AsyncExitStack, env: dict[str, str]) -> Child:
    """Start the pollers and the watch; return the watch."""
    children = []
    for name, seconds in OBSERVERS.items():
        if seconds is not None:
            more = {"PYTHONPATH": str(ROOT), "CHANNEL": CHANNEL, "NAME": name}
            script = child("bench/peers/watcher.py", str(seconds), env={**env, **more})
            children.append(await stack.enter_async_context(script))
    for each in children:
        await each.line()  # "ready"
    return children[0]


async def _follow(watch: Child, times: Times) -> None:
    while True:
        trial, at = (await watch.line(2 * TIMEOUT)).split()
        times.see(WATCH, trial, float(at))


async def _change(cluster: Cluster, times: Times) -> None:
    dice = random.Random(7)  # noqa: S311
    for name in map(sweep_name, range(SWEEPS)):
        await asyncio.sleep(dice.uniform(*PAUSE))
        times.changed[trial_name(name, 1)] = monotonic()
        succeed(cluster, trial_name(name, 1), "0.1")
    end = monotonic() + TIMEOUT
    while missing := times.missing():
        if monotonic() > end:
            raise TimeoutError(f"{TIMEOUT:g} s after the last change, not noticed yet: {missing}")
        await asyncio.sleep(0.1)


def _rows(times: Times) -> list[Row]:
    ours, watch = times.after("Sweepbot"), times.after(WATCH)
    over = [a - b for a, b in zip(ours, watch, strict=True)]
    what = "cluster event to Slack call"
    rows = [bounded(f"{what}, over the watch's own latency", over, unit="ms", at_most=LIMIT, against=WATCH)]
    return rows + [
        compared(what, name, ours, times.after(name), unit="ms")
        for name, seconds in OBSERVERS.items()
        if seconds
    ]
