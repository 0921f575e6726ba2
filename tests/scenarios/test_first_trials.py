"""First trials in trouble: a story breaks the cluster in the real systems' words, and reads the thread."""

import re
from dataclasses import replace

import pytest

from bot.core.record import Phase
from local.katib.metrics import Reported
from local.kubernetes.kinds import refusal
from tests.bot.factories import REQUEST
from tests.bot.health import real_messages
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.sweep_in_memory import SPACE, SWEEP

NOW, MINUTE = 0, 61  # seconds until it has to be told


def says(**status):
    return lambda ward, pod: (ward.bind(pod), ward.set_status(pod, **status))


def unscheduled(message, reason="Unschedulable"):
    return lambda ward, pod: ward.unscheduled(pod, message, reason)


def event(reason, message, wait="ContainerCreating"):
    def happens(ward, pod):
        ward.waits(pod, wait)
        ward.event(pod, reason, message)

    return happens


def waits(reason, message):
    return lambda ward, pod: ward.waits(pod, reason, message)


def ends(code=1, reason="Error", log="", message="", **more):
    def happens(ward, pod):
        ward.cluster.logs |= {"main": log, "metrics-collector": real_messages.NO_DB}
        ward.ends(pod, code, reason, message, **more)

    return happens


def runs(log="", **more):
    def happens(ward, pod):
        ward.cluster.logs["main"] = log
        ward.runs(pod, **more)

    return happens


def too_large(ward, pod):
    ward.node(gpus=4)
    unscheduled(real_messages.UNSCHEDULABLE)(ward, pod)


def unbound(ward, pod):
    unscheduled(real_messages.UNBOUND)(ward, pod)
    ward.event(pod, "FailedBinding", real_messages.NO_CLASS, "Normal", "persistentvolume-controller")


def node_dies(ward, pod):
    ward.node(ready="Unknown", message=real_messages.NO_KUBELET)
    ward.runs(pod, conditions=[{"type": "Ready", "status": "False"}])


def node_dies_unseen(ward, pod):
    """Where the bot may not see nodes."""
    ward.runs(pod, conditions=[{"type": "Ready", "status": "False"}])
    ward.event(pod, "NodeNotReady", real_messages.NODE_NOT_READY, component="node-controller")


def disk_fills(ward, pod):
    """While it trains: the kubelet says that it is not the pod's fault, and the Job makes another one."""
    if ward.last.phase is not Phase.RUNNING:
        return ward.runs(pod)
    why = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    conditions = [{**why, "message": real_messages.EVICTED}]
    return ward.set_status(
        pod, phase="Failed", reason="Evicted", message=real_messages.EVICTED, conditions=conditions
    )


def sandbox_then_pulls(ward, pod):
    ward.waits(pod, "ContainerCreating")
    ward.event(pod, "FailedCreatePodSandBox", real_messages.NO_NETWORK)
    ward.event(pod, "Pulling", real_messages.PULLING, "Normal")


def reserved(ward, pod):
    ward.node("cpu", gpus=0)
    ward.node("gpu", taints=[{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}])
    ward.unscheduled(pod, real_messages.TAINTED_GPUS)


def without_gpus(ward, pod):
    ward.node(gpus=0)
    ward.unscheduled(pod, real_messages.UNSCHEDULABLE)


def node_dies_early(ward, pod):
    ward.node(ready="Unknown", message=real_messages.NO_KUBELET)
    ward.waits(pod, "ContainerCreating")


def infinite(ward, pod):
    ward.katib.metrics.report(pod["metadata"]["labels"]["katib.kubeflow.org/trial"], [Reported("inf", 1)])
    ward.ends(pod, 0, "Completed")


def no_metrics(ward, pod):
    ward.ends(pod, 0, "Completed")
    trial = ward.kubernetes.get("Trial", "sweeps", pod["metadata"]["labels"]["katib.kubeflow.org/trial"])
    why = {"type": "MetricsUnavailable", "status": "True", "reason": "MetricsUnavailable"}
    ward.set_status(trial, conditions=[{**why, "message": real_messages.NO_METRICS}])


# number in the table and a name -> what happens to each pod, after how many seconds it is told, and the words
STORIES = {
    "6 no free GPU": (
        unscheduled(real_messages.UNSCHEDULABLE),
        MINUTE,
        ["isn't running yet", "not enough free GPUs on 4 nodes", "0/4 nodes"],
    ),
    "6 nodes reserved by a taint": (
        unscheduled(real_messages.TAINTED),
        MINUTE,
        ["Taint `dedicated: gpu` on 1 node."],
    ),
    "6 the nodes with GPUs are reserved": (
        reserved,
        MINUTE,
        ["untolerated taints on 1 node.", "Taint `dedicated: vision` on 1 node."],
    ),
    "6 no node has GPUs": (without_gpus, MINUTE, ["No node has GPUs; the trial requests 1."]),
    "6 no node has its labels": (
        unscheduled(real_messages.UNMATCHED),
        MINUTE,
        ["node selector excludes 3 nodes"],
    ),
    "6 no node is large enough": (
        too_large,
        NOW,
        ["requests 8 GPUs, and the largest node has 4", "`gpus=4` or fewer", "0/4 nodes"],
    ),
    "6 held back by a gate": (
        unscheduled(real_messages.GATED, "SchedulingGated"),
        MINUTE,
        ["scheduling gate"],
    ),
    "7 no such claim": (
        unscheduled(real_messages.NO_CLAIM),
        NOW,
        ["`rc-definitely-missing-pvc` doesn't exist"],
    ),
    "7 nothing fills the claim": (unbound, MINUTE, ["PersistentVolumeClaim", "default"]),
    "8 a secret to mount is missing": (
        event("FailedMount", real_messages.NO_SECRET),
        NOW,
        ["secret `compcrdwebhook-secret` doesn't exist"],
    ),
    "8 a volume is attached elsewhere": (
        event("FailedAttachVolume", real_messages.MULTI_ATTACH),
        MINUTE,
        ["still attached to another node", "pvc-8837384d"],
    ),
    "8 a large image": (event("Pulling", real_messages.PULLING), MINUTE, ["still pulling the image"]),
    "9 a network that came": (sandbox_then_pulls, MINUTE, ["still pulling the image"]),
    "9 no network": (
        event("FailedCreatePodSandBox", real_messages.NO_NETWORK),
        11,
        ["Node `n1` can't start the pod: network error"],
    ),
    "9 no runtime": (
        event("FailedCreatePodSandBox", real_messages.NO_RUNTIME),
        11,
        ["container runtime error", 'no runtime for "nvidia"'],
    ),
    "10 a broken GPU": (
        says(phase="Failed", reason="UnexpectedAdmissionError", message=real_messages.UNHEALTHY_GPU),
        NOW,
        ["Node `n1` couldn't allocate GPUs", "no healthy devices present"],
    ),
    "10 a GPU just taken": (
        says(phase="Failed", reason="OutOfnvidia.com/gpu", message=real_messages.OUT_OF_GPU),
        NOW,
        ["ran out of capacity while the pod was starting"],
    ),
    "11 no such tag": (
        waits("ErrImagePull", real_messages.PULLS["image-missing"]),
        NOW,
        ["not found in the registry"],
    ),
    "11 a first failure may pass": (
        waits("ErrImagePull", real_messages.PULLS["image-pull"]),
        11,
        ["can't pull the image", "connection refused"],
    ),
    "12 a secret is missing": (
        waits("CreateContainerConfigError", real_messages.NO_ENV_SECRET),
        NOW,
        ["secret `secretpostgresql` doesn't exist"],
    ),
    "12 no such command": (
        ends(128, "StartError", message=real_messages.NO_COMMAND),
        NOW,
        ["couldn't start the command", "executable file not found in $PATH"],
    ),
    "12 no python": (
        ends(127, log=real_messages.NO_PYTHON),
        NOW,
        ["not found in the image (exit code 127)", "python: not found"],
    ),
    "13 a crash": (
        ends(1, log=real_messages.TRACEBACK),
        NOW,
        [
            ":warning: <@UOWNER> Trial `",
            "failed. The training failed with exit code 1.",
            "KeyError: 'adamw'",
            "width=",
        ],
    ),
    "14 out of memory": (ends(137, "OOMKilled"), NOW, ["Out of memory (RAM, not GPU)"]),
    "14 out of shared memory": (ends(1, log=real_messages.SHM), NOW, ["out of shared memory", "num_workers"]),
    "14 a loader is killed": (
        ends(1, log=real_messages.KILLED_LOADER),
        NOW,
        ["worker was killed"],
    ),
    "15 the disk is full": (
        disk_fills,
        NOW,
        [":warning: Problem with trial `lr-brave-otter-", "the disk is full"],
    ),
    "15 its own limit of disk": (
        says(phase="Failed", reason="Evicted", message=real_messages.OVER_DISK),
        NOW,
        ["exceeded its limit of 1Gi for the container's disk", "a higher ephemeral-storage limit"],
    ),
    "15 the node shuts down": (
        says(phase="Failed", reason="Terminated", message=real_messages.SHUTDOWN),
        NOW,
        ["The node terminated the pod. This isn't caused by your code."],
    ),
    "16 the GPU's memory": (
        ends(1, log=real_messages.CUDA_OOM),
        NOW,
        ["Out of GPU memory (23.65 GiB)", "width=", "batch size"],
    ),
    "17 no driver": (ends(1, log=real_messages.NO_DRIVER), NOW, ["found no usable GPU"]),
    "17 no GPU, and it goes on": (
        runs(f"{real_messages.NOT_AVAILABLE_PRINTED}, using cpu"),
        NOW,
        [":warning: Problem with trial `lr-brave-otter-", "no usable GPU and continues on the CPU"],
    ),
    "17 no GPU for its checkpoint": (
        ends(1, log=real_messages.NOT_AVAILABLE),
        NOW,
        ["found no usable GPU."],
    ),
    "18 NCCL": (ends(1, log=real_messages.NCCL), NOW, ["GPU communication failed (NCCL)"]),
    "18 hung": (runs(real_messages.HUNG), NOW, ["The training hung"]),
    "19 NaN while it runs": (
        runs(real_messages.NAN),
        NOW,
        ["The loss became NaN at step 1200", "learning rate"],
    ),
    "19 infinite, and a success": (infinite, NOW, ["`loss` is infinite"]),
    "20 no metric": (no_metrics, NOW, ["no TensorBoard scalar `loss`", "add_scalar"]),
    "21 the collector fails": (
        ends(0, "Completed", collector=1),
        NOW,
        ["its metrics collector can't reach Katib's database", "6789: Failed to connect"],
    ),
    "22 nothing is reported": (ends(0, "Completed"), MINUTE, ["Katib received no metrics"]),
    "23 a node dies": (
        node_dies,
        NOW,
        ["Node `n1` isn't responding", real_messages.NO_KUBELET, "restore or remove `n1`"],
    ),
    "23 a node dies before": (
        node_dies_early,
        NOW,
        ["Node `n1` isn't responding", real_messages.NO_KUBELET],
    ),
    "23 a node dies, unseen": (
        node_dies_unseen,
        NOW,
        ["Node `n1` isn't responding", real_messages.NODE_NOT_READY],
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_first_trial_problem_is_reported_in_time(redis, story):
    happens, due, expected = STORIES[story]
    gpus = 8 if happens is too_large else 1
    async with FailingTrials(
        redis, happens, sweep={"request": replace(REQUEST, gpus=gpus)}
    ).started() as ward:
        await ward.rounds(8)
        if due:
            assert await ward.message() is None
            await ward.after(due)
        told = await ward.message()
        assert told is not None, ward.texts()
        for part in expected:
            assert part in told, told
        assert sum(told == each for each in ward.slack.said) == 1


async def without_katib(redis, *conditions, story=()):
    ward = FailingTrials(redis, lambda *_: None, **dict(story))
    ward.katib.start = lambda: None
    async with ward.started():
        for _ in range(8):
            await ward.round()
            ward.suggestion(*conditions)
        yield ward


async def test_suggestion_service_that_does_not_start_is_reported(redis):
    async for ward in without_katib(
        redis,
        {
            "type": "DeploymentReady",
            "status": "False",
            "reason": "DeploymentNotReady",
            "message": real_messages.NOT_READY,
        },
    ):
        assert await ward.message() is None
        await ward.after(MINUTE)
        told = await ward.message()
        assert "isn't running yet. Katib's suggestion service isn't ready" in told
        assert real_messages.NOT_READY in told


async def test_katib_error_that_is_only_in_an_event_is_reported(redis):
    ready = {"type": "DeploymentReady", "status": "True", "message": "Deployment is ready"}
    async for ward in without_katib(redis, ready):
        experiment = ward.kubernetes.get("Experiment", "sweeps", SWEEP)
        for _ in range(2):
            ward.kubernetes.record_event(
                experiment,
                "Warning",
                "ReconcileError",
                f"Failed to reconcile: {real_messages.NO_RIGHT}",
                "experiment-controller",
            )
        await ward.round()
        told = await ward.message()
        assert "Katib can't reconcile the experiment" in told
        assert "```\njobs.batch is forbidden" in told


async def test_settings_that_the_suggestion_service_rejects_are_reported(redis):
    async for ward in without_katib(
        redis,
        {
            "type": "Failed",
            "status": "True",
            "reason": "SuggestionFailed",
            "message": real_messages.VALIDATION,
        },
    ):
        told = await ward.message()
        assert "Katib rejected the search space" in told
        assert "```\nn_initial_points should be great or equal than zero" in told


def only_trials(refuse):
    def hook(obj):
        if not obj["metadata"].get("name", "").startswith("build"):
            return refuse(obj)
        return obj

    return hook


def forbid(message):
    def refuse(obj):
        raise refusal(403, message, "Forbidden")

    return only_trials(refuse)


def suspend(job):
    return {**job, "spec": {**job["spec"], "suspend": True}}


async def test_job_that_katib_cannot_create_is_reported(redis):
    ward = FailingTrials(redis, lambda *_: None)
    ward.kubernetes.admission("Job", forbid(real_messages.NO_RIGHT))
    async with ward.started():
        await ward.rounds(8)
        await ward.after(11)
        told = await ward.message()
        assert "Katib can't create the trial's Job" in told
        assert real_messages.NO_RIGHT.replace("&", "&amp;") in told
        assert "width=" in told


@pytest.mark.parametrize(
    ("said", "due", "expected"),
    [
        (real_messages.NO_QUOTA, MINUTE, "Queued by Kueue: needs 2 more GPUs in gpu-a100"),
        (real_messages.NO_QUEUE, NOW, "The trial's Kueue queue doesn't exist"),
        (real_messages.TOO_MUCH, NOW, "The trial can never be admitted"),
        (real_messages.STOPPED_QUEUE, MINUTE, "`team-cq` is stopped"),
        (None, MINUTE, "Kueue gives no reason"),
    ],
)
async def test_job_held_by_kueue_is_reported(redis, said, due, expected):
    ward = FailingTrials(redis, lambda *_: None)
    ward.kubernetes.admission("Job", only_trials(suspend))
    ward.cluster.kueue = said
    async with ward.started():
        await ward.rounds(8)
        assert due == NOW or await ward.message() is None
        await ward.after(due)
        assert expected in await ward.message()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (real_messages.QUOTA, "requests 8 GPUs; 56 of the namespace's 60 are in use"),
        (real_messages.SMALL_QUOTA, "can never start: it requests 8 GPUs, and the namespace quota is 4"),
        (real_messages.NO_PRIMARY, "find the training container"),
    ],
)
async def test_pod_that_is_rejected_is_reported(redis, said, expected):
    ward = FailingTrials(redis, lambda *_: None)
    ward.kubernetes.admission("Pod", forbid(said))
    async with ward.started():
        await ward.rounds(8)
        assert expected in await ward.message()


def without_collector(pod):
    containers = [c for c in pod["spec"]["containers"] if c["name"] != "metrics-collector"]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


async def test_namespace_without_katibs_label_is_reported(redis):
    """So that the API server does not call Katib's webhook for pods."""
    async with FailingTrials(redis, lambda ward, pod: ward.runs(pod)).started() as ward:
        ward.kubernetes.admission("Pod", without_collector)
        await ward.rounds(8)
        told = await ward.message()
        assert "kubectl label namespace sweeps katib.kubeflow.org/metrics-collector-injection=enabled" in told


async def test_pod_that_waits_two_seconds_for_a_finishing_one_is_not_reported(redis):
    async with FailingTrials(redis, unscheduled(real_messages.UNSCHEDULABLE)).started() as ward:
        await ward.rounds(8)
        ward.happens = lambda ward, pod: ward.runs(pod)
        await ward.after(2)
        assert (await ward.record()).phase is Phase.RUNNING
        await ward.after(MINUTE)
        assert await ward.message() is None


async def test_first_trial_message_follows_the_state_until_recovery(redis):
    async with FailingTrials(redis, unscheduled(real_messages.UNSCHEDULABLE)).started() as ward:
        await ward.rounds(8)
        await ward.after(MINUTE)
        assert "The pod is pending" in await ward.message()
        ward.happens = waits("ErrImagePull", real_messages.PULLS["image-login"])
        await ward.rounds(2)
        assert "missing registry credentials" in await ward.message()
        ward.happens = waits(
            "ImagePullBackOff",
            f"{real_messages.BACK_OFF}: ErrImagePull: {real_messages.PULLS['image-login']}",
        )
        await ward.rounds(2)
        before = list(ward.slack.said)
        ward.happens = lambda ward, pod: ward.runs(pod)
        await ward.rounds(2)
        told = await ward.message()
        assert told.startswith(":white_check_mark: Recovered: trial `lr-brave-otter-")
        assert "missing registry credentials" in told
        assert len([text for text in ward.slack.said if "missing registry credentials" in text]) == 1
        assert len(ward.slack.said) == len(before) + 1  # the first trial runs


async def test_owner_of_a_failed_first_trial_is_mentioned_for_it_and_for_the_end(redis):
    async with FailingTrials(redis, unscheduled(real_messages.UNSCHEDULABLE)).started() as ward:
        await ward.rounds(8)
        await ward.after(MINUTE)
        assert "The pod is pending" in await ward.message()
        ward.happens = ends(1, log=real_messages.TRACEBACK)
        await ward.rounds(12)
        assert (await ward.record()).phase is Phase.FAILED
        assert "KeyError: 'adamw'" in await ward.message()
        called = [text for text in ward.slack.said if "<@UOWNER>" in text]
        assert len(called) == 2, called
        assert called[0].startswith(":warning: <@UOWNER> Trial `lr-brave-otter-")
        assert called[1].startswith(":x: <@UOWNER> Sweep failed")


async def test_problem_of_another_trial_is_not_called_the_first(redis):
    def happens(ward, pod):
        ward.first = getattr(ward, "first", pod["metadata"]["name"])
        if pod["metadata"]["name"] == ward.first:
            ward.runs(pod)
        else:
            ward.waits(pod, "ErrImagePull", real_messages.PULLS["image-login"])

    async with FailingTrials(redis, happens).started() as ward:
        await ward.rounds(10)
        other = next(pod for pod in ward.kubernetes.list("Pod") if pod["metadata"]["name"] != ward.first)
        trial = other["metadata"]["labels"]["katib.kubeflow.org/trial"]
        assert (await ward.message()).startswith(f":warning: Problem with trial `{trial}`.")


async def test_waiting_trials_are_not_reported_once_one_runs(redis):
    def happens(ward, pod):
        ward.first = getattr(ward, "first", pod["metadata"]["name"])
        if pod["metadata"]["name"] == ward.first:
            ward.runs(pod)
        else:
            ward.unscheduled(pod, real_messages.UNSCHEDULABLE)

    async with FailingTrials(redis, happens).started() as ward:
        await ward.rounds(8)
        await ward.after(MINUTE)
        assert await ward.message() is None


async def test_later_failure_of_another_kind_is_reported_and_one_of_the_same_kind_is_not(redis):
    space = SPACE.replace("max_failed: 1", "max_failed: 3").replace("parallel: 2", "parallel: 1")
    logs = [real_messages.TRACEBACK, real_messages.TRACEBACK, real_messages.CUDA_OOM]
    names = []

    def happens(ward, pod):
        name = pod["metadata"]["name"]
        names.extend([name] if name not in names else [])
        ward.cluster.logs[name] = logs[min(names.index(name), 2)]
        ward.ends(pod, 1)

    async with FailingTrials(redis, happens, space=space).started() as ward:
        await ward.rounds(25)
        assert "KeyError" in await ward.message()
        failures = [text for text in ward.texts() if re.match(r":warning: (<@UOWNER> )?Trial", text)]
        assert len(failures) == 2
        assert "23.65 GiB" in failures[1]
        assert any("1 more trial failed the same way." in text for text in ward.slack.said)


async def test_failure_after_a_success_is_a_message_of_its_own(redis):
    names = []

    def happens(ward, pod):
        name = pod["metadata"]["name"]
        names.extend([name] if name not in names else [])
        ward.cluster.logs[name] = real_messages.TRACEBACK
        if names.index(name):
            ward.ends(pod, 1)
        elif ward.last.phase is Phase.RUNNING:
            ward.katib.metrics.report(
                pod["metadata"]["labels"]["katib.kubeflow.org/trial"], [Reported("1", 1)]
            )
            ward.ends(pod, 0, "Completed")
        else:
            ward.waits(pod, "CreateContainerConfigError", real_messages.NO_ENV_SECRET)
            if ward.last.health_ts:
                ward.runs(pod)

    async with FailingTrials(
        redis, happens, space=SPACE.replace("parallel: 2", "parallel: 1")
    ).started() as ward:
        await ward.rounds(25)
        assert (await ward.message()).startswith(":white_check_mark:")
        [later] = [text for text in ward.slack.said if "KeyError" in text]
        assert later.startswith(":warning:")


async def recovering(redis, dies_at=None):
    """Told twice: it can't start, then it is well. The worker may die at one of its calls."""
    ward = FailingTrials(redis, waits("CreateContainerConfigError", real_messages.NO_ENV_SECRET))
    ward.clock.dies_at = dies_at
    async with ward.started():
        await ward.rounds(9)
        told_by = ward.clock.calls
        ward.happens = lambda ward, pod: ward.runs(pod)
        await ward.rounds(4)
        shown = [text for text in ward.slack.said if "secretpostgresql" in text]
        return told_by, ward.clock.calls, shown


async def test_crash_posts_at_most_one_more_message_and_the_last_is_current(redis):
    told_by, calls, [calm] = await recovering(redis)
    assert calm.startswith(":white_check_mark: Recovered")
    for dies_at in range(told_by - 12, calls + 1):
        _, _, shown = await recovering(redis, dies_at)
        assert len(shown) <= 2, f"died at call {dies_at}"
        assert shown[-1].startswith(":white_check_mark: Recovered"), f"died at call {dies_at}"
