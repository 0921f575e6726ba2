"""What an observation costs when a sweep has many trials."""

from dataclasses import dataclass, replace
from typing import ClassVar

from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import current_progress
from k8s.objects import ReadOnce
from k8s.pods import Pod
from tests.bot.factories import NOW
from tests.bot.sweep.model.observations import OPEN, RUNNING, a_job, a_pod, a_trial

TRIALS = 300


@dataclass(frozen=True, kw_only=True)
class CountedPod(Pod):
    reads: ClassVar[list[str]] = []

    @property
    def running(self):
        self.reads.append(self.name)
        return self.running_since is not None


def test_each_pod_is_looked_at_once_however_many_trials_are_live():
    names = [f"t{number}" for number in range(TRIALS)]
    pods = [CountedPod(**vars(a_pod(name))) for name in names]
    trials, jobs = tuple(map(a_trial, names)), tuple(map(a_job, names))
    seen = Observation(experiment=OPEN, trials=trials, jobs=jobs, pods=tuple(pods))
    assert current_progress(RUNNING, seen).waiting == TRIALS
    assert len(CountedPod.reads) == TRIALS
    assert (seen.running, seen.held) == (set(), set(names))
    assert replace(seen, trials=(), jobs=(), pods=()).held == set()


def test_unchanged_trials_and_jobs_are_selected_once_for_all_reconciles():
    names = ("t1", "t2")
    trials, jobs = ReadOnce(map(a_trial, names)), ReadOnce(map(a_job, names))
    first, later = (Observation(experiment=OPEN, trials=trials, jobs=jobs) for _ in range(2))
    assert first.live is later.live
    assert first.live_names is later.live_names
    assert first.active_jobs is later.active_jobs
    changed = replace(later, trials=ReadOnce([a_trial("t2")]))
    assert (first.live_names, changed.live_names) == ({"t1", "t2"}, {"t2"})


def test_pods_are_sorted_by_what_their_trials_do():
    seconds = {"running_since": NOW, "began": NOW}
    pods = (
        a_pod("both", **seconds),
        replace(a_pod("both", **seconds), name="both-1", index=1),
        a_pod("half", **seconds),
        replace(a_pod("half"), name="half-1", index=1),
        a_pod("ended", exit=(0, "", ""), began=NOW),  # its reader still runs
        a_pod("evicted", finished=True, failure=("Evicted", "")),
    )
    trials = tuple(map(a_trial, ("both", "half", "ended", "evicted")))
    seen = Observation(experiment=OPEN, trials=trials, pods=pods)
    assert (seen.running, seen.finishing) == ({"both", "half"}, {"ended"})
    assert [pod.job for pod in seen.notable_pods] == ["evicted"]
    assert replace(seen, nodes=2, pods=pods[:4]).running == {"both"}
