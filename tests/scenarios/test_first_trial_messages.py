"""The messages about first trials: edited until the trial recovers, sent once, and current after a crash."""

import re

from bot.core.record import Phase
from bot.sweep.features.health.state import HealthState
from local.katib.metrics import Reported
from tests.bot.sweep.features.health import real_messages
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.moments import sample
from tests.scenarios.pod_faults import (
    MINUTE,
    ends,
    unscheduled,
    waits,
)
from tests.scenarios.sweep_in_memory import SPACE


async def test_first_trial_message_follows_the_state_until_recovery(redis):
    async with FailingTrials(redis, unscheduled(real_messages.UNSCHEDULABLE)).started() as simulation:
        await simulation.rounds(8)
        await simulation.after(MINUTE)
        assert "The pod is pending" in await simulation.message()
        simulation.happens = waits("ErrImagePull", real_messages.PULLS["image-login"])
        await simulation.rounds(2)
        assert "missing registry credentials" in await simulation.message()
        simulation.happens = waits(
            "ImagePullBackOff",
            f"{real_messages.BACK_OFF}: ErrImagePull: {real_messages.PULLS['image-login']}",
        )
        await simulation.rounds(2)
        before = list(simulation.slack.posted)
        simulation.happens = lambda simulation, pod: simulation.runs(pod)
        await simulation.rounds(2)
        reported = await simulation.message()
        assert reported.startswith(":white_check_mark: Recovered: trial `lr-brave-otter-")
        assert "missing registry credentials" in reported
        assert len([text for text in simulation.slack.posted if "missing registry credentials" in text]) == 1
        assert len(simulation.slack.posted) == len(before), "the message is edited"


async def test_owner_of_a_failed_first_trial_is_mentioned_for_it_and_for_the_end(redis):
    async with FailingTrials(redis, unscheduled(real_messages.UNSCHEDULABLE)).started() as simulation:
        await simulation.rounds(8)
        await simulation.after(MINUTE)
        assert "The pod is pending" in await simulation.message()
        simulation.happens = ends(1, log=real_messages.TRACEBACK)
        await simulation.rounds(12)
        assert (await simulation.record()).phase is Phase.FAILED
        assert "KeyError: 'adamw'" in await simulation.message()
        called = [text for text in simulation.slack.posted if "<@UOWNER>" in text]
        assert len(called) == 2, called
        assert called[0].startswith(":warning: <@UOWNER> Trial `lr-brave-otter-")
        assert called[1].startswith(":x: <@UOWNER> *<https://")
        assert "lr-brave-otter>* · KeyError: 'adamw' (train.py:31)" in called[1]


async def test_problem_of_another_trial_is_not_called_the_first(redis):
    def happens(simulation, pod):
        simulation.first = getattr(simulation, "first", pod["metadata"]["name"])
        if pod["metadata"]["name"] == simulation.first:
            simulation.runs(pod)
        else:
            simulation.waits(pod, "ErrImagePull", real_messages.PULLS["image-login"])

    async with FailingTrials(redis, happens).started() as simulation:
        await simulation.rounds(10)
        other = next(
            pod for pod in simulation.kubernetes.list("Pod") if pod["metadata"]["name"] != simulation.first
        )
        trial = other["metadata"]["labels"]["katib.kubeflow.org/trial"]
        assert (await simulation.message()).startswith(f":warning: Trial `{trial}` isn't healthy.")


async def test_waiting_trials_are_not_reported_once_one_runs(redis):
    def happens(simulation, pod):
        simulation.first = getattr(simulation, "first", pod["metadata"]["name"])
        if pod["metadata"]["name"] == simulation.first:
            simulation.runs(pod)
        else:
            simulation.unscheduled(pod, real_messages.UNSCHEDULABLE)

    async with FailingTrials(redis, happens).started() as simulation:
        await simulation.rounds(8)
        await simulation.after(MINUTE)
        assert await simulation.message() is None


async def test_later_failure_of_another_kind_is_reported_and_one_of_the_same_kind_is_not(redis):
    space = SPACE.replace("max_failed: 1", "max_failed: 3").replace("parallel: 2", "parallel: 1")
    logs = [real_messages.TRACEBACK, real_messages.TRACEBACK, real_messages.CUDA_OOM]
    names = []

    def happens(simulation, pod):
        name = pod["metadata"]["name"]
        names.extend([name] if name not in names else [])
        simulation.cluster.logs[name] = logs[min(names.index(name), 2)]
        simulation.ends(pod, 1)

    async with FailingTrials(redis, happens, space=space).started() as simulation:
        await simulation.rounds(18)
        assert "KeyError" in await simulation.message()
        failures = [text for text in simulation.texts() if re.match(r":warning: (<@UOWNER> )?Trial", text)]
        assert len(failures) == 2
        assert "23.65 GiB" in failures[1]
        assert any("1 more trial failed the same way." in text for text in simulation.slack.posted)


async def test_failure_after_a_success_is_a_message_of_its_own(redis):
    names = []

    def happens(simulation, pod):
        name = pod["metadata"]["name"]
        names.extend([name] if name not in names else [])
        simulation.cluster.logs[name] = real_messages.TRACEBACK
        if names.index(name):
            simulation.ends(pod, 1)
        elif simulation.last.phase is Phase.RUNNING:
            simulation.katib.metrics.report(
                pod["metadata"]["labels"]["katib.kubeflow.org/trial"], [Reported("1", 1)]
            )
            simulation.ends(pod, 0, "Completed")
        else:
            simulation.waits(pod, "CreateContainerConfigError", real_messages.NO_ENV_SECRET)
            if simulation.last.of(HealthState).ts:
                simulation.runs(pod)

    async with FailingTrials(
        redis, happens, space=SPACE.replace("parallel: 2", "parallel: 1")
    ).started() as simulation:
        await simulation.rounds(18)
        assert (await simulation.message()).startswith(":white_check_mark:")
        later, end = [text for text in simulation.slack.posted if "KeyError" in text]
        assert (later.partition(" ")[0], end.partition(" ")[0]) == (":warning:", ":x:")


async def recovering(redis, crash_at=None):
    """The trial can't start, then recovers: two reports. The worker can die at any of its calls."""
    simulation = FailingTrials(redis, waits("CreateContainerConfigError", real_messages.NO_ENV_SECRET))
    simulation.clock.crash_at = crash_at
    async with simulation.started():
        await simulation.rounds(9)
        reported_by = simulation.clock.calls
        simulation.happens = lambda simulation, pod: simulation.runs(pod)
        await simulation.rounds(4)
        shown = [text for text in simulation.slack.posted if "secretpostgresql" in text]
        return reported_by, simulation.clock.calls, shown


async def test_crash_posts_at_most_one_more_message_and_the_last_is_current(redis):
    reported_by, calls, [undisturbed] = await recovering(redis)
    assert undisturbed.startswith(":white_check_mark: Recovered")
    for crash_at in sample(range(reported_by - 12, calls + 1), every=12):
        _, _, shown = await recovering(redis, crash_at)
        assert len(shown) <= 2, f"died at call {crash_at}"
        assert shown[-1].startswith(":white_check_mark: Recovered"), f"died at call {crash_at}"
