"""Which pods are kept in memory for GPU samples."""

from k8s.nodes.gpu_pods import GpuPods, read_gpu_pod
from tests.k8s.nodes.test_gpus import pod

EXPORTER = {"name": "dcgm", "namespace": "gpu-operator", "labels": {"app": "nvidia-dcgm-exporter"}}


def an_exporter():
    spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
    return {"metadata": EXPORTER, "spec": spec, "status": {"phase": "Running"}}


def in_namespace(namespace, **changes):
    made = pod(**changes)
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def test_gpu_pod_has_what_a_sample_reads():
    running, waiting = read_gpu_pod(pod()), read_gpu_pod(pod(phase="Pending", node="", since=None))
    assert (running.gpus, running.wanted, running.exports) == (2, 0, False)
    assert (waiting.gpus, waiting.wanted, waiting.node) == (0, 2, "")
    assert waiting.needs["nvidia.com/gpu"] == 2000
    exporter = read_gpu_pod(an_exporter())
    assert (exporter.namespace, exporter.name, exporter.node, exporter.exports) == (
        "gpu-operator",
        "dcgm",
        "n1",
        True,
    )


def test_pod_that_finished_or_has_no_gpu_is_none():
    for other in (pod(phase="Succeeded"), pod(phase="Failed"), pod(**{"nvidia.com/gpu": "0"})):
        assert read_gpu_pod(other) is None


def test_pod_with_claims_is_kept_with_its_labels():
    known, claiming = GpuPods(), pod()
    claiming["metadata"]["labels"] = {"sweepbot/sweep": "lr-x"}
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    known.put(claiming)
    [kept] = known.claiming.values()
    assert kept["metadata"]["labels"] == {"sweepbot/sweep": "lr-x"}


def test_pods_of_one_name_in_two_namespaces_are_two():
    known = GpuPods()
    for namespace in ("a", "b"):
        known.put(in_namespace(namespace))
    assert [each.namespace for each in known.pods] == ["a", "b"]
    known.put(in_namespace("a", phase="Succeeded"))
    assert [each.namespace for each in known.pods] == ["b"]
    known.put(in_namespace("a"))
    known.retain({known.key(in_namespace("a"))})
    assert [each.namespace for each in known.pods] == ["a"]
    known.remove(known.key(in_namespace("a")))
    assert known.pods == ()
