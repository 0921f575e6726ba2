"""A sweep over seeds: each runs once, the thread and the CSV report mean and deviation, failed ones rerun."""

from dataclasses import replace
from statistics import fmean, stdev

import pytest

from bot.core.commands import Action, Command
from bot.core.events import Progress
from bot.core.record import Phase
from bot.core.request import SweepRequest
from bot.sweep.answers.messages import results
from bot.sweep.launch.command_line import changed, parse
from bot.sweep.lifecycle.seeds import earlier_seeds, end_text
from bot.sweep.results.collect import Sources, collect
from bot.sweep.results.csv_file import csv_text
from k8s.engine import Trial, TrialState
from tests.bot.factories import CONFIG, OWNER, PLAN, a_sweep
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

REQUEST = parse('branch=main seeds=5 metric=acc goal=maximize cmd="python train.py" parallel=2', CONFIG)
VALUES = {"0": "0.5", "1": "0.7", "2": "0.6", "4": "0.4"}


class OneSeedFails(SimulatedSweep):
    """Seed 3 crashes; the others report VALUES."""

    def _seed(self, trial):
        return self.kubernetes.get("Trial", "sweeps", trial)["spec"]["parameterAssignments"][0]["value"]

    def _end(self, pod, labels):
        trial = labels.get("katib.kubeflow.org/trial")
        self.scenario["crash"] = bool(trial) and self._seed(trial) not in VALUES
        super()._end(pod, labels)

    def _width(self, namespace, trial):
        return VALUES[self._seed(trial)]


@pytest.fixture
async def finished(redis):
    scenario = {"image": True, "sweep": {"request": REQUEST}}
    async with OneSeedFails(redis, Clock(None), **scenario).started() as simulation:
        for _ in range(60):
            await simulation.round()
            if (await simulation.record()).phase.final:
                break
        await simulation.round()
        assert simulation.last.phase is Phase.SUCCEEDED, simulation.slack.posted
        yield simulation


async def test_sweep_over_seeds_runs_each_seed_once_and_lists_them_with_their_statistics(finished):
    trials = finished.kubernetes.list("Trial")
    seeds = [one["spec"]["parameterAssignments"] for one in trials]
    assert sorted(seeds, key=str) == [[{"name": "seed", "value": str(seed)}] for seed in range(5)]
    [end] = [text for text in finished.slack.posted if "Finished" in text]
    values = [float(value) for value in VALUES.values()]
    assert f"Mean `acc` *{fmean(values):.6g}*, standard deviation {stdev(values):.3g}, 95% interval" in end
    assert "(4 of 5 seeds)" in end
    assert "Values by seed: 0: 0.5, 1: 0.7, 2: 0.6, 4: 0.4." in end
    assert f"1 seed without a result: 3-3. Rerun only it: `/sweep rerun {SWEEP} seeds=3-3`." in end
    assert not any(text.startswith(":chart_with_upwards_trend:") for text in finished.slack.posted)
    assert "Mean `acc` *0.55*" in str(finished.slack.parents[-1].blocks)
    await finished.store.add_command(SWEEP, Command(action=Action.RESULTS, user=OWNER, user_name="ada"))
    await finished.round()
    *_, sheet = [content for name, content in finished.slack.files if name.endswith(".csv")]
    head, *rows = [line.split(",") for line in sheet.splitlines()]
    assert head[:4] == ["trial", "state", "acc", "seed"]
    assert [(row[1], row[2], row[3]) for row in rows[:5]] == [
        ("done", "0.5", "0"),
        ("done", "0.7", "1"),
        ("done", "0.6", "2"),
        ("failed", "", "3"),
        ("done", "0.4", "4"),
    ]
    assert [row[0] for row in rows[5:]] == ["mean", "standard deviation", "95% from", "95% to"]
    assert float(rows[5][2]) == pytest.approx(0.55)


async def rerun(finished, changes):
    """Return the record of the rerun after its seed 3 has ended with 0.8."""
    command = Command(action=Action.RERUN, user=OWNER, user_name="ada", changes=changes, request_id="again")
    await finished.store.add_command(SWEEP, command)
    await finished.round()
    [new] = [each.id for each in await finished.store.listed() if each.id != SWEEP]
    record, space = await finished.store.get(new), replace(finished.last.plan.space, max_trials=1)
    plan = replace(finished.last.plan, space=space)
    return replace(record, phase=Phase.SUCCEEDED, plan=plan, progress=Progress(seeds={"3": 0.8}))


async def test_rerun_of_failed_seeds_reports_the_statistics_of_both_sweeps(finished):
    again = await rerun(finished, "seeds=3-3 parallel=1")
    values = [*map(float, VALUES.values()), 0.8]
    alone, _, both = end_text(again).splitlines()
    assert alone == "Mean `acc` *0.8* (1 of 1 seed)."
    assert both.startswith(f"With `{SWEEP}`: Mean `acc` *{fmean(values):.6g}*, standard deviation")
    assert f"{stdev(values):.3g}, 95% interval" in both
    assert both.endswith("(5 seeds).")
    newer = replace(again, plan=replace(again.plan, commit="f" * 40))
    assert f"Not combined with `{SWEEP}`, which ran commit `01234567`, this one `ffffffff`." in end_text(
        newer
    )
    other = replace(again, plan=replace(again.plan, image_by_digest="lab/other@sha256:1"))
    assert f"Not combined with `{SWEEP}`, which ran another version of the image." in end_text(other)
    command = 'seeds=3-3 cmd="python train.py --depth=3"'
    assert earlier_seeds(finished.last, changed(REQUEST, command, CONFIG)) is None
    elsewhere = replace(REQUEST, seeds="3-3", cluster="west", queue="urgent", priority="high")
    assert earlier_seeds(finished.last, elsewhere).sweep == SWEEP


def test_rerun_of_failed_seeds_runs_these_seeds_only():
    again = changed(REQUEST, "seeds=3-3", CONFIG)
    assert again == SweepRequest(
        **{key: getattr(REQUEST, key) for key in REQUEST.__dataclass_fields__} | {"seeds": "3-3"}
    )


def test_results_show_additional_metrics_in_the_table_and_with_every_digit_in_the_csv():
    space = replace(PLAN.space, additional=("acc", "f1"))
    done = Trial(
        name="lr-brave-otter-1",
        state=TrialState.SUCCEEDED,
        parameters={"lr": "0.1"},
        value=0.25,
        more={"acc": 0.123456789},
    )
    plan = replace(PLAN, space=space)
    sweep = a_sweep(Phase.RUNNING, submitted=True, plan=plan)
    found = collect(sweep, plan, Sources(trials=[done]))
    message, (head, row) = results(sweep, found), csv_text(found).splitlines()
    assert head.startswith("trial,state,val_loss,acc,f1,lr,layers,optimizer,started,")
    assert row.startswith("lr-brave-otter-1,done,0.25,0.123456789,,0.1,,,")
    cells = [cell["text"] for cell in message.blocks[1]["rows"][1]]
    assert cells == ["1", "done", "0.25", "0.123457", "–", "0.1", "–", "–"]
