"""Trials of several nodes that lose a worker by the cluster start again, and aren't failures."""

from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from tests.bot.factories import OWNER, REQUEST
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep

pytestmark = pytest.mark.features("interruptions", "nodes")

KINDS = {"Job": {}, "PyTorchJob": {"pytorch": True}, "TrainJob": {"trainer": True}}
# Katib counts the trial as failed before Sweepbot has seen the eviction, or Sweepbot sees it first. The first
# test has the other way of each kind, and `make slow` both.
WAYS = {"Job": "later", "PyTorchJob": "at once", "TrainJob": "later"}


def each_way(*fast):
    """All kinds, those that aren't `fast` in `make slow`."""
    cases = [
        pytest.param(KINDS[kind], way, marks=() if kind in fast else pytest.mark.slow, id=kind)
        for kind, way in WAYS.items()
    ]
    return pytest.mark.parametrize(("kind", "drained"), cases)


GATED = pytest.mark.features("gate")
TWO_TRIALS = SPACE.replace("max: 3", "max: 2")
THREE_NODES = replace(REQUEST, nodes=3, parallel=1, gate=False)


class Drained(SimulatedSweep):
    """Of each trial, the second of three workers is evicted once. `crash_after`: then the training fails."""

    def __init__(self, redis, request=THREE_NODES, **scenario):
        super().__init__(redis, Clock(None), image=True, sweep={"request": request}, **scenario)

    async def rounds(self, number):
        for _ in range(number):
            await self.round()

    async def until(self, fact):
        for _ in range(40):
            await self.round()
            if fact():
                return
        raise AssertionError(f"{self.last.phase}: {self.slack.posted}")

    async def asks(self, action, trial=""):
        command = Command(action=action, user=OWNER, user_name="ada", trial=trial)
        await self.store.add_command(SWEEP, command)

    def said(self, words):
        return [text for text in self.slack.posted if words in text]

    def first_evicted(self):
        return next((trial for trial, job in self.evicted.items() if job), None)

    def _end(self, pod, labels):
        self.scenario["crash"] = self.scenario.get("crash_after")
        super()._end(pod, labels)


@pytest.mark.parametrize(
    ("kind", "gate", "drained"),
    [
        ("Job", False, "at once"),
        pytest.param("Job", True, "later", marks=[GATED, pytest.mark.slow]),
        pytest.param("PyTorchJob", False, "at once", marks=pytest.mark.slow),
        pytest.param("PyTorchJob", True, "later", marks=GATED),
        ("TrainJob", False, "at once"),
        pytest.param("TrainJob", True, "later", marks=[GATED, pytest.mark.slow]),
    ],
)
async def test_each_trial_loses_a_worker_and_all_succeed(redis, kind, drained, gate):
    """Also the first trial, which is the gate, and the last one; `max_failed` is 1."""
    request = replace(THREE_NODES, gate=gate)
    simulation = await Drained(redis, request, drained=drained, **KINDS[kind]).run()
    ended = await simulation.record()
    assert (ended.phase, ended.progress.succeeded, ended.progress.failed) == (Phase.SUCCEEDED, 3, 0)
    assert ended.progress.best.value == 0.1
    trials = simulation.kubernetes.list("Trial")
    assert sorted(simulation.evicted) == sorted(trial["metadata"]["name"] for trial in trials)
    told = simulation.said("stopped running")
    assert len(told) == len(simulation.said("Running again")) == 3
    assert "worker 2 of 3 was evicted, as when a node is drained. This isn't a failure" in told[0]
    assert "all of its 3 workers start again once 3 nodes have room" in told[0]
    assert not simulation.said("failed")
    assert simulation.gpus_held() == []


async def test_trials_at_once_lose_workers_and_all_succeed(redis):
    simulation = await Drained(redis, replace(THREE_NODES, parallel=3), drained="at once").run()
    ended = await simulation.record()
    assert (ended.phase, ended.progress.succeeded, ended.progress.failed) == (Phase.SUCCEEDED, 3, 0)
    [told] = simulation.said("stopped running")
    assert "; 2 more trials stopped for the same reason. This isn't a failure: all 3 workers of each" in told


@each_way("Job", "PyTorchJob")
async def test_training_that_fails_after_its_restart_has_failed(redis, kind, drained):
    simulation = await Drained(redis, drained=drained, crash_after="seen", **kind).run()
    ended = await simulation.record()
    assert (ended.phase, ended.progress.succeeded, ended.progress.failed) == (Phase.FAILED, 0, 1)
    assert len(simulation.said("stopped running")) == 1
    assert simulation.gpus_held() == []


@pytest.mark.parametrize(("kind", "parallel"), [*zip(KINDS.values(), (1, 2, 1), strict=True)], ids=KINDS)
async def test_pods_that_are_gone_before_a_reconcile_are_known_from_the_watch(redis, kind, parallel):
    request = replace(THREE_NODES, parallel=parallel)
    simulation = await Drained(redis, request, drained="unseen", space=TWO_TRIALS, **kind).run()
    ended = await simulation.record()
    assert (ended.phase, ended.progress.succeeded, ended.progress.failed) == (Phase.SUCCEEDED, 2, 0)
    assert "worker 2 of 3 was evicted, as when a node is drained" in simulation.said("stopped running")[0]


async def test_job_whose_pods_nobody_has_seen_shows_that_one_was_disrupted(redis):
    simulation = Drained(redis, drained="unseen", space=TWO_TRIALS)
    simulation.watches = list
    await simulation.run()
    ended = await simulation.record()
    assert (ended.phase, ended.progress.succeeded, ended.progress.failed) == (Phase.SUCCEEDED, 2, 0)
    assert (
        "stopped running: the cluster stopped worker 2, as when its node is drained"
        in simulation.said("stopped running")[0]
    )


@each_way("Job", "TrainJob")
async def test_sweep_cancelled_while_a_trial_starts_again_frees_all_gpus(redis, kind, drained):
    async with Drained(redis, drained=drained, **kind).started() as simulation:
        await simulation.until(simulation.first_evicted)
        await simulation.asks(Action.CANCEL)
        await simulation.until(lambda: simulation.last.phase.final)
        assert simulation.last.phase is Phase.CANCELLED
        assert simulation.gpus_held() == []


@pytest.mark.parametrize(
    "kind", [pytest.param({}, marks=pytest.mark.slow), {"trainer": True}], ids=["Job", "TrainJob"]
)
async def test_trial_cancelled_while_it_starts_again_is_gone_and_the_next_one_runs(redis, kind):
    async with Drained(redis, drained="later", **kind).started() as simulation:
        await simulation.until(lambda: simulation.said("stopped running"))
        await simulation.asks(Action.KILL, simulation.first_evicted())
        await simulation.until(lambda: simulation.last.phase.final)
        progress = simulation.last.progress
        assert (progress.killed, progress.succeeded, progress.failed) == (1, 2, 0)


async def test_trial_that_katib_has_to_create_again_cannot_be_cancelled_yet(redis):
    async with Drained(redis, drained="at once", pytorch=True).started() as simulation:
        await simulation.until(simulation.first_evicted)
        trial = simulation.first_evicted()
        await simulation.until(lambda: not simulation.kubernetes.get("Trial", "sweeps", trial))
        await simulation.asks(Action.KILL, trial)
        await simulation.round()
        [(_, answer)] = simulation.slack.ephemeral_messages
        assert answer.endswith("isn't running. Katib starts it again; cancel it then.")


@pytest.mark.features("pause")
@each_way("PyTorchJob")
async def test_paused_trial_starts_again_when_the_sweep_is_resumed(redis, kind, drained):
    async with Drained(redis, drained=drained, space=TWO_TRIALS, **kind).started() as simulation:
        await simulation.until(simulation.first_evicted)
        await simulation.asks(Action.PAUSE)
        await simulation.until(lambda: simulation.last.phase is Phase.PAUSED)
        assert simulation.gpus_held() == []
        assert simulation.last.progress.failed == 0
        await simulation.asks(Action.RESUME)
        await simulation.until(lambda: simulation.last.phase.final)
        assert (simulation.last.phase, simulation.last.progress.succeeded) == (Phase.SUCCEEDED, 2)


@pytest.mark.features("health")
async def test_failed_trial_of_a_draining_sweep_stays_failed_because_no_trial_starts(redis):
    async with Drained(redis, pytorch=True, endless="trainings").started() as simulation:
        await simulation.until(lambda: simulation.last.progress.running)
        await simulation.asks(Action.DRAIN)
        await simulation.round()
        simulation.scenario["drained"] = "at once"
        await simulation.until(lambda: simulation.last.phase.final)
        assert simulation.last.progress.failed == 1
        assert simulation.said("Worker 2 of 3: The pod was evicted, as when a node is drained.")
        assert simulation.gpus_held() == []
