"""Live values and curves of a running sweep, and the effect of an absent MLflow."""

import pytest

from bot.core.curves import Point
from bot.core.record import Phase
from bot.sweep.results.tracking_api import TrackingError
from tests.scenarios.slack_session import ADA, open_session
from tests.scenarios.sweep_in_memory import SWEEP

HELD = {"image": True, "endless": "trainings"}


def trials(session):
    return sorted(trial["metadata"]["name"] for trial in session.simulation.kubernetes.list("Trial"))


async def test_curves_are_a_picture_sent_with_the_values_as_its_description(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        _, [_, private] = await session.types("curves")
        assert "has the metric `loss` in MLflow yet. *Fix:* Log it while training" in private
        session.simulation.live.reported = {name: [Point(1, 0.5), Point(2, 0.25)] for name in trials(session)}
        answer, [_, private] = await session.types("curves")
        assert answer.startswith(f"Looking up `{SWEEP}`")
        shown, note = private.splitlines()
        assert shown.endswith("2 trials with `loss` in MLflow: picture sent by direct message.")
        assert note == "Also logged: `accuracy`. To draw one, add `metric=NAME` to `curves`."
        [direct] = session.slack.workspace.channels[f"D{ADA.user[1:]}"].messages.values()
        [file] = direct["files"]
        assert file["name"] == f"{SWEEP}-curves.png"
        _, [_, private] = await session.types("curves metric=accuracy")
        assert "2 trials with `accuracy` in MLflow" in private
        assert "Also logged: `loss`." in private
        _, [_, private] = await session.types("curves metric=recall")
        assert "has the metric `recall` in MLflow. Available: `accuracy`, `loss`." in private
        session.simulation.live.away = True
        _, [_, private] = await session.types("curves")
        assert "MLflow can't be read (no answer within 8 s). Try again later." in private


async def test_curves_of_an_ended_sweep_need_no_search_for_its_runs(redis, monkeypatch):
    async def too_slow(*_):
        raise TrackingError("no answer within 8 s")

    async with open_session(redis, image=True) as session:
        await session.until(Phase.SUCCEEDED)
        await session.rounds(3)
        session.simulation.live.reported = {name: [Point(1, 0.5), Point(2, 0.25)] for name in trials(session)}
        monkeypatch.setattr(session.simulation.live, "curves", too_slow)
        _, [_, private] = await session.types(f"curves {SWEEP}")
        assert "with `loss` in MLflow: picture sent by direct message." in private


@pytest.mark.features("live_values")
async def test_message_follows_running_trials_without_mlflow_too(redis):
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        await session.rounds(3)
        first, second = trials(session)
        session.simulation.live.reported = {first: [Point(4, 0.5)], second: [Point(3, 0.25)]}
        await session.rounds(1)
        assert session.simulation.last.progress.live.trial == second
        session.simulation.live.away = True
        await session.rounds(3)
        while (await session.simulation.record()).outbox:  # Slack's rate limit uses the real clock
            await session.rounds()
        message = [text for text in session.thread() if "MLflow isn't responding" in text]
        assert (len(message), session.simulation.last.progress.live) == (1, None)
        assert session.simulation.last.progress.running == 2


@pytest.mark.features("live_values")
async def test_mlflow_is_read_only_while_trials_run(redis):
    async with open_session(redis, image=True) as session:
        await session.until(Phase.PENDING)
        assert session.simulation.live.reads == 0
        await session.until(Phase.SUCCEEDED)
        reads = session.simulation.live.reads
        await session.rounds(3)
        assert session.simulation.live.reads == reads > 0


async def test_bug_in_an_answer_is_reported_and_the_sweep_continues(redis, monkeypatch):
    async def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("bot.sweep.answers.replies.draw_curves", broken)
    async with open_session(redis, **HELD) as session:
        await session.until(Phase.RUNNING)
        _, [_, private] = await session.types("curves")
        assert private.startswith(f"Couldn't answer about `{SWEEP}`: internal error.")
        record = await session.simulation.record()
        assert (record.phase, record.quarantined) == (Phase.RUNNING, False)
        assert await session.simulation.clients.store.commands(SWEEP) == []
