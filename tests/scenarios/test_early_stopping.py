"""Early stopping by Sweepbot: a poor trial's place goes to another one, also when workers die."""

import asyncio
from dataclasses import replace

import pytest

from bot.core.commands import Action, Command
from bot.core.curves import Point
from bot.core.record import Phase
from bot.sweep.reports.end_results import current_results
from bot.sweep.sweeps.observe import observe
from local.cluster import katib_config
from search.service import STOPPED_STEP, STOPPED_VALUE
from tests.bot.factories import OWNER
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

pytestmark = pytest.mark.features("early_stopping", "live_values")

SPACE = """
command: python train.py
objective: {{metric: loss, goal: minimize}}
algorithm: grid
early_stopping: {stopping}
trials: {{max: 4, parallel: 3, max_failed: 1}}
parameters:
  width: [a, b, c, d]
"""
SEARCHED = """
command: python train.py
objective: {metric: loss, goal: minimize, target: 0.5}
early_stopping: {name: asha, grace_period: 1, reduction_factor: 3}
trials: {max: 8, parallel: 3, max_failed: 1}
parameters:
  width: {min: 0, max: 1}
"""
ASHA = {
    "space": SPACE.format(stopping="{name: asha, grace_period: 1, reduction_factor: 3}"),
    "image": True,
    "endless": "trainings",
}


class Curves(SimulatedSweep):
    """All trials report one value, the later ones a worse one, and then train on."""

    def trials(self):
        return [trial["metadata"]["name"] for trial in self.kubernetes.list("Trial")]

    def report(self):
        """Give each trial without a value the next worse one; names don't tell which is later."""
        for name in self.trials():
            number = len(self.live.reported)
            self.live.reported.setdefault(name, [Point(1, 0.1 * (number + 1), float(number))])

    async def until(self, fact, most=40):
        for _ in range(most):
            if fact():
                return
            await self.round()
        raise AssertionError(self.slack.posted)

    def stopped(self):
        """Trials with Sweepbot's condition, which has to be the first in the list."""
        found = []
        for trial in self.kubernetes.list("Trial"):
            first = trial["status"]["conditions"][0]
            if first.get("reason") == "SweepbotStoppedEarly":
                assert (first["type"], first["status"]) == ("Killed", "True")
                found.append(trial["metadata"]["name"])
        return found


def running(sweep):
    pods = sweep.kubernetes.list("Pod")
    return {
        pod["metadata"]["labels"]["katib.kubeflow.org/trial"]
        for pod in pods
        if pod["status"]["phase"] == "Running"
    }


async def results_of(sweep):
    seen = await observe(await sweep.record(), (), sweep.clients)
    return (await current_results(sweep.last, seen, sweep.clients)).trials


async def test_poor_trial_is_stopped_and_replaced(redis):
    sweep = Curves(redis, Clock(None), **ASHA)
    async with sweep.started():
        await sweep.until(lambda: len(running(sweep)) == 3)
        sweep.report()
        *_, third = sweep.live.reported
        await sweep.until(lambda: any("stopped 1 trial early" in text for text in sweep.slack.posted))
        assert sweep.stopped() == [third]
        assert third not in running(sweep)
        await sweep.until(lambda: len(running(sweep)) == 3)
        assert len(sweep.trials()) == 4
        assert (await sweep.record()).progress.stopped_early == 1
        sweep.report()  # of four, only the best continues
        await sweep.until(lambda: len(sweep.stopped()) == 2)
        await sweep.until(lambda: sum("early (asha)" in text for text in sweep.slack.posted) == 2)
        assert len(running(sweep)) == 2
        stopped = {trial.name: trial for trial in await results_of(sweep)}
        assert stopped[third].value == 0.30000000000000004
        assert (await sweep.record()).progress.best is None
        assert all("cancelled" not in text for text in sweep.slack.posted)


class Searched(Curves):
    """The search service runs, as a process."""

    def __init__(self, redis):
        super().__init__(redis, Clock(None), space=SEARCHED, image=True, endless="trainings")
        self.clients = replace(self.clients, config=replace(self.clients.config, search_service=True))
        self.kubernetes.create(katib_config())
        self.requests, call = [], self.katib.search._call

        def recorded(method, request, reply):
            self.requests.append(request)
            return call(method, request, reply)

        self.katib.search._call = recorded

    async def until_searched(self, fact):
        """The process answers in its own time."""
        async with asyncio.timeout(120):
            while not fact():
                await self.round()
                await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_stopped_trials_reach_the_search_and_not_katibs_optimum(redis):
    sweep = Searched(redis)
    async with sweep.started():
        await sweep.until_searched(lambda: len(running(sweep)) == 3)
        sweep.report()
        first, _, third = sweep.live.reported
        await sweep.until_searched(lambda: sweep.stopped() == [third] and len(running(sweep)) == 3)
        await sweep.store.add_command(
            SWEEP, Command(action=Action.KILL, user=OWNER, user_name="ada", trial=first)
        )
        await sweep.until_searched(lambda: len(sweep.trials()) == 5)
        told = {
            each.name: {metric.name: metric.value for metric in each.status.observation.metrics}
            for each in sweep.requests[-1].trials
        }
        assert told[third] == {STOPPED_STEP: "1", STOPPED_VALUE: repr(0.1 * 3)}
        assert told[first] == {STOPPED_STEP: "1", STOPPED_VALUE: "0.1"}
        [experiment] = sweep.kubernetes.list("Experiment")
        assert "bestTrialName" not in experiment["status"]["currentOptimalTrial"]


async def test_dry_run_stops_no_trial(redis):
    scenario = ASHA | {"space": SPACE.format(stopping="{name: asha, grace_period: 1, dry_run: true}")}
    sweep = Curves(redis, Clock(None), **scenario)
    async with sweep.started():
        await sweep.until(lambda: len(running(sweep)) == 3)
        sweep.report()
        await sweep.until(lambda: any("Dry run: asha would have" in text for text in sweep.slack.posted))
        for _ in range(4):
            await sweep.round()
        assert len(running(sweep)) == 3
        assert (sweep.stopped(), sum("Dry run" in text for text in sweep.slack.posted)) == ([], 1)


async def test_lost_redis_stops_no_other_trial(redis):
    sweep = Curves(redis, Clock(None), **ASHA)
    async with sweep.started():
        await sweep.until(lambda: len(running(sweep)) == 3)
        sweep.report()
        await sweep.until(lambda: any("stopped 1 trial early" in text for text in sweep.slack.posted))
        once = sweep.stopped()
        await redis.flushall()
        for _ in range(6):
            await sweep.round()
        assert any("Redis lost its data" in text for text in sweep.slack.posted)
        assert sweep.stopped() == once
        assert (await sweep.record()).progress.stopped_early == 1


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", range(1, 26))
async def test_crash_at_any_call_stops_one_trial_and_reports_it(redis, crash_at):
    sweep = Curves(redis, clock := Clock(None), **ASHA)
    async with sweep.started():
        await sweep.until(lambda: len(running(sweep)) == 3)
        while (await sweep.record()).phase is not Phase.RUNNING:
            await sweep.round()
        sweep.report()
        *_, third = sweep.live.reported
        clock.crash_at = clock.calls + crash_at
        await sweep.until(lambda: any("stopped 1 trial early" in text for text in sweep.slack.posted))
        assert sweep.stopped() == [third]
        assert any(third.removeprefix(SWEEP) in text for text in sweep.slack.posted)
