"""A whole sweep with `goal: maximize`: Katib, thread, lists, and results agree on the best trial."""

import json

import pytest

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.sweep_summary import summary_of
from local.katib.metrics import Reported
from tests.bot.factories import OWNER
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep

ONE_BY_ONE = (
    SPACE.replace("metric: loss, goal: minimize", "metric: acc, goal: maximize")
    .replace("max: 3, parallel: 2", "max: 4, parallel: 1")
    .replace("[a, b, c]", "[a, b, c, d]")
)


class Overfitting(SimulatedSweep):
    """Trials reach 0.3, 0.1, 0.5, and 0.2, in this order; each gets worse at its end."""

    def __init__(self, *args, **scenario):
        super().__init__(*args, **scenario)
        self.values = iter(["0.3", "0.1", "0.5", "0.2"])

    def _width(self, namespace, trial):
        return next(self.values)

    def _end(self, pod, labels):
        if trial := labels.get("katib.kubeflow.org/trial"):
            self.katib.metrics.report(trial, [Reported("0.05", 1)])
        super()._end(pod, labels)
        if trial:
            self.katib.metrics.report(trial, [Reported("0.06", 2)])


@pytest.fixture
async def finished(redis):
    async with Overfitting(redis, Clock(None), space=ONE_BY_ONE, image=True).started() as simulation:
        for _ in range(40):
            await simulation.round()
            if (await simulation.record()).phase.final:
                break
        await simulation.round()
        assert simulation.last.phase is Phase.SUCCEEDED, simulation.slack.posted
        yield simulation


async def test_maximize_sweep_reports_the_largest_value_as_best_from_manifest_to_end_message_and_table(
    finished,
):
    [experiment] = finished.kubernetes.list("Experiment")
    objective = experiment["spec"]["objective"]
    assert (objective["type"], objective["objectiveMetricName"]) == ("maximize", "acc")
    assert (finished.last.progress.best.value, summary_of(finished.last).best) == (0.5, 0.5)
    end = next(text for text in reversed(finished.slack.posted) if "4 trials done" in text)
    width = f"width={finished.last.progress.best.parameters['width']}"
    assert ("*0.5*" in end, width in end) == (True, True)
    shown = json.dumps(finished.slack.parents[-1].blocks)
    assert ("*0.5*" in shown, width in shown) == (True, True)
    command = Command(action=Action.RESULTS, user=OWNER, user_name="ada")
    await finished.store.add_command(SWEEP, command)
    await finished.round()
    *_, (name, sheet) = [each for each in finished.slack.files if each[0].endswith(".csv")]
    values = [line.split(",")[2] for line in sheet.splitlines()]
    assert values == ["acc", "0.5", "0.3", "0.2", "0.1"], name
