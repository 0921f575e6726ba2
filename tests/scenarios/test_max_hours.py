"""A sweep at its time limit starts no more trials, ends with those that run, and then holds no GPUs."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase
from tests.bot.factories import NOW, REQUEST
from tests.scenarios.sweep_in_memory import SPACE, Clock, SimulatedSweep

MANY = SPACE.replace("[a, b, c]", "[a, b, c, d, e]").replace("max: 3", "max: 5")


async def test_sweep_at_its_time_limit_drains_and_ends_with_its_results(redis):
    sweep = {"request": replace(REQUEST, max_hours=1.0)}
    simulation = SimulatedSweep(redis, Clock(None), endless="trainings", sweep=sweep, image=True, space=MANY)
    async with simulation.started():
        while (await simulation.record()).phase is not Phase.RUNNING:
            await simulation.round()
        simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(minutes=61))
        for _ in range(4):
            await simulation.round()
        assert (simulation.last.phase, len(simulation.gpus_held())) == (Phase.RUNNING, 2), (
            "running trials finish"
        )
        simulation.scenario["endless"] = False
        while not (await simulation.record()).phase.final:
            await simulation.round()
        await simulation.round()
        assert (simulation.last.phase, simulation.gpus_held()) == (Phase.SUCCEEDED, [])
        assert len(simulation.kubernetes.list("Trial")) == simulation.last.progress.succeeded == 2
    story = "\n".join(simulation.slack.posted)
    assert "Time limit of 1 h reached: no new trials start; running trials finish." in story
    assert "Finished: time limit reached after 2 trials." in story
