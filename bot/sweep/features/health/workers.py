"""Trials on several machines: the worker whose pod explains the trial, and rules R27 (rendezvous), R28 (the
first worker is late), and R30 (resumed too early). Pure.

When a worker fails, the others fail with communication errors, and the Job deletes them. The first failure is
the cause; the rest is noise.
"""

from collections.abc import Iterable
from dataclasses import replace

from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import TrialEvidence
from bot.sweep.features.health.rules_training import OVER_TIME, failed
from k8s.jobs import resumed_early as pytorch_resumed_early
from k8s.objects import Manifest, still_live
from k8s.pods import read_trial_pod
from k8s.trial_kinds import pod_index

# PyTorch: TCPStore.cpp, socket.cpp, and elastic/rendezvous/api.py; Python and glibc for own rendezvous
RENDEZVOUS = (
    r"RendezvousTimeoutError|RendezvousConnectionError|DistNetworkError|DistStoreError"
    r"|client socket (has timed out|has failed to connect)"
    r"|waiting for clients\. \d{1,6}/\d{1,6} clients joined"
    r"|Name or service not known|Temporary failure in name resolution"
    r"|ConnectionRefusedError|No route to host"
)

# Of the Training Operator, in all workers but the first: it resolves the first one's name, 100 times by
# default, about every 2 s (pkg/controller.v1/pytorch/initcontainer.go).
WAITS_FOR_FIRST = "init-pytorch"
RENDEZVOUS_FAILED = "rendezvous"  # key
UNREACHABLE = "can't reach worker 1."  # continues "Worker 3 of 4"


def explaining(pods: Iterable[Manifest], nodes: int) -> Manifest | None:
    """Return the pod that failed first; else the first that hasn't started; else that of the first worker.

    None if all pods run and one of a worker is missing: the events of the Job explain that. None also if all
    are being deleted: their ends explain nothing.

    Args:
        pods: of one trial, the oldest first.
        nodes: of the trial.
    """
    latest: dict[int, Manifest] = {}
    for pod in pods:
        before = latest.get(pod_index(pod))
        if before is None or still_live(pod) or not still_live(before):
            latest[pod_index(pod)] = pod
    found = [latest[index] for index in sorted(latest)]
    failed = [pod for pod in found if _failed(pod)]
    if failed:
        return min(failed, key=_order)
    is_partial = len(found) < nodes and all(map(_runs, found))
    left = [pod for pod in found if not read_trial_pod(pod).deleted]
    return next((pod for pod in left if _waits(pod)), None if is_partial or not left else left[0])


def _failed(pod: Manifest) -> bool:
    """Return whether a pod failed by itself, or was disrupted; the Job deletes the others after that."""
    seen = read_trial_pod(pod)
    failed = pod.get("status", {}).get("phase") == "Failed" or bool(seen.exit and seen.exit[0])
    return bool(seen.disruption[0]) or (failed and not seen.deleted)


def _order(pod: Manifest) -> tuple[bool, str]:
    """Return the sort key of failed pods: disrupted ones, then by their end; "~" follows all times."""
    seen = read_trial_pod(pod)
    return not seen.disruption[0], seen.ended.isoformat() if seen.ended else "~"


def _waits(pod: Manifest) -> bool:
    seen = read_trial_pod(pod)
    return not seen.deleted and not seen.finished and seen.began is None


def _runs(pod: Manifest) -> bool:
    seen = read_trial_pod(pod)
    return seen.running and not seen.deleted


def first_is_late(evidence: TrialEvidence) -> Diagnosis | None:
    """R28: a PyTorchJob's worker stopped waiting until the first one runs."""
    if evidence.workers == 1 or evidence.init_failed != WAITS_FOR_FIRST:
        return None
    text = f"Init container `{WAITS_FOR_FIRST}` stopped waiting for worker 1, which didn't start in time."
    fix = (
        "Start the sweep again when all of its nodes are free, or use a queue. If pulling the image takes "
        "minutes, ask an admin to raise `--pytorch-init-container-max-tries` of the Training Operator."
    )
    return evidence.found("late-worker", text, fix, evidence.status.get("message", ""), lasting=True)


def resumed_early(evidence: TrialEvidence) -> Diagnosis | None:
    """R30: a preempted PyTorchJob was resumed while its earlier pods were terminating."""
    if evidence.job is None or evidence.exit or not pytorch_resumed_early(evidence.job):
        return None
    text = (
        "The trial started again while its earlier pods were terminating, and the Training Operator counted "
        "those as failed. This isn't caused by your code."
    )
    return evidence.found("resumed-early", text, "Start the sweep again.", lasting=True)


def rendezvous(evidence: TrialEvidence) -> Diagnosis | None:
    """R27: the workers of a trial didn't find each other. Only a failed training counts: they retry."""
    if evidence.workers == 1 or not failed(evidence) or not evidence.failed_with(RENDEZVOUS):
        return None
    text = UNREACHABLE
    if evidence.index == 0:
        text = f"Not all {evidence.workers} workers joined the rendezvous in time."
    fix = (
        "Check that the training starts with `torchrun` without rendezvous options, and ask an admin whether "
        "network policies let the nodes of a trial connect (`deploy/isolation`)."
    )
    return evidence.from_log(RENDEZVOUS_FAILED, text, fix, lasting=True)


def named(found: Diagnosis, evidence: TrialEvidence) -> Diagnosis:
    """Return the diagnosis of a worker's pod with its number: `Worker 3 of 4: Out of GPU memory.`

    The first worker reports that others didn't join, and each has the time limit of the trial.
    """
    is_of_trial = found.key == OVER_TIME or (found.key == RENDEZVOUS_FAILED and evidence.index == 0)
    if evidence.workers == 1 or evidence.pod is None or is_of_trial:
        return found
    separator = " " if found.text == UNREACHABLE else ": "
    return replace(found, text=f"Worker {evidence.index + 1} of {evidence.workers}{separator}{found.text}")
