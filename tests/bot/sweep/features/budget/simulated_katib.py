"""A sweep's experiment as Katib runs it (ReconcileTrials), for hundreds of sweeps; times are hours."""

from dataclasses import replace
from datetime import timedelta

from bot.core.budget import Budget
from bot.core.record import Phase
from bot.sweep.decisions.advance import advance, requeue_after
from bot.sweep.decisions.required_changes import required_changes
from bot.sweep.feature_table import FEATURES
from bot.sweep.model.engine import TRIAL
from bot.sweep.model.observation import Observation
from k8s.engine import End, ExperimentState, TrialState
from k8s.katib.status import read_experiment
from tests.bot.factories import CONFIG, NOW, PLAN, a_sweep
from tests.bot.sweep.model.observations import META, a_pod, a_trial

HOUR = timedelta(hours=1)


class BudgetedSweep:
    """`lengths`: of its trials, in their order; each has one GPU."""

    def __init__(self, budget, lengths, parallel, usual=None, trial_hours=None):
        space = replace(
            PLAN.space, max_trials=len(lengths), parallel=parallel, max_failed=3, trial_hours=trial_hours
        )
        plan = replace(PLAN, budget=Budget(gpu_hours=budget, usual=usual), gpus=1, space=space)
        self.sweep = a_sweep(Phase.RUNNING, submitted=True, plan=plan)
        counts = {
            "maxTrialCount": len(lengths),
            "parallelTrialCount": parallel,
            "maxFailedTrialCount": 3,
        }
        experiment = {"metadata": META, "spec": counts}
        for feature in FEATURES:
            experiment = feature.prepare(self.sweep, experiment) if feature.prepare else experiment
        self.experiment, self.drained = experiment, False
        self.budget, self.lengths, self.parallel = budget, lengths, parallel
        self.now, self.began, self.stopped = 0.0, [], set()

    @property
    def used(self):
        return sum(self.lengths[: len(self.began)])

    @property
    def over(self):
        """How far it is over its budget, in longest trials."""
        return (self.used - self.budget) / self.longest

    @property
    def longest(self):
        return max(self.lengths[: len(self.began)])

    def _ends(self):
        return [at + length for at, length in zip(self.began, self.lengths, strict=False)]

    def _active(self):
        return sum(end > self.now for end in self._ends())

    def start(self):
        """As many as Katib starts."""
        spec, ended = self.experiment["spec"], len(self.began) - self._active()
        new = min(spec["maxTrialCount"] - ended, spec["parallelTrialCount"]) - self._active()
        self.began += [] if self.drained else [self.now] * max(0, new)

    def _observed(self):
        trials, pods = [], []
        for number, (at, end) in enumerate(zip(self.began, self._ends(), strict=True)):
            is_over = end <= self.now
            state = TrialState.SUCCEEDED if is_over else TrialState.LIVE
            state = TrialState.KILLED if number in self.stopped else state
            trials.append(a_trial(f"t{number}", state, 0.5 if is_over else None))
            ended = NOW + end * HOUR if is_over else None
            pods.append(a_pod(f"t{number}", scheduled=NOW + at * HOUR, ended=ended, finished=is_over))
        active, made = self._active(), len(self.began)
        self.experiment["status"] = {"trials": made, "trialsSucceeded": made - active, "conditions": []}
        found = read_experiment(self.experiment)
        if self.drained or (made >= self.experiment["spec"]["maxTrialCount"] and not active):
            end = End.DRAINED if self.drained else End.ALL_TRIALS
            found = replace(found, state=ExperimentState.SUCCEEDED, end=end)
        return Observation(experiment=found, trials=tuple(trials), pods=tuple(pods))

    def _reconcile(self):
        """Return the hours until the next one."""
        seen, now = self._observed(), NOW + self.now * HOUR
        before, self.sweep = self.sweep, advance(self.sweep, seen, CONFIG, now)
        self.sweep = replace(self.sweep, outbox=())
        for patch in required_changes(self.sweep, seen, now).patch:
            if patch.ref.kind == TRIAL:
                number = int(patch.ref.name.removeprefix("t"))
                self.stopped.add(number)
                self.lengths[number] = self.now - self.began[number]
                continue
            counts = self.experiment["spec"] | patch.body.get("spec", {})
            if counts != self.experiment["spec"]:
                assert counts["maxTrialCount"] > len(self.began), "Katib's webhook rejects it"
                assert counts["maxTrialCount"] >= counts["parallelTrialCount"], "Katib's webhook rejects it"
            self.experiment["spec"] = counts
            self.drained = self.drained or bool(patch.subresource)
        due = requeue_after(before, self.sweep, now)
        return due / HOUR if due else 0.0

    def run(self):
        for _ in range(10_000):
            self.start()
            due = max(self._reconcile(), 1e-4)
            self.start()
            if self.sweep.phase is not Phase.RUNNING:
                return self
            self.now = min([self.now + due, *(end for end in self._ends() if end > self.now)])
        raise AssertionError(f"it never ends: {self.sweep.progress}")
