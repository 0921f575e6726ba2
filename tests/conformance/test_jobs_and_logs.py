"""Jobs from their first pod to their end, by a kubelet played by hand, and the logs of pods."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from k8s.api.errors import ApiError
from k8s.jobs import JobState, read_job
from k8s.objects import Manifest, true_conditions
from tests.conformance.namespace import Place

ORPHANS = "child pods are preserved by default when jobs are deleted"


@pytest.fixture
def started(place: Place, wait_until: Any) -> Any:
    """`job, pod = await started()`: a Job and its first pod."""

    async def start(**spec: Any) -> tuple[Manifest, Manifest]:
        job = await place.cluster.create(place.a_job(**spec))
        [pod] = await wait_until(lambda: place.pods("build"), "the Job has a pod")
        return job, pod

    return start


async def simulation(place: Place, since: str, last: str) -> list[tuple[list[str], JobState]]:
    """Which conditions held, one after another, until `last` did; and how the bot reads each."""
    seen: list[tuple[list[str], JobState]] = []
    changes = place.cluster.watch("Job", place.namespace, since=since, timeout=60)
    async with aclosing(changes), asyncio.timeout(30):
        async for _, job in changes:
            step = list(true_conditions(job)), read_job(job).state
            seen += [] if step in seen else [step]
            if last in step[0]:
                assert ("completionTime" in job["status"]) is (last == "Complete")
                return seen
    raise AssertionError(seen)


@pytest.mark.parametrize(
    ("phase", "before", "last", "state"),
    [
        ("Succeeded", "SuccessCriteriaMet", "Complete", JobState.COMPLETE),
        ("Failed", "FailureTarget", "Failed", JobState.FAILED),
    ],
)
async def test_job_end_is_announced_before_it_is_final(
    place: Place, started: Any, phase: str, before: str, last: str, state: JobState
) -> None:
    job, pod = await started()
    await place.set_status(pod, phase)
    assert await simulation(place, job["metadata"]["resourceVersion"], last) == [
        ([], JobState.ACTIVE),
        ([before], JobState.ACTIVE),
        ([before, last], state),
    ]


async def test_job_that_failed_has_reason_and_time(place: Place, started: Any, wait_until: Any) -> None:
    _, pod = await started()
    await place.set_status(pod, "Failed")

    async def failed() -> Any:
        job = await place.cluster.get(place.ref("Job", "build"))
        return job and (read := read_job(job)).state is JobState.FAILED and read

    job = await wait_until(failed, "the Job has failed")
    assert job.message == "BackoffLimitExceeded: Job has reached the specified backoff limit"
    assert job.ended


async def test_delete_job_removes_it_at_once_and_its_pods_soon(
    place: Place, started: Any, wait_until: Any
) -> None:
    job, _ = await started()
    assert await place.cluster.delete(place.ref("Job", "build"), uid=job["metadata"]["uid"])
    assert await place.cluster.get(place.ref("Job", "build")) is None

    async def gone() -> bool:
        return not await place.pods("build")

    await wait_until(gone, "the pods were deleted")


async def test_delete_job_without_policy_leaves_its_pods_running(
    place: Place, started: Any, wait_until: Any
) -> None:
    await started()
    answer = await place.http.send("DELETE", place.path("Job", "build"))
    assert ORPHANS in (answer.warning or "")
    assert answer.body["metadata"]["finalizers"] == ["orphan"], "DELETE returns what still waits"

    async def gone() -> bool:
        return await place.cluster.get(place.ref("Job", "build")) is None

    await wait_until(gone, "the Job was deleted")
    [pod] = await place.pods("build")
    assert "ownerReferences" not in pod["metadata"]
    assert "deletionTimestamp" not in pod["metadata"]


async def test_delete_job_in_the_foreground_removes_its_pods_first(
    place: Place, started: Any, wait_until: Any
) -> None:
    await started()
    answer = await place.http.send("DELETE", place.path("Job", "build") + "?propagationPolicy=Foreground")
    assert (answer.body["kind"], answer.body["metadata"]["finalizers"]) == ("Job", ["foregroundDeletion"])

    async def gone() -> bool:
        return await place.cluster.get(place.ref("Job", "build")) is None

    await wait_until(gone, "the Job was deleted")
    assert await place.pods("build") == []


async def test_delete_pod_on_a_node_waits_for_its_kubelet(place: Place) -> None:
    ref = place.ref("Pod", "p")
    await place.cluster.create(place.a_pod("main", nodeName="sweepbot-conformance-no-such-node"))
    assert await place.cluster.delete(ref)
    there = await place.cluster.get(ref)
    assert there
    assert there["metadata"]["deletionGracePeriodSeconds"] == 30
    await place.http.send("DELETE", place.path("Pod", "p") + "?gracePeriodSeconds=0")
    assert await place.cluster.get(ref) is None


async def test_log_of_a_pod_without_node_is_empty(place: Place) -> None:
    await place.cluster.create(place.a_pod("main"))
    answer = await place.http.send("GET", place.path("Pod", "p", "log"))
    assert (answer.status, answer.body) == (204, "")
    assert await place.cluster.log(place.namespace, "p", "main") == ""


async def test_log_names_its_container(place: Place) -> None:
    await place.cluster.create(place.a_pod("main", "metrics-collector"))
    answer = await place.http.send("GET", place.path("Pod", "p", "log"))
    words = "a container name must be specified for pod p, choose one of: [main metrics-collector]"
    assert (answer.status, answer.body["message"]) == (400, words)
    assert await place.cluster.log(place.namespace, "p", "main") == ""
    with pytest.raises(ApiError, match="container nope is not valid for pod p"):
        await place.cluster.log(place.namespace, "p", "nope")


async def test_log_of_a_deleted_pod_is_empty(place: Place) -> None:
    assert await place.cluster.log(place.namespace, "p", "main") == ""
