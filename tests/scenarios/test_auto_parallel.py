"""`parallel=auto`: a sweep grows into free GPUs, and lets trials end when others wait."""

import secrets

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from tests.scenarios.auto_sweep import AutoSweep

pytestmark = pytest.mark.features("auto_parallel")


async def test_sweep_grows_into_free_gpus_up_to_its_maximum(redis):
    story = AutoSweep(redis, gpus=8, most=6)
    async with story.started():
        await story.until(lambda: len(story.running()) == 1)
        await story.until(lambda: len(story.running()) == 6)
        assert story.line() == "Running up to 6 trials (auto): 5 more GPUs became free"
        assert story.counts() == (6, 20)
        await story.rounds(8)
        assert len(story.running()) == 6


async def test_sweep_yields_by_letting_trials_finish_grows_again_and_ends_after_all_its_trials(redis):
    story = AutoSweep(redis, gpus=8, most=8)
    async with story.started():
        await story.until(lambda: len(story.running()) == 8)
        story.other_pod("other", 4, **{"sweepbot/team": "nlp"})
        await story.until(lambda: "Letting" in story.line())
        assert story.line() == "Letting trials finish, down to 4 (auto): team nlp waits for 4 GPUs"
        assert len(story.running()) == 8, "no trial is stopped"
        parallel, most = story.counts()
        assert (parallel, most) == (8, 9), "parallelTrialCount is never lowered"
        await story.until(
            lambda: story.kubernetes.get("Pod", "sweeps", "other")["spec"].get("nodeName"), endings=1
        )
        await story.rounds(4)
        assert len(story.running()) == 4
        assert story.line() == "Running up to 4 trials (auto): team nlp was waiting for 4 GPUs"
        assert not [t for t in story.kubernetes.list("Trial") if "Killed" in str(t["status"])]
        story.kubernetes.delete("Pod", "sweeps", "other", grace=0)
        await story.until(lambda: len(story.running()) == 8)
        await story.until(lambda: story.last.phase.final, rounds=80, endings=8)
        assert (story.last.phase, story.last.progress.succeeded) == (Phase.SUCCEEDED, 20)


async def test_pod_that_waits_for_a_volume_keeps_no_sweep_small(redis):
    story = AutoSweep(redis, gpus=8, most=8)
    async with story.started():
        story.other_pod("other", 9, waits="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
        unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        story.other_pod("unbound", 8, waits=unbound)
        story.binds = lambda pod: pod["metadata"]["name"] != "unbound"
        await story.until(lambda: len(story.running()) == 8)
        await story.rounds(6)
        assert len(story.running()) == 8
        assert story.line() == "Running up to 8 trials (auto): 7 more GPUs became free"


async def test_sweep_whose_trials_all_ended_while_sweepbot_was_down_continues(redis):
    story = AutoSweep(redis, gpus=8, most=4)
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        story.other_pod("other", 7, **{"sweepbot/team": "nlp"})
        await story.until(lambda: "Letting" in story.line())
        story.endings = 20
        for _ in range(6):  # no worker reconciles
            await story._time_passes()
            await story.settle()
        ended = story.kubernetes.get("Experiment", "sweeps", story.last.id)["status"]["conditions"]
        assert ("Succeeded", "ExperimentMaxTrialsReached") in [(c["type"], c["reason"]) for c in ended]
        story.endings = 0
        await story.until(lambda: story.last.phase is Phase.RUNNING and len(story.running()) == 1)
        story.kubernetes.delete("Pod", "sweeps", "other", grace=0)
        await story.until(lambda: story.last.phase.final, rounds=120, endings=4)
        assert (story.last.phase, story.last.progress.succeeded) == (Phase.SUCCEEDED, 20)


@pytest.mark.features("pause")
async def test_paused_sweep_resumes_with_few_trials_and_grows_again(redis):
    story = AutoSweep(redis, gpus=8, most=4)
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        await story.rounds(3, endings=1)
        await story.asks(Action.PAUSE_NOW)
        await story.until(lambda: story.last.phase is Phase.PAUSED)
        assert not story.running()
        story.other_pod("other", 7)
        await story.rounds(1)
        await story.asks(Action.RESUME)
        await story.until(lambda: len(story.running()) == 1)
        await story.rounds(6)
        assert len(story.running()) == 1
        story.kubernetes.delete("Pod", "sweeps", "other", grace=0)
        await story.until(lambda: len(story.running()) == 4)


@pytest.mark.features("gate")
async def test_gated_sweep_grows_only_after_its_first_trial(redis):
    story = AutoSweep(redis, gpus=8, most=4, gate=True)
    async with story.started():
        await story.until(lambda: len(story.running()) == 1)
        assert story.counts() == (1, 1)
        await story.until(lambda: len(story.running()) == 4)
        assert story.counts() == (4, 20)


async def test_drained_sweep_ends_without_new_trials(redis):
    story = AutoSweep(redis, gpus=8, most=4)
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        await story.asks(Action.DRAIN)
        await story.until(lambda: story.last.phase.final, endings=4)
        assert story.last.progress.succeeded == 4


async def test_unchanged_sweep_costs_no_request_and_measuring_does_not_grow_with_trials(redis):
    story = AutoSweep(redis, gpus=8, most=6)
    async with story.started():
        await story.until(lambda: len(story.running()) == 6)
        await story.rounds(10)
        calls = []
        story.cluster.list = _recorded(story.cluster.list, calls)
        await story.rounds(5)
        assert calls == ["ResourceSlice", "Node"] * 5, "the leader's measurement, once per interval"


def _recorded(call, calls):
    async def recorded(kind, *args, **kwargs):
        calls.append(kind)
        return await call(kind, *args, **kwargs)

    return recorded


async def test_worker_crash_at_any_call_changes_nothing(redis):
    call = 40 + secrets.randbelow(300)
    story = AutoSweep(redis, gpus=8, most=8, crash_at=call)
    async with story.started():
        await story.until(lambda: len(story.running()) == 8)
        story.other_pod("other", 4)
        await story.until(lambda: story.counts() == (8, 9))
        await story.until(lambda: len(story.running()) == 4, endings=1)
        await story.until(lambda: story.last.phase.final, rounds=120, endings=4)
        assert (story.last.phase, story.last.progress.succeeded) == (Phase.SUCCEEDED, 20), f"call {call}"
        assert story.last.steps["submitted"] == "✓ Submitted", f"call {call}"
