"""The ways Sweepbot controls an experiment, on any cluster with Katib. No pod runs: none is scheduled.

A Katib trial is Running as soon as its Job exists, so killing, draining and extending need none.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.sweep.launch.plan import plan
from k8s.api.errors import ApiError
from k8s.engine import End, ExperimentState, TrialState
from k8s.katib.patches import (
    drain_experiment,
    kill_trial,
    more_trials,
    stop_experiment,
)
from k8s.katib.spec import EXPERIMENT_LABEL, STOPPED_STEP, STOPPED_VALUE
from k8s.katib.status import read_experiment, read_trial
from k8s.objects import Manifest, true_conditions
from tests.bot.factories import ORDER, PLAN, SETTINGS
from tests.bot.platform.config.test_trial_pods import SHAPE
from tests.conformance.namespace import ABSENT_USER, Place
from tests.conformance.replay import alike, recording, replay
from tests.recordings.__init__ import FOLDER

pytestmark = pytest.mark.needs("katib")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
VERDICTS = sorted(
    str(path.relative_to(FOLDER).with_suffix(""))
    for pattern in ("13-create-*", "13-201-*", "katib/01-create-*")
    for path in FOLDER.glob(f"{pattern}.json")
)


@pytest.mark.parametrize("name", VERDICTS)
async def test_experiment_gets_the_recorded_verdict(place: Place, name: str) -> None:
    answer, real = await replay(place, name), recording(name)
    assert answer.status == real["status"]
    if real["status"] == 201:
        assert answer.body["spec"] == real["body"]["spec"]
    else:
        assert alike(answer.body) == alike(real["body"])


@pytest.mark.unlabelled
async def test_experiment_in_a_namespace_without_label_gets_the_recorded_error(place: Place) -> None:
    answer = await replay(place, "13-400-namespace-not-labelled")
    assert alike(answer.body) == alike(recording("13-400-namespace-not-labelled")["body"])


async def test_katib_rejection_without_a_reason_is_permanent(place: Place) -> None:
    with pytest.raises(ApiError, match=r"validator\.experiment\.katib\.kubeflow\.org") as caught:
        await place.cluster.create(an_experiment(place, parallelTrialCount=9, maxTrialCount=1))
    assert (caught.value.status, caught.value.reason, caught.value.permanent) == (400, "", True)


async def test_katib_accepts_everything_that_trials_may_need(place: Place) -> None:
    shaped = plan(replace(ORDER, shape=SHAPE), SETTINGS).experiment
    made = await place.cluster.create(an_experiment(place, shaped))
    kept = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    asked = shaped["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert {**kept, "schedulerName": ""} == {**asked, "schedulerName": ""}


def an_experiment(place: Place, made: Manifest = PLAN.experiment, **spec: Any) -> Manifest:
    """Sweepbot's experiment, for a scheduler that doesn't exist."""
    template = made["spec"]["trialTemplate"]
    job = template["trialSpec"]
    pod = {**job["spec"]["template"]["spec"], "schedulerName": ABSENT_USER}
    job = {**job, "spec": {**job["spec"], "template": {**job["spec"]["template"], "spec": pod}}}
    spec = {**made["spec"], **spec, "trialTemplate": {**template, "trialSpec": job}}
    return {**made, "metadata": {**made["metadata"], "namespace": place.namespace}, "spec": spec}


class Running:
    """One experiment, and what becomes of it."""

    def __init__(self, place: Place, wait_until: Any, name: str) -> None:
        self.place, self.wait_until = place, wait_until
        self.ref = place.ref("Experiment", name)

    async def now(self) -> Manifest:
        found = await self.place.cluster.get(self.ref)
        assert found
        return found

    async def trials(self, state: TrialState | None = None) -> list[Manifest]:
        found = await self.place.cluster.list(
            "Trial", self.place.namespace, labels=f"{EXPERIMENT_LABEL}={self.ref.name}"
        )
        return [t for t in found if state in (None, read_trial(t, {"val_loss": "min"}).state)]

    async def job(self, trial: Manifest) -> Manifest | None:
        return await self.place.cluster.get(self.place.ref("Job", trial["metadata"]["name"]))

    async def live(self, count: int) -> list[Manifest]:
        """Trials that run: they have a Job, and Katib's condition."""

        async def enough() -> list[Manifest]:
            found = [t for t in await self.trials(TrialState.LIVE) if "Running" in true_conditions(t)]
            there = [t for t in found if await self.job(t)]
            return there if len(there) == count else []

        found: list[Manifest] = await self.wait_until(enough, f"{count} trials run")
        return found

    async def kill(self, trial: Manifest) -> None:
        ref = self.place.ref("Trial", trial["metadata"]["name"])
        patch = kill_trial(trial, "by Ada", NOW, last=(3, 0.25))
        await self.place.cluster.merge(ref, patch, subresource="status")
        job = await self.job(trial)
        assert job
        ref = self.place.ref("Job", trial["metadata"]["name"])
        assert await self.place.cluster.delete(ref, uid=job["metadata"]["uid"])

    async def counts(self, name: str, count: int) -> Manifest:
        async def counted() -> Manifest | None:
            found = await self.now()
            return found if found["status"].get(name) == count else None

        found: Manifest = await self.wait_until(counted, f"{name} is {count}")
        return found

    async def ended(self) -> Any:
        async def over() -> Any:
            read = read_experiment(await self.now())
            return read and read.state is not ExperimentState.RUNNING and read

        return await self.wait_until(over, "the experiment has ended")


@pytest.fixture
def started(place: Place, wait_until: Any) -> Any:
    """`running = await begun(maxTrialCount=4)`: an experiment with two parallel trials."""

    async def begin(**spec: Any) -> Running:
        made = await place.cluster.create(an_experiment(place, **spec))
        running = Running(place, wait_until, made["metadata"]["name"])
        await running.live(spec.get("parallelTrialCount", 2))
        return running

    return begin


async def test_killed_trial_is_counted_and_replaced_and_its_job_stays_deleted(started: Any) -> None:
    running = await started(maxTrialCount=4)
    [victim, other] = await running.live(2)
    await running.kill(victim)
    status = (await running.counts("trialsKilled", 1))["status"]
    assert status["killedTrialList"] == [victim["metadata"]["name"]]
    assert "trialsFailed" not in status
    assert "bestTrialName" not in status["currentOptimalTrial"], "a stopped trial's value is no result"
    killed = next(
        each for each in await running.trials() if each["metadata"]["name"] == victim["metadata"]["name"]
    )
    assert {each["name"]: each["latest"] for each in killed["status"]["observation"]["metrics"]} == {
        STOPPED_STEP: "3",
        STOPPED_VALUE: "0.25",
    }
    names = {trial["metadata"]["name"] for trial in await running.live(2)}
    assert other["metadata"]["name"] in names
    assert victim["metadata"]["name"] not in names
    assert len(await running.trials()) == 3
    assert await running.job(victim) is None
    [kept] = await running.trials(TrialState.KILLED)
    assert kept["status"]["conditions"][0]["type"] == "Killed"


async def test_job_deleted_first_is_created_again(started: Any, wait_until: Any) -> None:
    running = await started(maxTrialCount=2, parallelTrialCount=1)
    [trial] = await running.live(1)
    before = await running.job(trial)
    await running.place.cluster.delete(running.place.ref("Job", trial["metadata"]["name"]))

    async def again() -> bool:
        now = await running.job(trial)
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]

    await wait_until(again, "Katib has created the Job again")
    assert len(await running.live(1)) == 1
    assert await running.trials(TrialState.KILLED) == []


async def test_status_sent_to_the_main_resource_is_ignored(started: Any) -> None:
    running = await started(maxTrialCount=2, parallelTrialCount=1)
    [trial] = await running.live(1)
    ref = running.place.ref("Trial", trial["metadata"]["name"])
    after = await running.place.cluster.merge(ref, kill_trial(trial, "by Ada", NOW))
    assert after["status"] == trial["status"]


async def test_kill_based_on_an_old_version_is_rejected(started: Any) -> None:
    running = await started(maxTrialCount=2, parallelTrialCount=1)
    [trial] = await running.live(1)
    ref = running.place.ref("Trial", trial["metadata"]["name"])
    await running.place.cluster.merge(ref, {"metadata": {"annotations": {"sweepbot/seen": "yes"}}})
    with pytest.raises(ApiError) as caught:
        await running.place.cluster.merge(ref, kill_trial(trial, "by Ada", NOW), subresource="status")
    assert caught.value.stale


def _up_to(total: int, experiment: Manifest) -> Manifest:
    spec = experiment["spec"]
    limits = {"parallel": spec["parallelTrialCount"], "max_failed": spec["maxFailedTrialCount"]}
    return more_trials(experiment, total=total, **limits)


@pytest.mark.parametrize(("close", "state"), [(stop_experiment, "failed"), (drain_experiment, "succeeded")])
async def test_experiment_closed_by_a_client_stays_closed(started: Any, close: Any, state: str) -> None:
    running = await started(maxTrialCount=4)
    trials = await running.live(2)
    patch = close(await running.now(), "by Ada", NOW)
    after = await running.place.cluster.merge(running.ref, patch, subresource="status")
    ours = patch["status"]["conditions"][-1]
    assert true_conditions(after)[ours["type"]]["reason"] == ours["reason"]
    assert len(await running.live(2)) == 2, "the running ones run on"
    for trial in trials:
        await running.kill(trial)
    now = await running.counts("trialsKilled", 2)
    assert read_experiment(now).state == state
    assert true_conditions(now)[ours["type"]]["reason"] == ours["reason"]
    assert now["status"]["completionTime"] == patch["status"]["completionTime"]
    assert len(await running.trials()) == 2
    with pytest.raises(ApiError, match="can be restarted if it is in succeeded state") as caught:
        await running.place.cluster.merge(running.ref, _up_to(9, now))
    assert caught.value.permanent


async def test_experiment_that_used_all_trials_can_be_extended(started: Any) -> None:
    running = await started(
        maxTrialCount=1, parallelTrialCount=1, maxFailedTrialCount=1, resumePolicy="LongRunning"
    )
    [trial] = await running.live(1)
    await running.kill(trial)
    over = await running.ended()
    assert (over.state, over.end) == (ExperimentState.SUCCEEDED, End.ALL_TRIALS)
    await running.place.cluster.merge(running.ref, _up_to(2, await running.now()))
    await running.live(1)
    assert len(await running.trials()) == 2
    assert read_experiment(await running.now()).state is ExperimentState.RUNNING


async def test_delete_experiment_removes_its_objects(started: Any, wait_until: Any) -> None:
    running = await started(maxTrialCount=2)
    place = running.place
    answer = await place.http.send("DELETE", place.path("Experiment", running.ref.name))
    assert (answer.body["kind"], "deletionTimestamp" in answer.body["metadata"]) == ("Experiment", True)

    async def gone() -> bool:
        kinds = ("Experiment", "Suggestion", "Trial", "Job")
        return not [one for kind in kinds for one in await place.cluster.list(kind, place.namespace)]

    await wait_until(gone, "all its objects were deleted")
