"""Indexed Jobs: one pod for each number, the success policy, and what one failure does to the others."""

from typing import Any

import pytest

from local.kubernetes.apiserver.store import Refused, Store
from local.kubernetes.controllers.indexed_jobs import INDEX
from local.kubernetes.node.container_inputs import variables
from tests.local.kubernetes.controllers.test_jobs import Kubelet, Object, job

pytestmark = pytest.mark.usefixtures("controllers")
FIRST_ENDS_ALL = {"rules": [{"succeededIndexes": "0"}]}
SERVICE = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "bot"}}


def indexed(name: str = "build", pods: int = 3, **spec: Any) -> Object:
    made = job(name, completionMode="Indexed", completions=pods, parallelism=pods, backoffLimit=0, **spec)
    made["spec"]["template"]["spec"] |= {"subdomain": "workers"}
    return made


@pytest.fixture
def kubelet(store: Store, wait_until: Any) -> Kubelet:
    return Kubelet(store, wait_until)


async def workers(kubelet: Kubelet) -> list[Object]:
    """The running pods by number."""
    await kubelet.wait_until(lambda: len(kubelet.pods()) == 3, "three pods are there")
    for pod in kubelet.pods():
        kubelet.binds(pod)
    return sorted(kubelet.pods(), key=lambda pod: str(pod["metadata"]["labels"][INDEX]))


async def removed(kubelet: Kubelet, store: Store, pods: list[Object]) -> None:
    """Play the kubelet's part of a deletion."""
    names = {pod["metadata"]["name"] for pod in pods}

    def deleting() -> bool:
        found = {p["metadata"]["name"] for p in kubelet.pods() if "deletionTimestamp" in p["metadata"]}
        return found == names

    await kubelet.wait_until(deleting, "the other pods are being deleted")
    for name in names:
        store.delete("Pod", "kaniko", name, grace=0)


async def test_indexed_job_numbers_its_pods(store: Store, kubelet: Kubelet) -> None:
    store.create(indexed())
    for number, pod in enumerate(await workers(kubelet)):
        assert pod["metadata"]["name"].startswith(f"build-{number}-")
        assert pod["metadata"]["annotations"][INDEX] == str(number)
        assert pod["spec"]["hostname"] == f"build-{number}"
        known = variables(store, pod, pod["spec"]["containers"][0])
        assert known == {"JOB_COMPLETION_INDEX": str(number)}


async def test_first_pods_success_ends_the_others(store: Store, kubelet: Kubelet) -> None:
    store.create(indexed(successPolicy=FIRST_ENDS_ALL))
    first, *others = await workers(kubelet)
    kubelet.set_status(first, "Succeeded")
    await removed(kubelet, store, others)
    status = await kubelet.until("Complete")
    met = next(c for c in status["conditions"] if c["type"] == "SuccessCriteriaMet")
    assert (met["reason"], status["completedIndexes"]) == ("SuccessPolicy", "0")


async def test_other_pods_success_ends_nothing(store: Store, kubelet: Kubelet) -> None:
    store.create(indexed(successPolicy=FIRST_ENDS_ALL))
    first, *others = await workers(kubelet)
    for pod in others:
        kubelet.set_status(pod, "Succeeded")
    await kubelet.wait_until(lambda: kubelet.status().get("completedIndexes") == "1,2", "both are counted")
    assert "conditions" not in kubelet.status()
    kubelet.set_status(first, "Succeeded")
    assert (await kubelet.until("Complete"))["succeeded"] == 3


async def test_one_pods_failure_deletes_the_others_and_fails_the_job(store: Store, kubelet: Kubelet) -> None:
    store.create(indexed(successPolicy=FIRST_ENDS_ALL))
    first, second, third = await workers(kubelet)
    kubelet.set_status(second, "Failed")
    await removed(kubelet, store, [first, third])
    await kubelet.until("Failed")
    assert [pod["metadata"]["name"] for pod in store.list("Pod")] == [second["metadata"]["name"]]


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (job(successPolicy=FIRST_ENDS_ALL), "requires indexed completion mode"),
        (indexed(successPolicy={"rules": []}), "at least one rules must be specified"),
        (indexed("a" * 62), "will not able to create pod with invalid DNS label: a{62}-2"),
        (indexed(pods=100), "or up to 64 with an index each"),
        (job(completionMode="Sorted"), 'supported values: "NonIndexed", "Indexed"'),
    ],
)
def test_invalid_indexed_jobs_are_refused(store: Store, spec: Object, error: str) -> None:
    with pytest.raises(Refused, match=error):
        store.create(spec)


async def test_hostname_resolves_only_by_a_headless_service(store: Store, kubelet: Kubelet) -> None:
    made = indexed()
    main = made["spec"]["template"]["spec"]["containers"][0]
    main["env"] = [{"name": "PET_MASTER_ADDR", "value": "build-0.workers"}]
    store.create(made)
    pods = await workers(kubelet)

    def addresses() -> set[str]:
        return {variables(store, pod, pod["spec"]["containers"][0])["PET_MASTER_ADDR"] for pod in pods}

    assert addresses() == {"build-0.workers"}
    meta = {"name": "workers", "namespace": "kaniko"}
    store.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": SERVICE})
    [found] = addresses()
    assert found.startswith("127.")
