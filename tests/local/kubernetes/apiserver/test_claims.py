"""ResourceClaims and their templates: what kubernetes' pkg/apis/resource/validation refuses."""

import pytest

from local.kubernetes.apiserver.claims import ONE_OF
from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.store import Store

PATH = "spec.spec.devices.requests[0]"
CLASS = {"deviceClassName": "gpu.example.com"}


@pytest.fixture
def store():
    found = Store()
    found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    return found


def template(*requests, name="t"):
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    meta = {"name": name, "namespace": "n"}
    return {**head, "metadata": meta, "spec": {"spec": {"devices": {"requests": list(requests)}}}}


def test_exact_request_gets_the_servers_defaults(store):
    made = store.create(template({"name": "gpu", "exactly": CLASS}))
    [request] = made["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {**CLASS, "allocationMode": "ExactCount", "count": 1}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (
            {"name": "gpu"},
            f"{PATH}: Required value: {ONE_OF}",
        ),
        (
            {"name": "gpu", "exactly": CLASS, "firstAvailable": [{"name": "a", **CLASS}]},
            f"{PATH}: Invalid value: null: {ONE_OF}, but multiple fields are set",
        ),
        ({"exactly": CLASS}, f"{PATH}.name: Required value"),
        ({"name": "gpu", "exactly": {"count": 1}}, f"{PATH}.exactly.deviceClassName: Required value"),
        (
            {"name": "gpu", "exactly": {**CLASS, "count": -1}},
            f"{PATH}.exactly.count: Invalid value: -1: must be greater than zero",
        ),
    ],
)
def test_request_is_refused(store, request_, why):
    with pytest.raises(Refused) as error:
        store.create(template(request_))
    assert (error.value.code, why in str(error.value)) == (422, True), error.value


def test_spec_of_a_template_cannot_change(store):
    store.create(template({"name": "gpu", "exactly": CLASS}))
    with pytest.raises(Refused, match="field is immutable"):
        store.patch("ResourceClaimTemplate", "n", "t", {"spec": {"metadata": {"labels": {"a": "b"}}}})


@pytest.mark.parametrize(
    ("claims", "used", "why"),
    [
        ([], "gpu", "must be one of the names in pod.spec.resourceClaims which is empty"),
        (
            [{"name": "a", "resourceClaimName": "x"}],
            "gpu",
            "must be one of the names in pod.spec.resourceClaims: a",
        ),
        ([{"name": "gpu"}], "gpu", "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
    ],
)
def test_pod_with_a_wrong_reference_is_refused(store, claims, used, why):
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": used}]}}
    spec = {"containers": [container], "resourceClaims": claims}
    with pytest.raises(Refused, match=why):
        store.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec}
        )
