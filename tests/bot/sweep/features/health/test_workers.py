"""Which worker explains a trial on several machines, and what is said about it."""

import pytest

from bot.sweep.features.health.workers import explaining
from k8s.objects import timestamp
from k8s.trial_kinds import INDEX_LABEL, PYTORCH_JOB_LABEL, REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from tests.bot.factories import NOW
from tests.bot.sweep.features.health.snapshots import EARLIER, a_pod, ended, found, key, running
from tests.bot.sweep.features.health.test_rules_training import real_messages

TIMED_OUT = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
    "connect to (lr-otter-x1-0.sweepbot-trials, 29500)."
)
NOT_JOINED = (
    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined."
)
UNKNOWN_HOST = "socket.gaierror: [Errno -2] Name or service not known"
DISRUPTED = [
    {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API",
    }
]


def worker(index, pod, **meta):
    about = {"name": f"t1-{index}-abcde", "labels": {INDEX_LABEL: str(index)}, **meta}
    return pod | {"metadata": pod["metadata"] | about}


def failed_at(second, code=1):
    pod = ended(code)
    over = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    over |= {"startedAt": EARLIER, "finishedAt": f"2026-11-21T11:59:{second:02}Z"}
    return pod


def index_of(*pods):
    return int(explaining(pods, len(pods))["metadata"]["labels"][INDEX_LABEL])


def test_explaining_pod_is_the_one_that_failed_first_and_not_for_anothers_failure():
    assert index_of(worker(0, failed_at(30)), worker(1, running()), worker(2, failed_at(20))) == 2
    gone = {"deletionTimestamp": timestamp(NOW)}
    assert index_of(worker(0, failed_at(10, 143), **gone), worker(1, failed_at(20))) == 1
    assert explaining([worker(0, failed_at(10, 143), **gone), worker(1, running(), **gone)], 2) is None
    assert index_of(worker(0, running()), worker(1, a_pod(phase="Pending")), worker(2, running())) == 1
    assert index_of(worker(1, running()), worker(0, running())) == 0
    assert index_of(worker(0, running()), worker(1, a_pod(phase="Failed"))) == 1
    assert explaining([], 2) is None
    assert explaining([worker(0, running())], 2) is None
    assert explaining([worker(0, ended(0))], 2)
    done = failed_at(10, 0)
    done["status"]["phase"] = "Succeeded"
    assert index_of(worker(0, done), worker(1, failed_at(20))) == 1
    assert explaining([worker(0, done)], 2), "it doesn't run any more"
    before, after = worker(0, failed_at(10)), worker(0, running(), name="t1-0-zzzzz")
    assert explaining([before, after], 1)["metadata"]["name"] == "t1-0-zzzzz"


@pytest.mark.parametrize("message", ["Eviction API", ""])
def test_explaining_pod_was_disrupted(message):
    conditions = [DISRUPTED[0] | {"message": message}]
    evicted = worker(2, running(conditions=conditions), deletionTimestamp=timestamp(NOW))
    assert index_of(worker(0, running()), worker(1, failed_at(20)), evicted) == 2


@pytest.mark.parametrize("log", [TIMED_OUT, UNKNOWN_HOST])
def test_diagnose_worker_that_cannot_reach_the_first_says_so(log):
    diagnosis = found(worker(2, ended(1)), workers=4, log=log)
    assert (diagnosis.key, diagnosis.lasting) == ("rendezvous", True)
    assert diagnosis.text == "Worker 3 of 4 can't reach worker 1."
    assert "`deploy/isolation`" in diagnosis.fix


def test_diagnose_pytorch_jobs_worker_whose_init_container_gave_up_names_the_first():
    gave_up = {"name": "init-pytorch", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    pod = a_pod(phase="Failed", initContainerStatuses=[gave_up])
    labels = {PYTORCH_JOB_LABEL: "t1", REPLICA_TYPE_LABEL: "worker", REPLICA_INDEX_LABEL: "1"}
    pod |= {"metadata": pod["metadata"] | {"labels": labels}}
    diagnosis = found(pod, workers=4)
    assert (diagnosis.key, diagnosis.failed, diagnosis.lasting) == ("late-worker", True, True)
    assert "stopped waiting for worker 1" in diagnosis.text
    assert "`--pytorch-init-container-max-tries`" in diagnosis.fix
    pod["status"]["phase"] = "Pending"
    diagnosis = found(pod, workers=4)
    assert (diagnosis.key, diagnosis.failed, diagnosis.lasting) == ("late-worker", False, True)
    assert key(a_pod(phase="Failed", initContainerStatuses=[gave_up])) == "init"


def test_diagnose_worker_of_several_machines_is_not_that_of_one():
    diagnosis = found(worker(0, ended(1)), workers=4, log=NOT_JOINED)
    assert diagnosis.text == "Not all 4 workers joined the rendezvous in time."
    assert key(worker(0, ended(1)), log=TIMED_OUT) == "crash"
    assert key(worker(0, running()), workers=2, log=TIMED_OUT) is None
    pod = worker(1, running())
    pod["spec"] = {"containers": [{"name": "main"}]}
    assert key(pod, workers=2) is None
    assert key(worker(0, pod), workers=2) == "no-collector"
    assert "`nodes=1`" in found(worker(1, ended(1)), workers=2, log=real_messages.NCCL).fix
    pod = worker(1, ended(143, conditions=DISRUPTED))
    diagnosis = found(pod, workers=2)
    again = "None needed; Kubernetes restarts the trial."
    assert (diagnosis.key, diagnosis.failed, diagnosis.fix) == ("evicted", False, again)
    failed = {"metadata": {"name": "t1"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    diagnosis = found(pod, workers=2, trial=failed)
    assert (diagnosis.key, diagnosis.failed, diagnosis.fix) == ("evicted", True, "Start the sweep again.")


def test_named_adds_the_workers_number_unless_the_whole_trial_is_meant():
    out_of_memory = found(worker(2, ended(1)), workers=4, log=real_messages.CUDA_OOM)
    assert out_of_memory.text.startswith("Worker 3 of 4: Out of GPU memory")
    unreachable = found(worker(2, ended(1)), workers=4, log=TIMED_OUT)
    assert unreachable.text == "Worker 3 of 4 can't reach worker 1."
    pod = ended(1) | {"spec": {"activeDeadlineSeconds": 3600, "containers": [{"name": "main"}]}}
    pod["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    assert found(worker(1, pod), workers=2).text == "The trial reached its time limit of 1 h."
    without_collector = worker(0, running())
    without_collector["spec"] = {"containers": [{"name": "main"}]}
    assert found(without_collector, workers=2).text.startswith("Katib doesn't collect metrics in namespace")


@pytest.mark.parametrize(("second", "cause"), [(5, "resumed-early"), (59, None)])
def test_resumed_early_only_if_the_pytorch_job_failed_at_once(second, cause):
    resumed = {"type": "Suspended", "status": "False", "reason": "PyTorchJobResumed"}
    failed = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": "1 failed"}
    conditions = [
        resumed | {"lastTransitionTime": "2026-11-21T11:50:00Z"},
        failed | {"lastTransitionTime": f"2026-11-21T11:50:{second:02}Z"},
    ]
    job = {"kind": "PyTorchJob", "metadata": {"name": "t1"}, "spec": {}, "status": {"conditions": conditions}}
    assert key(job=job, workers=3) == cause
    if cause:
        diagnosis = found(worker(0, running()), job=job, workers=3)
        assert diagnosis.lasting
        assert diagnosis.text.startswith("The trial started again while its earlier pods were terminating")
    assert key(worker(1, ended(1)), job=job, workers=3) != "resumed-early"
