"""What the waiting trials of a running sweep wait for."""

from bot.sweep.model.observation import Observation
from bot.sweep.model.progress import waits_for
from k8s.kueue import QUEUE_LABEL
from tests.bot.sweep.model.observations import a_job, a_pod, a_trial
from tests.cases import cases

NO_MATCH = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
FULL = "0/5 nodes are available: 4 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {a: b}."


def seen(*pods, jobs=()):
    names = {pod.job for pod in pods} | {job.name for job in jobs}
    return Observation(trials=tuple(map(a_trial, sorted(names))), pods=pods, jobs=jobs)


@cases(
    ("pod", "needs"),
    [
        ({"unschedulable": FULL}, "free GPUs"),
        ({"unschedulable": "0/2 nodes are available: 2 Insufficient cpu."}, "free CPU"),
        (
            {"unschedulable": "0/2 nodes are available: 2 node(s) had untolerated taint {a: b}."},
            "a node whose taints they tolerate",
        ),
        ({"unschedulable": NO_MATCH}, "a node that matches their node selector"),
        ({"unschedulable": "0/2 nodes are available: 2 node(s) were unschedulable."}, "a node"),
        ({"unschedulable": "something new"}, "a node"),
        ({"waiting": ("ImagePullBackOff", "")}, "their image, which a node can't pull"),
        ({"waiting": ("ContainerCreating", "")}, ""),
        ({"unschedulable": FULL, "deleted": True}, ""),
    ],
)
def test_waits_for_names_the_cause_of_a_pod(pod, needs):
    assert waits_for(seen(a_pod("t1", **pod))) == needs


def test_waits_for_names_each_cause_once_and_no_numbers():
    queued = [a_job(f"t{n}", suspended=True, kueue_labels={QUEUE_LABEL: "research"}) for n in (1, 2)]
    admitted = a_job("t5", kueue_labels={QUEUE_LABEL: "urgent"})
    pods = [a_pod(f"t{n}", unschedulable=FULL) for n in (3, 4)]
    assert waits_for(seen(*pods, jobs=(*queued, admitted))) == (
        "free GPUs and quota in queue `research` (`/sweep queue` shows their place)"
    )
    assert waits_for(Observation()) == ""
    assert waits_for(Observation(jobs=(a_job("t1", suspended=True, kueue_labels={QUEUE_LABEL: "q"}),))) == ""
