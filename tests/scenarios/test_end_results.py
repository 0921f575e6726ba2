"""What a sweep leaves in its thread and in the cluster when it ends."""

import csv
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.request import SweepRequest
from bot.core.space import Goal, command_line
from bot.platform.config.limits import Limits
from bot.sweep.charts.drawing import Picture
from bot.sweep.lifecycle.texts import RESULT_FILES
from bot.sweep.reports.end_results import keep_results, stored_results
from bot.sweep.reports.post_results import RUNS_TIMEOUT, post_files
from bot.sweep.results.store import ResultsStore
from bot.sweep.spaces.space import parse_space
from k8s.engine import TrialState
from tests.bot.factories import NOW, OWNER
from tests.scenarios.fakes import FakePictures
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep


@pytest.fixture
async def ended(redis):
    async with SimulatedSweep(redis, Clock(None), image=True).started() as simulation:
        for _ in range(40):
            await simulation.round()
            if (record := await simulation.record()).phase.final and not record.outbox:
                break
        yield simulation


async def test_results_of_an_ended_sweep_outlive_katibs_objects_redis_and_the_record(ended):
    for kind in ("Experiment", "Trial", "Pod"):
        for obj in ended.kubernetes.list(kind):
            ended.kubernetes.delete(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
    await ended.redis.flushall()
    found = await ResultsStore(ended.cluster, "sweeps").get(SWEEP)
    assert (found.phase, found.space.metric, len(found.trials)) == (Phase.SUCCEEDED, "loss", 3)
    assert sorted(trial.value for trial in found.trials) == [0.1, 0.3, 0.5]
    assert found.best_trial.parameters == {"width": "c"}
    assert {trial.state for trial in found.trials} == {TrialState.SUCCEEDED}
    assert {trial.node for trial in found.trials} == {"n1"}
    assert (found.runs_pending, {trial.run_url for trial in found.trials}) == (
        False,
        {f"http://mlflow/{trial.name}" for trial in found.trials},
    )
    assert await keep_results(ended.last, ended.clients) == found  # from the stored record


async def test_table_picture_and_files_are_in_the_thread_once_and_agree(ended):
    assert [name for name, _ in ended.slack.files] == [f"{SWEEP}.png", "results.csv", "best.yaml"]
    comments = [text for text in ended.slack.posted if text.startswith(f"Results of `{SWEEP}`: 3 trials in")]
    assert len(comments) == 1
    assert ended.clients.pictures.forgotten == [SWEEP]
    files = dict(ended.slack.files)
    rows = list(csv.DictReader(files["results.csv"].splitlines()))
    assert [row["loss"] for row in rows] == ["0.1", "0.3", "0.5"]
    assert [row["run_url"] for row in rows] == [f"http://mlflow/{row['trial']}" for row in rows]
    known = {f"{float(row['loss']):.6g}": row for row in rows}
    [table] = [text for text in ended.slack.posted if "3 trials by `loss`" in text]
    assert "Finished: 3 trials done" in table, "the end is the same message"
    for line in table.partition("3 trials by `loss`")[2].splitlines()[1:]:
        value, trial = re.fullmatch(r"\d+\. (\S+) \(`(.+)`\)", line).groups()
        assert known[value]["trial"] == trial
    end = next(text for text in ended.slack.posted if "Finished: 3 trials done" in text)
    value, width = re.search(r"\*([\d.]+)\* with `width=(.)`", end).groups()
    assert known[value]["width"] == width
    space = parse_space(files["best.yaml"], "best.yaml", SweepRequest(branch="main", space="best"), Limits())
    assert (space.max_trials, space.metric, space.goal) == (1, "loss", Goal.MINIMIZE)
    assert command_line(space, {"width": "c"}) == "python train.py --width=c"
    assert [(each.name, each.values) for each in space.parameters] == [("width", ("c",))]
    assert "then run: /sweep branch=main space=best gpus=1\n" in files["best.yaml"]


async def test_command_in_best_yaml_names_the_repository_that_the_sweep_named(ended):
    sweep = replace(ended.last, request=replace(ended.last.request, repo="digits"))
    await post_files(sweep, RESULT_FILES, ended.clients)
    assert "space=best gpus=1 repo=digits\n" in ended.slack.files[-1][1]


async def test_files_wait_for_the_picture_and_nothing_is_posted_twice(redis):
    scenario = SimulatedSweep(redis, Clock(None), image=True)
    scenario.clients.pictures = SlowPictures()
    async with scenario.started() as simulation:
        for _ in range(40):
            await simulation.round()
            if (await simulation.record()).phase.final and simulation.clients.pictures.asked > 2:
                break
        waiting = [event.kind for event in simulation.last.outbox]
        assert (waiting, simulation.slack.files) == (["result_files"], [])
        simulation.clients.pictures.is_drawn = True
        await simulation.round()
        assert (await simulation.record()).outbox == ()
        assert len([text for text in simulation.slack.posted if "3 trials by `loss`" in text]) == 1
        assert [name for name, _ in simulation.slack.files] == ["results.csv", "best.yaml"]
        assert any(text.endswith("The picture couldn't be drawn.") for text in simulation.slack.posted)


async def test_files_are_posted_a_minute_after_the_end_while_mlflow_is_away(redis):
    scenario, passed = SimulatedSweep(redis, Clock(None), image=True), timedelta(0)
    scenario.run_writer.away, scenario.clients.now = True, lambda: NOW + passed
    async with scenario.started() as simulation:
        for _ in range(40):
            await simulation.round()
            if (record := await simulation.record()).phase.final:
                break
        assert [event.kind for event in record.outbox] == ["result_files"]
        passed = RUNS_TIMEOUT - timedelta(seconds=1)
        await simulation.round()
        assert simulation.slack.files == []
        passed = RUNS_TIMEOUT
        await simulation.round()
        files = dict(simulation.slack.files)
        assert len(files) == 3
        assert [row["run_url"] for row in csv.DictReader(files["results.csv"].splitlines())] == [""] * 3


async def test_results_command_sends_the_csv_of_the_end(ended):
    command = Command(action=Action.RESULTS, user=OWNER, user_name="ada", response_url="https://hooks/2")
    await ended.store.add_command(SWEEP, command)
    await ended.round()
    posted, sent = (dict(ended.slack.files)[name] for name in ("results.csv", f"{SWEEP}.csv"))
    assert sent == posted


class SlowPictures(FakePictures):
    """Fails to draw, and only after a while."""

    def __init__(self):
        super().__init__()
        self.asked, self.is_drawn = 0, False

    def get(self, results):
        self.asked += 1
        return Picture("", b"") if self.is_drawn else None


async def test_results_of_another_sweep_are_neither_used_nor_replaced_and_unreadable_ones_are_as_none(ended):
    other = replace(ended.last, request_id="another")
    before = await stored_results(SWEEP, ended.clients)
    assert await keep_results(other, ended.clients) is None
    assert await stored_results(SWEEP, ended.clients) == before
    ended.kubernetes.patch("ConfigMap", "sweeps", f"results-{SWEEP}", {"binaryData": {"results": "AAAA"}})
    assert await stored_results(SWEEP, ended.clients) is None
