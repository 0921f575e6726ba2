"""Kueue's Workloads, as the API server returns them."""

from types import SimpleNamespace

import pytest

from k8s.api.errors import ApiError
from k8s.kueue import pending_workloads, read_workload, unfinished
from k8s.objects import GPU


@pytest.mark.parametrize(
    ("limit", "gpus"), [("8", 16), (8, 16), ("1k", 2000), ("1e3", 2000), ("1e400", 2 * (2**63 - 1))]
)
def test_gpus_of_a_workload_are_a_quantity(limit, gpus):
    """The API server writes 1000 as 1k, and anyone's Job can be in a queue."""
    container = {"name": "main", "resources": {"limits": {GPU: limit}}}
    pods = {"name": "main", "count": 2, "template": {"spec": {"containers": [container]}}}
    workload = {"metadata": {"name": "job-big", "namespace": "sweeps"}, "spec": {"podSets": [pods]}}
    read = read_workload(workload)
    assert (read.gpus, read.devices) == (gpus, {GPU: gpus})


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        ([], True),
        ([{"type": "Finished", "status": "False"}], True),
        ([{"type": "Admitted", "status": "True"}, {"type": "Finished", "status": "True"}], False),
    ],
)
def test_unfinished_workloads_are_kept(conditions, kept):
    assert unfinished({"metadata": {"name": "w"}, "status": {"conditions": conditions}}) is kept


@pytest.mark.parametrize(
    ("status", "found"),
    [("False", ("no quota", "Pending", "")), ("True", ("", "", "machines are created"))],
)
def test_workload_says_what_it_waits_for(status, found):
    """Quota first, and then its admission checks."""
    reserved = {"type": "QuotaReserved", "status": status, "reason": "Pending", "message": "no quota"}
    check = {"name": "machines", "state": "Pending", "message": "machines are created"}
    workload = {
        "metadata": {"name": "w"},
        "status": {"conditions": [reserved], "admissionChecks": [check]},
    }
    read = read_workload(workload)
    assert (read.waits, read.reason, read.checks) == found
    assert (read.reserved, read.admitted) == (status == "True", False), "Admitted is absent until then"


@pytest.mark.parametrize("status", [403, 404, 503])
async def test_order_of_a_queue_is_unknown_without_the_visibility_api(status):
    async def read(_):
        raise ApiError(answers.pop(0), "", "")

    answers = [status, status, 500]
    cluster = SimpleNamespace(read=read)
    assert await pending_workloads(cluster, "sweeps", "research") is None
    with pytest.raises(ApiError, match="500"):
        await pending_workloads(cluster, "sweeps", "research")
