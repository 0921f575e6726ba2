"""A sweep with a budget: the forecast after a quarter of its trials, and where it stops.

Each training lasts as long as a seeded log-normal distribution says, which has a spread of 40 %.
"""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action
from bot.core.record import Phase
from bot.sweep.features.budget.decide import BudgetState
from bot.text.number_format import hours
from k8s.objects import timestamp
from k8s.trial_kinds import TRIAL_LABEL
from local.kubernetes.apiserver import store as kubernetes
from tests.bot.factories import NOW, REQUEST
from tests.scenarios.moments import sample
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep

SPACE = """
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {max: 40, parallel: 4, max_failed: 3}
parameters:
  width: [a, b, c, d, e]
  depth: [1, 2, 3, 4, 5, 6, 7, 8]
"""
SMALL = SPACE.replace("max: 40, parallel: 4", "max: 9, parallel: 2")
STEP = timedelta(minutes=20)  # of simulated time per round
HOUR, SPREAD = timedelta(hours=1), 0.4
GPUS = 2  # of a trial


class BudgetSweep(SimulatedSweep):
    """Its trials last an hour, more or less."""

    def __init__(self, redis, budget, *, space=SPACE, seed=1, crash_at=None):
        request = replace(REQUEST, budget=budget, gpus=GPUS)
        super().__init__(redis, Clock(crash_at), image=True, space=space, sweep={"request": request})
        self.time, self.chance = NOW, random.Random(seed)  # noqa: S311
        self.began, self.lengths = {}, {}  # by trial
        self.clients = replace(self.clients, now=lambda: self.time)

    async def round(self, *args, **kwargs):
        self.time += STEP
        await super().round(*args, **kwargs)

    async def _time_passes(self):
        for pod in [*self.kubernetes.peek("Pod")]:
            labels, phase = pod["metadata"]["labels"], pod["status"]["phase"]
            trial = labels.get(TRIAL_LABEL)
            if trial and trial not in self.began:
                self.began[trial], self.lengths[trial] = (
                    self.time,
                    HOUR * self.chance.lognormvariate(0, SPREAD),
                )
                self.kubernetes.patch(*kubernetes.place(pod), {"spec": {"nodeName": "n1"}})
                self._status(pod, "Running", {"running": {"startedAt": timestamp(self.time)}})
            elif trial and phase == "Running" and self.time >= self.began[trial] + self.lengths[trial]:
                self._end(pod, labels)

    def _status(self, pod, phase, state):
        if over := state.get("terminated"):
            trial = pod["metadata"]["labels"][TRIAL_LABEL]
            began, ended = self.began[trial], self.began[trial] + self.lengths[trial]
            state = {"terminated": over | {"startedAt": timestamp(began), "finishedAt": timestamp(ended)}}
        super()._status(pod, phase, state)

    def used(self):
        return GPUS * sum(self.lengths.values(), timedelta()) / HOUR

    async def ends(self):
        """Return the forecast after a quarter of the trials."""
        forecast = None
        async with self.started():
            for number in range(400):
                await self.round(worker=f"worker-{number}")
                if self.last.plan and self.last.progress.finished >= self.last.plan.space.max_trials / 4:
                    forecast = forecast or self.last.of(BudgetState).needed
                if self.last.phase.final and not self.last.outbox:
                    return forecast
        raise AssertionError(f"{self.last.phase}: {self.last.progress}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 0, 8])
async def test_forecast_after_a_quarter_of_the_trials_is_near_the_total(redis, seed):
    sweep = BudgetSweep(redis, "500", seed=seed)
    assert await sweep.ends() == pytest.approx(sweep.used(), rel=0.2)
    assert sweep.last.of(BudgetState).used == pytest.approx(sweep.used(), abs=0.1)
    assert (sweep.last.reason, len(sweep.lengths)) == ("40 trials done", 40)


def assert_kept(sweep, budget):
    """At most the longest trial is beyond the budget."""
    longest = GPUS * max(sweep.lengths.values()) / HOUR
    assert budget / 2 < sweep.used() <= budget + longest
    assert (sweep.last.phase, sweep.gpus_held()) == (Phase.SUCCEEDED, [])
    assert sweep.last.reason == f"budget reached after {len(sweep.lengths)} trials"
    assert sweep.last.of(BudgetState).used == pytest.approx(sweep.used(), abs=0.1)


async def test_sweep_without_room_for_a_trial_ends_and_says_how_to_continue(redis):
    sweep = BudgetSweep(redis, "20", seed=4)
    await sweep.ends()
    assert_kept(sweep, 20)
    drains, end, *_ = sweep.slack.posted
    assert "Budget of 20 GPU-h has no room for a trial beside the running ones: no new trials start" in drains
    used = f"Used {hours(sweep.last.of(BudgetState).used)} of 20 GPU-h. For more trials: `/sweep rerun lr-"
    assert used in end
    assert used in sweep.slack.parents[-1].blocks[0]["text"]["text"]


class PausedSweep(BudgetSweep):
    """Paused while the last trials of its lowered total run, and resumed."""

    async def _interfere(self, phase):
        if self.acts and len(self.began) == self.last.trials_now > 1:
            await self._ask(Action.PAUSE)
        if phase is Phase.PAUSED:
            self.acts = {Action.RESUME: phase}
        await super()._interfere(phase)


@pytest.mark.features("pause")
async def test_sweep_paused_with_the_last_trials_of_a_lowered_total_continues(redis):
    sweep = PausedSweep(redis, "12", space=SMALL, seed=4)
    sweep.acts = {Action.PAUSE: None}
    await sweep.ends()
    assert_kept(sweep, 12)
    assert sum("resumed this sweep" in text for text in sweep.slack.posted) == 1


async def test_crash_at_any_call_keeps_the_budget(redis):
    calm = BudgetSweep(redis, "5", space=SMALL)
    await calm.ends()
    assert_kept(calm, 5)
    for dies_at in sample(range(1, calm.clock.calls + 1), every=400):
        hurt = BudgetSweep(redis, "5", space=SMALL, crash_at=dies_at)
        await hurt.ends()
        assert_kept(hurt, 5)
