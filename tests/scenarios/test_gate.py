"""One trial runs first: the others start once it is healthy, or a user decides."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.core.curves import Point
from bot.core.record import Phase
from bot.sweep.features.gate.decide import GateState
from tests.bot.factories import NOW, REQUEST
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep

MANY = SPACE.replace("[a, b, c]", "[a, b, c, d, e]").replace("max: 3", "max: 5")
GATED = {"sweep": {"request": replace(REQUEST, gate=True)}, "image": True, "space": MANY}


def trials(simulation):
    return simulation.kubernetes.list("Trial")


async def until(simulation, phase, rounds=40):
    for _ in range(rounds):
        await simulation.round()
        if (await simulation.record()).phase is phase:
            return simulation.last
    raise AssertionError(f"{simulation.last.phase}: {simulation.texts()}")


@pytest.fixture
async def crashing(redis):
    simulation = SimulatedSweep(redis, Clock(None), crash=True, **GATED)
    async with simulation.started():
        yield simulation


@pytest.mark.features("health")
async def test_gate_holds_a_broken_sweep_after_one_trial_and_releases_its_gpus(crashing):
    held = await until(crashing, Phase.HELD)
    assert (len(trials(crashing)), crashing.gpus_held()) == (1, [])
    assert (held.progress.failed, held.progress.waiting, held.outbox) == (1, 0, ())
    texts = crashing.texts()
    assert any(text.startswith(":warning: On hold: first trial failed. 4 other") for text in texts), texts
    assert sum("The training failed with exit code 1" in text for text in texts) == 1
    assert "4 other trials didn't start." in held.of(GateState).hold
    parent = crashing.slack.parents[-1]
    assert "On hold: The training failed with exit code 1" in parent.text
    [row] = [block for block in parent.blocks if block["type"] == "actions"]
    labels = [each["text"]["text"] for each in row["elements"]]
    assert labels[:3] == ["Run all anyway", "Try again", "Cancel sweep"]
    for _ in range(3):
        await crashing.round()
    assert (len(trials(crashing)), crashing.texts()) == (1, texts)


async def test_retry_runs_one_more_trial_in_a_new_experiment(crashing):
    await until(crashing, Phase.HELD)
    crashing.scenario["crash"] = False
    crashing.acts = {Action.RETRY: Phase.HELD}
    await crashing.round()
    await until(crashing, Phase.SUCCEEDED)
    names = sorted(each["metadata"]["name"] for each in crashing.kubernetes.list("Experiment"))
    assert names == [SWEEP, f"{SWEEP}-2"]
    assert (crashing.last.progress.succeeded, crashing.last.progress.failed) == (5, 0)
    assert len(trials(crashing)) == 6
    texts = "\n".join(crashing.texts())
    assert "is retrying the first trial" in texts
    assert crashing.last.steps["first"] == "✓ First trial healthy"


async def test_second_failure_is_held_and_reported_again(crashing):
    await until(crashing, Phase.HELD)
    crashing.acts = {Action.RETRY: Phase.HELD}
    await crashing.round()
    await until(crashing, Phase.PENDING)
    held = await until(crashing, Phase.HELD)
    assert (held.attempt, len(trials(crashing)), crashing.gpus_held()) == (2, 2, [])
    assert len([text for text in crashing.slack.posted if text.startswith(":warning: On hold")]) == 2


async def test_run_all_anyway_starts_all_trials(crashing):
    await until(crashing, Phase.HELD)
    crashing.scenario["crash"] = False
    crashing.acts = {Action.OPEN: Phase.HELD}
    await crashing.round()
    await until(crashing, Phase.SUCCEEDED)
    assert crashing.last.progress.succeeded == 5


async def test_held_sweep_is_cancelled(crashing):
    await until(crashing, Phase.HELD)
    crashing.acts = {Action.CANCEL: Phase.HELD}
    await crashing.round()
    await until(crashing, Phase.CANCELLED)
    assert len(trials(crashing)) == 1


async def test_first_trial_that_finishes_opens_the_gate_with_one_patch(redis):
    simulation = SimulatedSweep(redis, Clock(None), **GATED)
    merge, opening = simulation.cluster.merge, []

    async def spy(ref, patch, *, subresource=""):
        if ref.kind == "Experiment" and not subresource:
            opening.append(patch["spec"])
        return await merge(ref, patch, subresource=subresource)

    simulation.cluster.merge = spy
    await simulation.run()
    assert simulation.last.phase is Phase.SUCCEEDED
    assert simulation.last.progress.succeeded == 5
    assert opening == [{"maxTrialCount": 5, "parallelTrialCount": 2}]
    assert "5 of 5 trials" in simulation.slack.parents[-1].text


async def test_running_first_trial_opens_the_gate_once_it_logs_after_startup(redis):
    simulation = SimulatedSweep(redis, Clock(None), endless="trainings", **GATED)
    async with simulation.started():
        await until(simulation, Phase.RUNNING)
        for _ in range(3):
            await simulation.round()
        assert len(trials(simulation)) == 1  # no line later than a minute after its start
        simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(minutes=2))
        for _ in range(4):
            await simulation.round()
        assert len(trials(simulation)) == 2
        assert not simulation.last.first_only


@pytest.mark.parametrize("sign", [pytest.param("metric", marks=pytest.mark.features("live_values")), "GPU"])
async def test_silent_first_trial_opens_the_gate_once_it_reports_a_metric_or_uses_a_gpu(redis, sign):
    simulation = SimulatedSweep(redis, Clock(None), endless="trainings", **GATED)

    async def silent(*_, **__):
        return ""

    simulation.cluster.log = silent
    async with simulation.started():
        await until(simulation, Phase.RUNNING)
        simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(minutes=2))
        await simulation.round()
        assert (len(trials(simulation)), simulation.last.first_only) == (1, True)
        [first] = [trial["metadata"]["name"] for trial in trials(simulation)]
        if sign == "GPU":
            await simulation.store.add_busy_trial(first)
        else:
            simulation.live.reported = {first: [Point(step=1, value=0.5)]}
        for _ in range(3):
            await simulation.round()
        assert (len(trials(simulation)), simulation.last.first_only) == (2, False)


async def test_open_starts_all_trials_beside_the_first(redis):
    acts = {Action.OPEN: Phase.RUNNING}
    simulation = SimulatedSweep(redis, Clock(None), endless="trainings", acts=acts, **GATED)
    async with simulation.started():
        await until(simulation, Phase.RUNNING)
        for _ in range(4):
            await simulation.round()
        assert len(trials(simulation)) == 2


async def test_cancelled_first_trial_holds_the_sweep(redis):
    acts = {Action.KILL: Phase.RUNNING}
    simulation = SimulatedSweep(redis, Clock(None), patient=True, acts=acts, **GATED)
    async with simulation.started():
        held = await until(simulation, Phase.HELD)
    assert (held.reason, simulation.gpus_held()) == ("ada cancelled the first trial", [])


async def test_drained_first_trial_ends_the_sweep(redis):
    acts = {Action.DRAIN: Phase.RUNNING}
    simulation = await SimulatedSweep(redis, Clock(None), patient=True, acts=acts, **GATED).run()
    assert (simulation.last.phase, simulation.last.reason) == (Phase.SUCCEEDED, "drained after 1 trial")


async def test_target_reached_by_the_first_trial_ends_the_sweep(redis):
    space = MANY.replace("goal: minimize", "goal: minimize, target: 0.9")
    simulation = await SimulatedSweep(redis, Clock(None), **GATED | {"space": space}).run()
    assert (simulation.last.phase, simulation.last.reason) == (Phase.SUCCEEDED, "target reached")
    assert len(trials(simulation)) == 1


async def test_redis_lost_after_the_gate_opened_opens_nothing_twice(redis):
    simulation = SimulatedSweep(redis, Clock(None), forget_in=Phase.RUNNING, **GATED)
    simulation = await simulation.run()
    assert (simulation.last.phase, simulation.last.progress.succeeded) == (Phase.SUCCEEDED, 5)
