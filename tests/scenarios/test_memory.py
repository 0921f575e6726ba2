"""A worker's cache of the cluster can be late, empty, or absent; actions and messages stay the same."""

import asyncio
from dataclasses import replace

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from k8s.api.cache import Cache, Caches
from k8s.slim import slim
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep
from tests.scenarios.test_any_crash import EXTENDABLE

RUNNING = {"image": True, "acts": {Action.CANCEL: Phase.RUNNING}, "endless": True}
STORIES = {
    "calm": {"image": True},
    "cancelled": RUNNING,
    "one trial killed": {"image": True, "acts": {Action.KILL: Phase.RUNNING}, "patient": True},
    "drained": {"image": True, "acts": {Action.DRAIN: Phase.RUNNING}, "patient": True},
    "extended": {"image": True, "acts": {Action.EXTEND: Phase.SUCCEEDED}, "space": EXTENDABLE},
}
MARKS = {
    "drained": pytest.mark.slow,
    "one trial killed": pytest.mark.slow,
    "extended": (pytest.mark.features("extension"), pytest.mark.slow),
}


class Direct(SimulatedSweep):
    """A sweep with a worker that watches nothing, so it has no caches."""

    def watches(self):
        return []


class LateCluster(DirectCluster):
    def __init__(self, store):
        super().__init__(store)
        self.shown = asyncio.Event()

    async def watch(self, *args, **kwargs):
        async for change in super().watch(*args, **kwargs):
            await self.shown.wait()
            yield change


class Late(SimulatedSweep):
    """A sweep with a worker whose caches are updated only before each fourth reconcile."""

    def __init__(self, redis, clock, **scenario):
        super().__init__(redis, clock, **scenario)
        self.cluster, self.rounds = LateCluster(self.kubernetes), 0

    async def round(self, *args, **kwargs):
        self.rounds += 1
        if self.rounds % 4 == 0:
            self.cluster.shown.set()
            await self.settle()
            self.cluster.shown.clear()
        released = [text for text in self.slack.posted if "GPUs are released" in text]
        held = {pod for pod in self.gpus_held() if not self.scenario.get("patient")}
        await super().round(*args, **kwargs)
        if (await self.record()).phase is Phase.CANCELLED:
            assert not held, released


@pytest.mark.parametrize("scenario", [pytest.param(name, marks=MARKS.get(name, ())) for name in STORIES])
async def test_sweep_ends_alike_without_a_cache_and_with_a_late_one(redis, scenario):
    usual = await SimulatedSweep(redis, Clock(None), **STORIES[scenario]).run()
    for kind in (Direct, Late):
        other = await kind(redis, Clock(None), **STORIES[scenario]).run()
        assert other.last.phase is usual.last.phase
        assert other.objects() == usual.objects()
        assert other.gpus_held() == []
        assert other.texts() == usual.texts()


def memory_of(simulation, *, empty=False):
    """The content of a worker's cache that was complete and is no longer updated."""
    caches = [Cache(kind, "sweeps", lambda _: None, slim) for kind in ("Experiment", "Trial", "Job", "Pod")]
    for cache in caches:
        cache.complete = True
        for obj in [] if empty else simulation.kubernetes.list(cache.kind, "sweeps"):
            cache.put(obj)
    return Caches(caches)


async def test_cache_alone_ends_no_sweep(redis):
    """Neither because its experiment is not shown, nor as cancelled while its pods are not shown."""
    async with Direct(redis, Clock(None), image=True, endless=True).started() as simulation:
        simulation.clients = replace(simulation.clients, caches=memory_of(simulation, empty=True))
        for _ in range(12):
            await simulation.round()
        assert (await simulation.record()).phase is Phase.RUNNING
        simulation.acts = {Action.CANCEL: Phase.RUNNING}
        for _ in range(12):
            held = simulation.gpus_held()
            await simulation.round()
            assert (await simulation.record()).phase is not Phase.CANCELLED or not held
        assert simulation.last.phase is Phase.CANCELLED


async def test_worker_with_an_outdated_cache_takes_no_count_and_no_result_back(redis):
    """Of two workers one sees the trials finish, and the other still sees none finished."""
    finished = []
    async with Direct(redis, Clock(None), image=True).started() as simulation:
        while (await simulation.record()).phase is not Phase.RUNNING:
            behind, now = memory_of(simulation), simulation.clients
            await simulation.round()
        while not (await simulation.record()).phase.final:
            simulation.clients = replace(now, caches=behind)
            await simulation.round()
            finished.append((await simulation.record()).progress.finished)
            simulation.clients = now
            await simulation.round()
            finished.append((await simulation.record()).progress.finished)
    assert finished == sorted(finished)
    better = [text for text in simulation.slack.posted if text.startswith(":chart")]
    assert len(better) == len(set(better))
