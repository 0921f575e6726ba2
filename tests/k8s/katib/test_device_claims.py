"""GPUs by a DeviceClass in the pods of trials, of each kind, and the template of their claims."""

from dataclasses import replace

import pytest

from k8s.katib.device_claims import template, template_name
from k8s.katib.experiment import experiment, training_runtime
from k8s.katib.pod_shape import PodShape
from k8s.trial_kinds import JOB, PYTORCH_JOB, TRAIN_JOB, pod_templates
from tests.k8s.katib.test_katib import SPEC

RESOURCE = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def pods(kind, nodes, **changes):
    spec = replace(
        SPEC, nodes=nodes, shape=PodShape(resource=RESOURCE, memory="8Gi", multi_node=kind), **changes
    )
    if kind is TRAIN_JOB and nodes > 1:
        jobs = training_runtime(spec)["spec"]["template"]["spec"]["replicatedJobs"]
        return [each["template"]["spec"]["template"]["spec"] for each in jobs]
    job = experiment(spec)["spec"]["trialTemplate"]["trialSpec"]
    return [each["spec"] for each in pod_templates(job)]


@pytest.mark.parametrize(("kind", "nodes"), [(JOB, 1), (JOB, 2), (PYTORCH_JOB, 2), (TRAIN_JOB, 2)])
def test_pods_of_each_kind_claim_gpus_in_place_of_a_resource(kind, nodes):
    found = pods(kind, nodes)
    assert found
    for pod in found:
        name = template_name(RESOURCE, SPEC.gpus)
        assert pod["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": name}]
        [main] = pod["containers"]
        assert main["resources"] == {
            "limits": {"memory": "8Gi"},
            "requests": {"memory": "8Gi"},
            "claims": [{"name": "gpus"}],
        }


def test_pod_without_gpus_claims_none():
    [pod] = pods(JOB, 1, gpus=0)
    assert "resourceClaims" not in pod
    assert "claims" not in pod["containers"][0]["resources"]


def test_template_requests_the_number_of_its_name():
    made = template("sweeps", RESOURCE, 4)
    assert made["spec"]["spec"]["devices"]["requests"] == [
        {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 4}}
    ]
    others = {template_name(RESOURCE, 1), template_name(RESOURCE.replace("nvidia", "example"), 4)}
    assert made["metadata"]["name"] not in others
    assert len(template_name("deviceclass.resource.kubernetes.io/" + "g" * 253, 8)) <= 63
