"""Free capacity of Kueue's queues: unused quota, borrowing, and Workloads that wait."""

from dataclasses import replace

import pytest

from bot.core.pace import CapacityRequest
from bot.measure.capacity.nodes import WAIT_THRESHOLD
from bot.measure.capacity.quotas import capacity_in_queue, has_quota, held_on_nodes, read_queues
from k8s.kueue import Workload
from k8s.nodes.gpu_pods import GpuPod
from k8s.trial_kinds import JOB_LABEL
from tests.bot.factories import NOW
from tests.cases import cases

GPU = "nvidia.com/gpu"
REQUEST = CapacityRequest(
    sweep="mine", namespace="sweeps", queue="research", gpus=2, resource=GPU, pod={}, at=NOW
)
MINE = Workload(
    name="w0",
    namespace="sweeps",
    job="j0",
    job_uid="u0",
    sweep="mine",
    queue="research",
    gpus=2,
    admitted=True,
    priority=100,
)
OTHER = replace(
    MINE, name="w1", sweep="other", devices={GPU: 4}, admitted=False, created=NOW - WAIT_THRESHOLD
)
HELD = replace(
    MINE,
    sweep="",
    job="sweepbot-reserved-vision-1a2b3-0",
    devices={GPU: 1},
    flavors={GPU: "a100"},
    priority=-1000000,
)


def a_queue(name="lab", nominal=8, used=0, borrowed=0, limit=None, cohort="", **more):
    resource = {"name": GPU, "nominalQuota": nominal} | ({} if limit is None else {"borrowingLimit": limit})
    group = {"flavors": [{"name": "a100", "resources": [resource]}]}
    usage = [{"name": "a100", "resources": [{"name": GPU, "total": str(used), "borrowed": str(borrowed)}]}]
    spec = {"resourceGroups": [group]} | ({"cohort": cohort} if cohort else {}) | more
    return {"metadata": {"name": name}, "spec": spec, "status": {"flavorsReservation": usage}}


def a_cohort(name, parent="", **quota):
    group = {"flavors": [{"name": "a100", "resources": [{"name": GPU, **quota}]}]}
    return {"metadata": {"name": name}, "spec": {"parentName": parent, "resourceGroups": [group]}}


def a_local(name="research", above="lab", namespace="sweeps"):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": above}}


def free(*above, workloads=(), local=(), yielding=(), request=REQUEST, cohorts=()):
    queues = read_queues(local or [a_local()], above, workloads, cohorts)
    return capacity_in_queue(request, queues, yielding, lambda w: w.sweep, NOW)


def test_capacity_is_the_unused_quota_and_what_is_reserved_for_the_queue():
    assert free(a_queue(used=3)).trials == 2
    assert free(a_queue(used=8)).trials == 0
    assert free(a_queue(nominal=4, used=6), workloads=[HELD, HELD]).trials == 0, "the quota was lowered"
    unused = a_queue(nominal=2)
    unused["status"]["flavorsReservation"][0]["resources"] = [{"name": GPU}]
    assert free(unused).trials == 1
    del unused["status"]
    assert free(unused).trials == 1
    unset = a_queue()
    del unset["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]
    assert free(unset, workloads=[HELD]).trials == 0
    assert free() is None
    assert free(a_queue("another")) is None
    assert free(a_queue(nominal="8E0", used=3)).trials == 2, "as Kubernetes accepts it"
    several = free(a_queue(used=3), request=replace(REQUEST, pods=2))
    assert (several.trials, several.gpus) == (1, 4)
    elsewhere = [
        replace(HELD, queue="urgent"),
        replace(HELD, namespace="nlp"),
        replace(HELD, admitted=False),
        replace(HELD, devices={"nvidia.com/mig-1g.5gb": 1}),
    ]
    assert free(a_queue(used=8), workloads=[HELD] * 4).trials == 2
    assert free(a_queue(used=8), workloads=elsewhere * 4).trials == 0
    assert free(a_queue(used=8), workloads=[HELD] * 4 + [OTHER]).trials == 0, "another Workload waits"


def test_queue_that_is_not_active_has_nothing_free_and_lends_as_before():
    stopped = {"type": "Active", "status": "False", "reason": "ClusterQueueIsInactive"}
    local = a_local() | {"status": {"conditions": [stopped]}}
    assert free(a_queue(used=3), local=[local], workloads=[HELD]).trials == 0
    assert free(a_queue(used=3), local=[local, a_local(namespace="nlp")]).trials == 0
    lender = a_queue("nlp", stopPolicy="Hold", cohort="all")
    assert free(a_queue(used=8, cohort="all"), lender, local=[a_local(), a_local("nlp", "nlp")]).trials == 4


@cases(
    ("queue", "resource", "has"),
    [("research", GPU, True), ("research", "nvidia.com/mig-1g.5gb", False), ("unread", GPU, None)],
)
def test_queue_has_a_quota_unless_its_cluster_queue_lacks_the_resource(queue, resource, has):
    queues = read_queues([a_local(), a_local("unread", "hidden")], [a_queue()], ())
    assert has_quota("sweeps", queue, resource, queues) is has


def test_reserved_gpus_of_a_node_are_those_of_the_queues_placeholders():
    pod = GpuPod(
        namespace="sweeps",
        name="p",
        node="n1",
        sizes={GPU: 1},
        labels={JOB_LABEL: HELD.job},
    )
    others = (
        replace(pod, namespace="nlp"),
        replace(pod, labels={JOB_LABEL: "another"}),
        replace(pod, labels={}),
    )
    pods = [pod, replace(pod, sizes={GPU: 2}), replace(pod, node="n2", sizes={"nvidia.com/mig": 1}), *others]
    queues = read_queues([a_local()], [a_queue()], [HELD])
    assert held_on_nodes(REQUEST, queues, pods) == {"n1": 3, "n2": 0}


@pytest.mark.parametrize("cohort", [{"cohort": "all"}, {"cohortName": "all"}])
def test_capacity_includes_what_the_queue_can_borrow(cohort):
    other = a_queue("nlp", nominal=8, used=2, **cohort)
    assert free(a_queue(used=8, **cohort), other).trials == 3
    assert free(a_queue(used=8, limit=4, **cohort), other).trials == 2
    assert free(a_queue(used=8, limit=0, **cohort), other).trials == 0


def test_capacity_leaves_out_what_other_queues_of_the_cohort_never_lend():
    keeper = a_queue("keeper", nominal=8, used=1, cohort="all")
    keeper["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = 3
    own = a_queue(used=7, cohort="all")
    assert free(own, keeper).trials == 2, "one of its own, and three that are lent"
    assert free(own, keeper, local=[a_local(above="keeper")]).trials == 4, "four that it keeps, too"
    keeper["status"]["flavorsReservation"][0]["resources"][0]["total"] = "7"
    assert free(own, keeper).trials == 1


@pytest.mark.parametrize(
    ("cohorts", "trials"),
    [
        ([], 0),
        ([a_cohort("left", nominalQuota="6")], 3),
        ([a_cohort("left", "root")], 2),
        ([a_cohort("left", "root"), {"metadata": {"name": "root"}}, a_cohort("right", "root")], 2),
        ([a_cohort("left", "root", nominalQuota="6", borrowingLimit="2")], 4),
        ([a_cohort("left", "root"), a_cohort("right", "root", nominalQuota="9", lendingLimit="2")], 1),
        ([a_cohort("left", "root"), a_cohort("right", "root", nominalQuota="2")], 3),
        ([a_cohort("left", "root", nominalQuota="6"), a_cohort("root", "left")], 0),
    ],
    ids=[
        "no object",
        "pool",
        "unwritten root",
        "without spec",
        "borrows",
        "lends",
        "all of the tree",
        "ring",
    ],
)
def test_capacity_counts_the_tree_of_cohorts(cohorts, trials):
    beside = a_queue("beside", nominal=4, cohortName="root" if len(cohorts) == 1 else "right")
    own = a_queue(nominal=0, cohortName="left")
    assert free(own, beside, cohorts=cohorts).trials == trials


def test_capacity_counts_each_flavor_alone():
    own, other = a_queue(used=8, cohort="all"), a_queue("nlp", used=1, cohort="all")
    for status in (other["spec"]["resourceGroups"][0]["flavors"], other["status"]["flavorsReservation"]):
        status[0]["name"] = "h100"
    assert free(own, other).trials == 0, "it has no quota of the other queue's flavor"
    group = own["spec"]["resourceGroups"][0]
    group["flavors"] += [{"name": "h100", "resources": [{"name": GPU, "nominalQuota": "0"}]}]
    assert free(own, other).trials == 3
    odd = a_queue(used=7)
    odd["spec"]["resourceGroups"][0]["flavors"] += [
        {"name": "h100", "resources": [{"name": GPU, "nominalQuota": "1"}]}
    ]
    assert free(odd).trials == 0, "a trial has one flavor"
    assert free(odd, workloads=[HELD]).trials == 1
    assert free(odd, workloads=[replace(HELD, flavors={GPU: "v100"})] * 2).trials == 0


def test_queue_yields_to_workloads_of_its_tree_of_cohorts():
    mine = a_queue(nominal=0, used=2, borrowed=2, cohortName="left")
    other = a_queue("nlp", used=6, cohortName="right")
    waits = replace(OTHER, namespace="nlp", queue="nlp")
    local = (a_local(), a_local("nlp", "nlp", "nlp"))
    tree = [a_cohort("left", "root"), a_cohort("right", "root")]
    found = [
        free(mine, other, workloads=[MINE, waits], local=local, cohorts=each) for each in (tree, tree[:1])
    ]
    assert [one.to_yield for one in found] == [1, 0]


def test_workload_lacks_only_the_quota_that_it_waits_for():
    found = free(a_queue(used=6), workloads=[MINE, OTHER])
    assert (found.trials, found.to_yield, found.who, found.requested) == (0, 1, "other", 4)
    found = free(a_queue(used=2), workloads=[MINE, OTHER])
    assert (found.trials, found.to_yield, found.who, found.requested) == (0, 0, "", 0)
    found = free(a_queue(used=8), workloads=[MINE, replace(OTHER, sweep="small", devices={GPU: 1}), OTHER])
    assert (found.to_yield, found.who, found.requested) == (3, "other", 5)
    mine = replace(OTHER, sweep="mine")
    assert free(a_queue(used=8), workloads=[MINE, mine, mine, OTHER]).waiting == 2


@pytest.mark.parametrize(("borrowed", "short"), [(0, 0), (2, 1), (8, 2)])
def test_queue_yields_to_its_cohort_only_what_it_borrows(borrowed, short):
    mine = a_queue(used=8 + borrowed, borrowed=borrowed, cohort="all")
    other = a_queue("nlp", used=8 - borrowed, cohort="all")
    waits = replace(OTHER, namespace="nlp", queue="nlp")
    local = (a_local(), a_local("nlp", "nlp", "nlp"))
    assert free(mine, other, workloads=[MINE, waits], local=local).to_yield == short


@pytest.mark.parametrize(
    "waits",
    [
        replace(OTHER, priority=10),
        replace(OTHER, active=False),
        replace(OTHER, created=NOW),
        replace(OTHER, waits="previously considered podsets requests (0) > maximum capacity (2)"),
        replace(OTHER, waits="resource cpu unavailable in ClusterQueue"),
        replace(OTHER, reserved=True),
        replace(OTHER, devices={"nvidia.com/mig-1g.5gb": 4}),
        replace(OTHER, sweep="yields"),
    ],
    ids=[
        "lower priority",
        "held",
        "new",
        "never fits",
        "no quota",
        "has its quota",
        "other GPUs",
        "gives way itself",
    ],
)
def test_capacity_ignores_waiting_workloads_that_this_sweep_cannot_help(waits):
    workloads = [MINE, replace(MINE, priority=0), waits]
    assert free(a_queue(used=8), workloads=workloads, yielding={"yields"}).to_yield == 0


def test_queue_that_borrows_does_not_yield_outside_its_cohort():
    local = [a_local(), a_local("elsewhere", "nlp")]
    queues = a_queue(used=8, borrowed=4, cohort="all"), a_queue("nlp", used=8)
    assert free(*queues, workloads=[MINE, replace(OTHER, queue="elsewhere")], local=local).to_yield == 0


@pytest.mark.parametrize(("priority", "short"), [(1, 2), (0, 2), (-1, 0)])
def test_sweep_without_workloads_yields_as_one_of_priority_0(priority, short):
    assert free(a_queue(used=8), workloads=[replace(OTHER, priority=priority)]).to_yield == short
