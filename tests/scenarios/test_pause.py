"""A paused sweep holds no GPUs, and continues where it was."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from bot.sweep.features.pause.decide import PauseState
from local.katib.controller import Controller
from tests.bot.factories import NOW, REQUEST
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep

MANY = SPACE.replace("[a, b, c]", "[a, b, c, d, e]").replace("max: 3", "max: 5")
STORY = {"image": True, "space": MANY}


def trials(simulation):
    return simulation.kubernetes.list("Trial")


async def until(simulation, *phases, rounds=40):
    for _ in range(rounds):
        await simulation.round()
        if (await simulation.record()).phase in phases:
            return simulation.last
    raise AssertionError(f"{simulation.last.phase}: {simulation.texts()}")


async def asked(simulation, action, rounds=1):
    """Let the owner ask for it, and the sweep take some steps."""
    simulation.acts = {action: simulation.last.phase}
    await simulation._interfere(simulation.last.phase)
    for _ in range(rounds):
        await simulation.round()
    return simulation.last


def labels(simulation):
    [row] = [block for block in simulation.slack.parents[-1].blocks if block["type"] == "actions"]
    return [each["text"]["text"] for each in row["elements"]]


@pytest.fixture
async def busy(redis):
    """A sweep with two running trials, which don't end before the story says so."""
    simulation = SimulatedSweep(redis, Clock(None), endless="trainings", **STORY)
    async with simulation.started():
        await until(simulation, Phase.RUNNING)
        await simulation.round()
        yield simulation


async def test_pause_now_stops_all_trials_and_says_when_the_gpus_are_free(busy):
    assert labels(busy) == ["Trials", "Logs", "Pause", "Pause now", "Cancel sweep"]
    await asked(busy, Action.PAUSE_NOW)
    paused = await until(busy, Phase.PAUSED)
    await busy.round()
    assert (busy.gpus_held(), paused.progress.killed, len(trials(busy))) == ([], 2, 2)
    reports = [text for text in busy.slack.posted if "pausing" in text or "Paused" in text]
    assert reports[0].endswith(
        "is pausing this sweep: no new trials start; running trials are being stopped."
    )
    assert reports[1:] == [
        f":zzz: Paused. All pods are gone and the GPUs are free. To continue: `/sweep resume {SWEEP}`."
    ]
    assert labels(busy) == ["Resume", "Results", "Logs", "Cancel sweep"]
    assert "Paused by" in busy.slack.parents[-1].text
    for trial in trials(busy):  # the suggestion service of cmaes and sobol reads only the last condition
        assert trial["status"]["conditions"][0]["type"] == "Killed"
    for _ in range(4):
        await busy.round()
    assert (len(trials(busy)), busy.last.phase) == (2, Phase.PAUSED)


async def test_pause_lets_running_trials_finish_and_starts_no_others(busy):
    busy.clients = replace(busy.clients, now=lambda: NOW + timedelta(minutes=1))  # Slack takes another edit
    await asked(busy, Action.PAUSE, rounds=4)
    assert (busy.last.phase, len(busy.gpus_held()), len(trials(busy))) == (Phase.RUNNING, 2, 2)
    assert labels(busy) == ["Trials", "Logs", "Resume", "Pause now", "Cancel sweep"]
    busy.scenario["endless"] = False
    paused = await until(busy, Phase.PAUSED)
    assert (paused.progress.succeeded, busy.gpus_held(), len(trials(busy))) == (2, [], 2)


async def test_pause_now_after_a_pause_stops_the_trials_that_still_run(busy):
    await asked(busy, Action.PAUSE, rounds=2)
    await asked(busy, Action.PAUSE_NOW)
    paused = await until(busy, Phase.PAUSED)
    assert (paused.progress.killed, busy.gpus_held()) == (2, [])


async def test_resume_continues_days_later_and_runs_only_the_rest(busy):
    await asked(busy, Action.PAUSE_NOW)
    await until(busy, Phase.PAUSED)
    busy.clients = replace(busy.clients, now=lambda: NOW + timedelta(days=9))
    busy.scenario["endless"] = False
    await asked(busy, Action.RESUME)
    done = await until(busy, Phase.SUCCEEDED)
    assert (done.progress.succeeded, done.progress.killed, len(trials(busy))) == (3, 2, 5)
    values = {each["value"] for one in trials(busy) for each in one["spec"]["parameterAssignments"]}
    assert values == {"a", "b", "c", "d", "e"}
    assert any(text.endswith("resumed this sweep: trials start again.") for text in busy.slack.posted)


async def test_resume_before_the_trials_have_finished_starts_more(busy):
    await asked(busy, Action.PAUSE, rounds=3)
    await asked(busy, Action.RESUME, rounds=2)
    busy.scenario["endless"] = False
    done = await until(busy, Phase.SUCCEEDED)
    assert done.progress.succeeded == 5
    assert not any("Paused." in text for text in busy.slack.posted)


async def test_lost_redis_and_a_new_katib_lose_no_pause(busy):
    """An upgrade keeps Katib's objects, and starts another controller."""
    await asked(busy, Action.PAUSE_NOW)
    await until(busy, Phase.PAUSED)
    await busy.round()
    await busy.katib.close()
    await busy.redis.flushall()
    busy.katib._controller = Controller(busy.kubernetes, busy.katib.metrics)
    busy.katib.start()
    for _ in range(3):
        await busy.round()
    restored = await busy.record()
    assert (restored.phase, bool(restored.of(PauseState).at), len(trials(busy))) == (Phase.PAUSED, True, 2)
    busy.scenario["endless"] = False
    await asked(busy, Action.RESUME)
    assert (await until(busy, Phase.SUCCEEDED)).progress.finished == 5


async def test_record_from_before_the_pause_finds_it_in_the_cluster(busy):
    await asked(busy, Action.PAUSE, rounds=2)
    await busy.redis.flushall()
    busy.scenario["endless"] = False
    paused = await until(busy, Phase.PAUSED)
    assert (paused.progress.succeeded, busy.gpus_held(), len(trials(busy))) == (2, [], 2)


async def test_record_from_before_the_resume_finds_it_in_the_cluster(busy):
    await asked(busy, Action.PAUSE_NOW)
    paused = await until(busy, Phase.PAUSED)
    await busy.round()
    await asked(busy, Action.RESUME, rounds=3)
    running = await busy.record()
    assert len(busy.gpus_held()) == 2
    await busy.redis.flushall()
    await busy.store.restore(replace(paused, version=0, outbox=()))
    await busy.round()
    assert (await busy.record()).phase is running.phase is Phase.RUNNING


async def test_paused_sweep_is_cancelled(busy):
    await asked(busy, Action.PAUSE_NOW)
    await until(busy, Phase.PAUSED)
    await asked(busy, Action.CANCEL)
    assert (await until(busy, Phase.CANCELLED)).progress.killed == 2
    assert busy.gpus_held() == []


async def test_deleted_experiment_fails_a_paused_sweep(busy):
    await asked(busy, Action.PAUSE_NOW)
    await until(busy, Phase.PAUSED)
    busy.kubernetes.delete("Experiment", "sweeps", SWEEP)
    failed = await until(busy, Phase.FAILED)
    assert failed.reason == "The Katib experiment was deleted, or isn't in this cluster"


async def test_pause_does_not_count_toward_max_hours(redis):
    sweep = {"request": replace(REQUEST, max_hours=2.0)}
    simulation = SimulatedSweep(redis, Clock(None), endless="trainings", sweep=sweep, **STORY)
    async with simulation.started():
        await until(simulation, Phase.RUNNING)
        deadline = simulation.last.deadline
        simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(hours=1))
        await asked(simulation, Action.PAUSE_NOW)
        await until(simulation, Phase.PAUSED)
        simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(hours=49))
        await simulation.round()
        assert not simulation.last.draining
        await asked(simulation, Action.RESUME, rounds=3)
        assert simulation.last.deadline == deadline + timedelta(hours=48)
        simulation.clients = replace(simulation.clients, now=lambda: NOW + timedelta(hours=50, minutes=1))
        await simulation.round()
        assert simulation.last.draining == "time limit reached"


async def test_sweep_waiting_for_gpus_is_paused_and_waits_again_afterwards(redis):
    simulation = SimulatedSweep(redis, Clock(None), endless="trainings", **STORY)
    async with simulation.started():
        await until(simulation, Phase.PENDING)
        simulation._time_passes = _no_node
        await simulation.round()
        assert (await asked(simulation, Action.PAUSE_NOW)).phase is Phase.PENDING
        simulation._time_passes = SimulatedSweep._time_passes.__get__(simulation)
        await until(simulation, Phase.PAUSED)
        simulation._time_passes = _no_node
        assert (await asked(simulation, Action.RESUME, rounds=2)).phase is Phase.PENDING
        simulation._time_passes = SimulatedSweep._time_passes.__get__(simulation)
        await until(simulation, Phase.RUNNING)
    assert simulation.last.steps["first"] == "✓ First trial started"


async def _no_node():
    """No node has room: pods stay pending."""
