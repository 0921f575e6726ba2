"""A cluster that is killed and restored from its journal."""

import pytest

from local.kubernetes.apiserver.journal import restore
from local.kubernetes.apiserver.store import Refused, Store
from local.kubernetes.node.kubelet import Kubelet
from local.kubernetes.node.reboot import CODE, REASON


def pod(name, restart="Never", **spec):
    container = {"name": "main", "image": "127.0.0.1:1/train:1", "command": ["python"]}
    spec = {"restartPolicy": restart, "nodeName": "gpu-1", "containers": [container]} | spec
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def with_state(store, made, phase, state):
    container = {"name": "main", "image": "i", "imageID": "", "state": state, "ready": True}
    store.set_status(made, {"phase": phase, "containerStatuses": [container]})


def test_restore_returns_the_objects_and_continues_their_versions(tmp_path):
    store, file = Store(), tmp_path / "etcd"
    assert not restore(store, file)
    store.create(pod("a"))
    store.delete("Pod", "default", store.create(pod("b"))["metadata"]["name"], grace=0)
    with file.open("a") as journal:
        journal.write('["MODIFIED", {"kind": "Po')  # cut off by a kill
    other = Store()
    assert restore(other, file)
    for kind in ("Namespace", "Pod"):
        assert other.list(kind) == store.list(kind)
    assert other.version == store.version
    other.create(pod("c"))
    again = Store()
    assert restore(again, file)
    assert [each["metadata"]["name"] for each in again.list("Pod")] == ["a", "c"]
    with pytest.raises(Refused) as refused:
        again.follow(again.version - 1)
    assert refused.value.code == 410


async def test_kubelet_after_a_power_failure_ends_what_ran_and_keeps_what_had_ended(tmp_path):
    store = Store()
    started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    over = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": "", "finishedAt": ""}}
    with_state(store, store.create(pod("ran")), "Running", started)
    with_state(store, store.create(pod("ended")), "Succeeded", over)
    with_state(store, store.create(pod("terminating")), "Running", started)
    store.delete("Pod", "default", "terminating")
    kubelet = Kubelet(store, {"gpu-1": 2}, "127.0.0.1:1", {}, tmp_path)
    kubelet.start()
    await kubelet.close()
    found = {each["metadata"]["name"]: each["status"] for each in store.list("Pod")}
    assert {name: status["phase"] for name, status in found.items()} == {
        "ran": "Failed",
        "ended": "Succeeded",
    }
    lost = found["ran"]["containerStatuses"][0]["state"]["terminated"]
    assert (lost["exitCode"], lost["reason"]) == (CODE, REASON)
