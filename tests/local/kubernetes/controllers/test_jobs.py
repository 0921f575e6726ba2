"""Jobs, their pods and their end; a test plays the kubelet by writing pod statuses."""

from typing import Any

import pytest

from local.kubernetes.apiserver.kinds import refusal
from local.kubernetes.apiserver.store import Refused, Store

Object = dict[str, Any]
pytestmark = pytest.mark.usefixtures("controllers")


def job(name: str = "build", **spec: Any) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "kaniko", "image": "x"}]}
    template = {"metadata": {"labels": {"app": "bot"}}, "spec": pod}
    meta = {"name": name, "namespace": "kaniko"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**spec, "template": template}}


class Kubelet:
    """One Job's pods, and what becomes of them."""

    def __init__(self, store: Store, wait_until: Any) -> None:
        self.store = store
        self.wait_until = wait_until

    def pods(self) -> list[Object]:
        return [pod for pod in self.store.list("Pod") if pod["status"]["phase"] in ("Pending", "Running")]

    def status(self) -> Object:
        found = self.store.get("Job", "kaniko", "build")
        return found["status"] if found else {}

    async def pod(self) -> Object:
        found: list[Object] = await self.wait_until(self.pods, "a pod is there")
        return found[0]

    def set_status(self, pod: Object, phase: str) -> None:
        name = pod["metadata"]["name"]
        self.store.patch("Pod", "kaniko", name, {"status": {"phase": phase}}, subresource="status")

    def binds(self, pod: Object) -> None:
        self.store.patch("Pod", "kaniko", pod["metadata"]["name"], {"spec": {"nodeName": "n1"}})

    async def until(self, condition: str) -> Object:
        types = lambda: [c["type"] for c in self.status().get("conditions", []) if c["status"] == "True"]  # noqa: E731
        await self.wait_until(lambda: condition in types(), f"the Job is {condition}")
        return self.status()

    def events(self) -> list[tuple[str, str]]:
        about_it = [e for e in self.store.list("Event") if e["involvedObject"]["kind"] == "Job"]
        about_it.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["type"], event["reason"]) for event in about_it]


@pytest.fixture
def kubelet(store: Store, wait_until: Any) -> Kubelet:
    return Kubelet(store, wait_until)


async def test_job_creates_a_pod_with_its_labels(store: Store, kubelet: Kubelet) -> None:
    made = store.create(job())
    meta = (await kubelet.pod())["metadata"]
    uid = made["metadata"]["uid"]
    own = {"controller-uid": uid, "job-name": "build"}
    assert meta["labels"] == {"app": "bot", **own, **{f"batch.kubernetes.io/{k}": v for k, v in own.items()}}
    assert meta["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert meta["ownerReferences"][0]["uid"] == uid
    assert meta["name"].startswith("build-")


async def test_job_that_succeeds_has_the_recorded_states(store: Store, kubelet: Kubelet) -> None:
    changes = store.follow(store.version)
    store.create(job())
    kubelet.set_status(await kubelet.pod(), "Succeeded")
    status = await kubelet.until("Complete")
    assert (status["succeeded"], status["terminating"]) == (1, 0)
    assert "completionTime" in status
    assert store.list("Pod")[0]["metadata"].get("finalizers") is None
    reported = [changes.get_nowait().object for _ in range(changes.qsize())]
    lives = [obj["status"] for obj in reported if obj["kind"] == "Job"]
    seen = [[condition["type"] for condition in simulation.get("conditions", [])] for simulation in lives]
    assert seen == [[], [], ["SuccessCriteriaMet"], ["SuccessCriteriaMet", "Complete"]]
    assert kubelet.events() == [("Normal", "SuccessfulCreate"), ("Normal", "Completed")]


async def test_job_that_fails_reports_it_twice_and_never_completes(store: Store, kubelet: Kubelet) -> None:
    store.create(job(backoffLimit=0))
    kubelet.set_status(await kubelet.pod(), "Failed")
    status = await kubelet.until("Failed")
    conditions = [(condition["type"], condition["reason"]) for condition in status["conditions"]]
    assert conditions == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
    assert status["failed"] == 1
    assert "completionTime" not in status
    assert kubelet.events()[-1] == ("Warning", "BackoffLimitExceeded")


async def test_failed_pod_is_replaced_up_to_the_backoff_limit(store: Store, kubelet: Kubelet) -> None:
    store.create(job(backoffLimit=2))
    for _ in range(3):
        kubelet.set_status(await kubelet.pod(), "Failed")
        await kubelet.wait_until(lambda: not kubelet.pods() or kubelet.status()["active"], "it is counted")
    assert (await kubelet.until("Failed"))["failed"] == 3


async def test_pod_deleted_by_a_client_counts_as_failed(store: Store, kubelet: Kubelet) -> None:
    store.create(job(backoffLimit=0))
    store.delete("Pod", "kaniko", (await kubelet.pod())["metadata"]["name"])
    assert (await kubelet.until("Failed"))["failed"] == 1
    assert store.list("Pod") == []


async def test_job_over_its_deadline_waits_for_its_pod(store: Store, kubelet: Kubelet) -> None:
    store.create(job(activeDeadlineSeconds=1))
    pod = await kubelet.pod()
    kubelet.binds(pod)
    kubelet.set_status(pod, "Running")
    await kubelet.until("FailureTarget")
    await kubelet.wait_until(lambda: kubelet.status().get("terminating"), "the pod is terminating")
    assert [c["type"] for c in kubelet.status()["conditions"]] == ["FailureTarget"]
    store.delete("Pod", "kaniko", pod["metadata"]["name"], grace=0)
    status = await kubelet.until("Failed")
    assert (status["failed"], status["conditions"][-1]["reason"]) == (1, "DeadlineExceeded")


DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
LENIENT = {"rules": [{"action": "Ignore", "onPodConditions": [DISRUPTED]}]}


def disrupt(store: Store, pod: Object) -> None:
    """As the taint manager or an eviction does."""
    name = pod["metadata"]["name"]
    store.patch("Pod", "kaniko", name, {"status": {"conditions": [DISRUPTED]}}, subresource="status")


async def test_disrupted_pod_is_replaced_and_not_counted(store: Store, kubelet: Kubelet) -> None:
    store.create(job(backoffLimit=0, podFailurePolicy=LENIENT))
    for _ in range(2):
        pod = await kubelet.pod()
        disrupt(store, pod)
        kubelet.set_status(pod, "Failed")
        await kubelet.wait_until(lambda: pod not in kubelet.pods(), "it has failed")  # noqa: B023
    kubelet.set_status(await kubelet.pod(), "Failed")
    assert (await kubelet.until("Failed"))["failed"] == 1


async def test_disrupted_pod_fails_the_job_by_its_policy(store: Store, kubelet: Kubelet) -> None:
    rule = {"action": "FailJob", "onPodConditions": [DISRUPTED]}
    store.create(job(backoffLimit=3, podFailurePolicy={"rules": [rule]}))
    pod = await kubelet.pod()
    disrupt(store, pod)
    kubelet.set_status(pod, "Failed")
    failed = (await kubelet.until("Failed"))["conditions"][-1]
    name = pod["metadata"]["name"]
    said = f"Pod kaniko/{name} has condition DisruptionTarget matching FailJob rule at index 0"
    assert (failed["reason"], failed["message"]) == ("PodFailurePolicy", said)


async def test_pod_on_a_dead_node_is_replaced_once_failed(store: Store, kubelet: Kubelet) -> None:
    """A dead node's taint deletes the pod, and no kubelet ends it."""
    made = store.create(job(backoffLimit=0, podFailurePolicy=LENIENT))
    assert made["spec"]["podReplacementPolicy"] == "Failed"
    pod = await kubelet.pod()
    kubelet.binds(pod)
    kubelet.set_status(pod, "Running")
    disrupt(store, pod)
    store.delete("Pod", "kaniko", pod["metadata"]["name"])
    await kubelet.wait_until(lambda: kubelet.status().get("terminating") == 1, "it is terminating")
    assert len(store.list("Pod")) == 1
    assert "active" not in kubelet.status()
    kubelet.set_status(pod, "Failed")  # the node is back
    store.delete("Pod", "kaniko", pod["metadata"]["name"], grace=0)
    after = lambda: [p for p in kubelet.pods() if p["metadata"]["uid"] != pod["metadata"]["uid"]]  # noqa: E731
    await kubelet.wait_until(after, "another pod is there")
    assert "failed" not in kubelet.status()


async def test_pod_deleted_before_scheduling_has_failed(store: Store, kubelet: Kubelet) -> None:
    """Kubernetes' pod garbage collector reports it."""
    store.create(job(backoffLimit=0, podFailurePolicy=LENIENT))
    store.delete("Pod", "kaniko", (await kubelet.pod())["metadata"]["name"])
    assert (await kubelet.until("Failed"))["failed"] == 1


@pytest.mark.parametrize(
    "rule",
    [
        {"action": "Count", "onPodConditions": [DISRUPTED]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [137]}},
    ],
)
async def test_other_policies_are_rejected(store: Store, rule: Object) -> None:
    with pytest.raises(Refused, match="only ignores or fails, and by conditions of its pod"):
        store.create(job(podFailurePolicy={"rules": [rule]}))


@pytest.mark.parametrize("requested", [{"parallelism": 2}, {"completions": 2}])
async def test_unsupported_job_is_rejected(store: Store, requested: Object) -> None:
    with pytest.raises(Refused, match="a Job of the local cluster has one pod, or up to 64"):
        store.create(job(**requested))


async def test_rejected_pod_leaves_only_events(store: Store, kubelet: Kubelet) -> None:
    def hook(_pod: Object) -> Object:
        raise refusal(400, "no command")

    store.admission("Pod", hook)
    store.create(job())
    await kubelet.wait_until(lambda: kubelet.events() == [("Warning", "FailedCreate")], "it is said")
    assert store.list("Event")[0]["message"] == "Error creating: no command"
    assert "active" not in kubelet.status()


async def test_finished_job_is_deleted_with_its_pods_after_its_ttl(store: Store, kubelet: Kubelet) -> None:
    store.create(job(ttlSecondsAfterFinished=0))
    kubelet.set_status(await kubelet.pod(), "Succeeded")
    await kubelet.wait_until(lambda: not store.list("Job"), "the Job has gone")
    assert store.list("Pod") == []


async def test_delete_in_the_foreground_removes_the_pods_before_the_job(
    store: Store, kubelet: Kubelet
) -> None:
    store.create(job())
    pod = await kubelet.pod()
    kubelet.binds(pod)
    store.delete("Job", "kaniko", "build", propagation="Foreground")
    is_going = lambda: "deletionTimestamp" in store.list("Pod")[0]["metadata"]  # noqa: E731
    await kubelet.wait_until(is_going, "the pod is told to end")
    assert store.list("Job")[0]["metadata"]["finalizers"] == ["foregroundDeletion"]
    store.delete("Pod", "kaniko", pod["metadata"]["name"], grace=0)
    await kubelet.wait_until(lambda: not store.list("Job"), "the Job has gone")
