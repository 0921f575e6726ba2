"""Live values and curves of a running sweep: what people see, and what an absent MLflow changes."""

from bot.core.curves import Point
from bot.core.record import Phase
from tests.scenarios.slack_session import ADA, chat
from tests.scenarios.sweep_in_memory import SWEEP

HELD = {"image": True, "endless": "trainings"}


def trials(lab):
    return sorted(trial["metadata"]["name"] for trial in lab.life.kubernetes.list("Trial"))


async def test_curves_are_a_picture_sent_with_the_values_as_its_description(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        _, [_, private] = await lab.types("curves")
        assert "in MLflow has the metric `loss` yet. Log it while training" in private
        lab.life.live.curves_of = {name: [Point(1, 0.5), Point(2, 0.25)] for name in trials(lab)}
        answer, [_, private] = await lab.types("curves")
        assert answer.startswith(f"Looking up `{SWEEP}`")
        assert private.endswith("2 trials with `loss` in MLflow: picture sent by direct message.")
        [direct] = lab.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()
        [file] = direct["files"]
        assert file["name"] == f"{SWEEP}-curves.png"
        lab.life.live.away = True
        _, [_, private] = await lab.types("curves")
        assert "MLflow isn't available (no answer within 8 s). Try again later." in private


async def test_the_message_follows_running_trials_and_no_trial_is_lost_without_mlflow(redis):
    async with chat(redis, **HELD) as lab:
        await lab.until(Phase.RUNNING)
        await lab.rounds(3)
        first, second = trials(lab)
        lab.life.live.curves_of = {first: [Point(4, 0.5)], second: [Point(3, 0.25)]}
        await lab.rounds(1)
        assert lab.life.last.progress.live.trial == second
        lab.life.live.away = True
        await lab.rounds(3)
        said = [text for text in lab.thread() if "MLflow isn't responding" in text]
        assert (len(said), lab.life.last.progress.live) == (1, None)
        assert lab.life.last.progress.running == 2


async def test_nothing_is_read_before_a_trial_runs_and_after_the_last_one(redis):
    async with chat(redis, image=True) as lab:
        await lab.until(Phase.PENDING)
        assert lab.life.live.reads == 0
        await lab.until(Phase.SUCCEEDED)
        reads = lab.life.live.reads
        await lab.rounds(3)
        assert lab.life.live.reads == reads > 0
