"""`parallel=auto` with extensions, early stopping, seeds, time limits, pauses, and cancelled trials."""

from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.curves import Point
from bot.core.record import Phase
from bot.core.request import SEEDS
from k8s.trial_kinds import TRIAL_LABEL
from tests.bot.factories import OWNER
from tests.scenarios.auto_sweep import SPACE, AutoSweep
from tests.scenarios.sweep_in_memory import SWEEP

pytestmark = pytest.mark.features("auto_parallel")

SHORT = SPACE.replace("max: 20", "max: 6")


async def extend(story, trials=0):
    command = Command(action=Action.EXTEND, user=OWNER, user_name="ada", trials=trials)
    await story.store.add_command(SWEEP, command)
    story.endings = 0
    await story.rounds(1)


@pytest.mark.features("extension")
async def test_extended_sweep_measures_again_and_grows(redis):
    story = AutoSweep(redis, gpus=8, most=8, space=SHORT)
    async with story.started():
        await story.until(lambda: len(story.running()) == 6)
        await story.until(lambda: story.last.phase.final, endings=4)
        assert story.last.progress.succeeded == 6
        story.other_pod("other", 7)
        await story.rounds(2)
        await extend(story, 14)
        assert story.last.phase is Phase.RUNNING, story.slack.posted
        await story.until(lambda: len(story.running()) == 1)
        await story.rounds(4)
        assert len(story.active()) == 1
        story.kubernetes.delete("Pod", "sweeps", "other", grace=0)
        await story.until(lambda: len(story.running()) == 8)
        await story.until(lambda: story.last.phase.final, rounds=80, endings=4)
        assert (story.last.phase, story.last.progress.succeeded) == (Phase.SUCCEEDED, 14)
        assert len(story.kubernetes.list("Trial")) == 14


@pytest.mark.features("extension")
async def test_sweep_extended_after_its_deadline_keeps_the_time_it_had_left(redis):
    story = AutoSweep(redis, gpus=8, most=4, space=SHORT, max_hours=1.0)
    async with story.started():
        await story.rounds(1)
        await story.until(lambda: story.last.phase.final, endings=4, rounds=60)
        story.time += timedelta(hours=3)
        await extend(story)
        await story.until(lambda: len(story.running()) == 4)
        story.time += timedelta(hours=1)
        await story.rounds(2)
        await story.until(lambda: story.last.phase.final, endings=4)
        assert len(story.kubernetes.list("Trial")) < 20
        assert "time limit reached" in story.last.reason


class Reporting(AutoSweep):
    """Trials report one value each, the later ones a worse one, and then train on."""

    def report(self):
        for pod in self.running():
            number = len(self.live.reported)
            values = [Point(1, 0.1 * (number + 1), float(number))]
            self.live.reported.setdefault(pod["metadata"]["labels"][TRIAL_LABEL], values)

    def stopped(self):
        conditions = [t.get("status", {}).get("conditions") for t in self.kubernetes.list("Trial")]
        return [each for each in conditions if each and each[0].get("reason") == "SweepbotStoppedEarly"]


@pytest.mark.features("early_stopping", "live_values")
@pytest.mark.parametrize(
    "rule", ["name: asha", pytest.param("name: median, min_trials_required: 2", marks=pytest.mark.slow)]
)
async def test_stopped_trials_are_replaced_and_count_toward_the_total(redis, rule):
    space = SPACE.replace("algorithm: grid", f"algorithm: grid\nearly_stopping: {{{rule}, grace_period: 1}}")
    story = Reporting(redis, gpus=4, most=6, space=space)
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        for number in range(120):
            story.report()
            await story.rounds(1, endings=number % 4 == 0)  # the best ones are never stopped
            assert len(story.active()) <= 4, "no more trials than GPUs"
            if story.last.phase.final:
                break
        progress = story.last.progress
        assert story.last.phase is Phase.SUCCEEDED, story.slack.posted
        assert progress.stopped_early + progress.succeeded == len(story.kubernetes.list("Trial")) == 20
        assert progress.stopped_early >= 8


@pytest.mark.features("early_stopping", "live_values")
async def test_yielding_sweep_replaces_no_stopped_trial(redis):
    rule = "early_stopping: {name: asha, grace_period: 1, reduction_factor: 3}"
    space = SPACE.replace("algorithm: grid", f"algorithm: grid\n{rule}")
    story = Reporting(redis, gpus=8, most=8, space=space)
    async with story.started():
        await story.until(lambda: len(story.running()) == 8)
        story.other_pod("other", 6, **{"sweepbot/team": "nlp"})
        await story.until(lambda: "Letting" in story.line())
        story.report()
        await story.rounds(4)
        assert len(story.active()) == 3, "two, and the one that can still start"
        story.endings = 1
        await story.until(story.other_runs)
        assert len(story.kubernetes.list("Trial")) == 9


async def test_seeds_run_in_parallel_as_gpus_are_free_and_each_once(redis):
    seeds = {"space": SEEDS, "cmd": "python train.py", "seeds": "6", "metric": "loss", "goal": "minimize"}
    story = AutoSweep(redis, gpus=4, most=16, **seeds)
    story._width = lambda *_: "0.5"
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        await story.until(lambda: story.last.phase.final, endings=4, rounds=60)
        assert (story.last.phase, story.last.progress.succeeded) == (Phase.SUCCEEDED, 6)
        given = [t["spec"]["parameterAssignments"][0]["value"] for t in story.kubernetes.list("Trial")]
        assert len(set(given)) == len(given) == 6


@pytest.mark.parametrize("throttled", [False, True])
async def test_sweep_at_its_time_limit_starts_no_more_trials(redis, throttled):
    story = AutoSweep(redis, gpus=8, most=4, max_hours=1.0)
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        if throttled:
            story.other_pod("other", 7)
            await story.until(lambda: "Letting" in story.line())
        made = len(story.kubernetes.list("Trial"))
        story.time += timedelta(hours=1)
        await story.rounds(3)
        assert len(story.running()) == 4, "running trials finish"
        await story.until(lambda: story.last.phase.final, endings=4)
        assert story.last.phase is Phase.SUCCEEDED
        assert "time limit reached" in story.last.reason
        assert len(story.kubernetes.list("Trial")) == made


@pytest.mark.features("extension")
async def test_sweep_whose_time_ends_after_its_throttled_trials_ended_does_not_continue(redis):
    story = AutoSweep(redis, gpus=8, most=4, max_hours=1.0)
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        story.other_pod("other", 7)
        await story.until(lambda: "Letting" in story.line())
        story.endings = 20
        for _ in range(6):  # no worker reconciles
            await story._time_passes()
            await story.settle()
        made, story.endings = len(story.kubernetes.list("Trial")), 0
        story.time += timedelta(hours=1)
        await story.until(lambda: story.last.phase.final)
        assert (story.last.phase, len(story.kubernetes.list("Trial"))) == (Phase.SUCCEEDED, made)
        assert "time limit reached" in story.last.reason
        await extend(story)
        assert story.last.phase is Phase.SUCCEEDED
        assert any("can't be extended" in text for text in map(str, story.slack.ephemeral_messages)), (
            story.slack.posted
        )


@pytest.mark.features("pause")
async def test_pause_lets_trials_finish_and_the_rest_follows_after_the_resume(redis):
    story = AutoSweep(redis, gpus=8, most=4)
    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        await story.rounds(2, endings=1)
        await story.asks(Action.PAUSE)
        await story.until(lambda: story.last.phase is Phase.PAUSED, endings=1)
        done = story.last.progress.succeeded
        await story.rounds(3)
        assert not story.running()
        await story.asks(Action.RESUME)
        await story.until(lambda: len(story.running()) == 4)
        await story.until(lambda: story.last.phase.final, rounds=80, endings=4)
        assert done < 20
        assert (story.last.phase, story.last.progress.succeeded) == (Phase.SUCCEEDED, 20)


async def test_cancelled_trial_is_replaced_unless_others_wait(redis):
    story = AutoSweep(redis, gpus=8, most=4)

    async def one_is_cancelled():
        trial = story.running()[0]["metadata"]["labels"][TRIAL_LABEL]
        command = Command(action=Action.KILL, user=OWNER, user_name="ada", trial=trial)
        await story.store.add_command(SWEEP, command)
        await story.rounds(6)
        assert trial not in [p["metadata"]["labels"][TRIAL_LABEL] for p in story.running()]
        assert len(story.running()) == 4, "throttled, one more can still start"

    async with story.started():
        await story.until(lambda: len(story.running()) == 4)
        await one_is_cancelled()
        story.other_pod("other", 6)
        await story.until(lambda: "Letting" in story.line())
        await one_is_cancelled()
        await story.until(story.other_runs, endings=1)
        assert len(story.kubernetes.list("Trial")) == 6
        story.kubernetes.delete("Pod", "sweeps", "other", grace=0)
        await story.until(lambda: story.last.phase.final, rounds=80, endings=4)
        progress = story.last.progress
        assert (story.last.phase, progress.succeeded) == (Phase.SUCCEEDED, 18)
