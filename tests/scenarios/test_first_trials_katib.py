"""First trials that Katib, Kueue, or an admission plugin keeps from starting."""

import pytest

from local.kubernetes.apiserver.kinds import refusal
from tests.bot.sweep.features.health import real_messages
from tests.scenarios.failing_trials import FailingTrials
from tests.scenarios.pod_faults import MINUTE, NOW
from tests.scenarios.sweep_in_memory import SWEEP


async def without_katib(redis, *conditions, scenario=()):
    simulation = FailingTrials(redis, lambda *_: None, **dict(scenario))
    simulation.katib.start = lambda: None
    async with simulation.started():
        for _ in range(8):
            await simulation.round()
            simulation.suggestion(*conditions)
        yield simulation


async def test_suggestion_service_that_does_not_start_is_reported(redis):
    async for simulation in without_katib(
        redis,
        {
            "type": "DeploymentReady",
            "status": "False",
            "reason": "DeploymentNotReady",
            "message": real_messages.NOT_READY,
        },
    ):
        assert await simulation.message() is None
        await simulation.after(MINUTE)
        reported = await simulation.message()
        assert "isn't running yet. Katib's suggestion service isn't ready" in reported
        assert real_messages.NOT_READY in reported


async def test_rejected_pod_of_the_suggestion_service_is_reported(redis):
    created = {"type": "Created", "status": "True", "message": "Suggestion is created"}
    async for simulation in without_katib(redis, created):
        replicas = {"kind": "ReplicaSet", "apiVersion": "apps/v1"}
        for name in (f"{SWEEP}-grid-7fc6b6bf6f", f"{SWEEP}-2-grid-5d649bff94"):
            about = {**replicas, "metadata": {"name": name, "namespace": "sweeps", "uid": name}}
            text = f"Error creating: {real_messages.POD_SECURITY} of {name}"
            simulation.kubernetes.record_event(
                about, "Warning", "FailedCreate", text, "replicaset-controller"
            )
        await simulation.after(MINUTE)
        reported = await simulation.message()
        assert "Kubernetes rejected the pod of Katib's suggestion service: the namespace's Pod" in reported
        assert f"{SWEEP}-grid" in reported


async def test_katib_error_that_is_only_in_an_event_is_reported(redis):
    ready = {"type": "DeploymentReady", "status": "True", "message": "Deployment is ready"}
    async for simulation in without_katib(redis, ready):
        experiment = simulation.kubernetes.get("Experiment", "sweeps", SWEEP)
        for _ in range(2):
            simulation.kubernetes.record_event(
                experiment,
                "Warning",
                "ReconcileError",
                f"Failed to reconcile: {real_messages.NO_RIGHT}",
                "experiment-controller",
            )
        await simulation.round()
        reported = await simulation.message()
        assert "Katib can't reconcile the experiment" in reported
        assert "```\njobs.batch is forbidden" in reported


async def test_settings_that_the_suggestion_service_rejects_are_reported(redis):
    async for simulation in without_katib(
        redis,
        {
            "type": "Failed",
            "status": "True",
            "reason": "SuggestionFailed",
            "message": real_messages.VALIDATION,
        },
    ):
        reported = await simulation.message()
        assert "Katib rejected the search space" in reported
        assert "```\nn_initial_points should be great or equal than zero" in reported


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
    simulation = FailingTrials(redis, lambda *_: None)
    simulation.kubernetes.admission("Job", forbid(real_messages.NO_RIGHT))
    async with simulation.started():
        await simulation.rounds(8)
        await simulation.after(11)
        reported = await simulation.message()
        assert "Katib can't create the trial's Job" in reported
        assert real_messages.NO_RIGHT.replace("&", "&amp;") in reported
        assert "width=" in reported


@pytest.mark.parametrize(
    ("refusal_text", "due", "expected"),
    [
        (real_messages.NO_QUOTA, MINUTE, "Queued by Kueue: needs 2 more GPUs in gpu-a100"),
        (real_messages.NO_QUEUE, NOW, "The trial's Kueue queue doesn't exist"),
        (real_messages.TOO_MUCH, NOW, "The trial can never be admitted"),
        (real_messages.STOPPED_QUEUE, MINUTE, "`team-cq` is stopped or misconfigured"),
        (None, MINUTE, "Kueue gives no reason"),
    ],
)
async def test_job_held_by_kueue_is_reported(redis, refusal_text, due, expected):
    simulation = FailingTrials(redis, lambda *_: None)
    simulation.kubernetes.admission("Job", only_trials(suspend))
    simulation.cluster.kueue = refusal_text
    async with simulation.started():
        await simulation.rounds(8)
        assert due == NOW or await simulation.message() is None
        await simulation.after(due)
        assert expected in await simulation.message()


@pytest.mark.parametrize(
    ("refusal_text", "expected"),
    [
        (real_messages.QUOTA, "requests 8 GPUs; 56 of the namespace's 60 are in use"),
        (real_messages.SMALL_QUOTA, "can never start: it requests 8 GPUs, and the namespace quota is 4"),
        (real_messages.NO_PRIMARY, "find the training container"),
    ],
)
async def test_pod_that_is_rejected_is_reported(redis, refusal_text, expected):
    simulation = FailingTrials(redis, lambda *_: None)
    simulation.kubernetes.admission("Pod", forbid(refusal_text))
    async with simulation.started():
        await simulation.rounds(8)
        assert expected in await simulation.message()


def without_collector(pod):
    containers = [c for c in pod["spec"]["containers"] if c["name"] != "metrics-collector"]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


async def test_namespace_without_katibs_label_is_reported(redis):
    """So that the API server does not call Katib's webhook for pods."""
    async with FailingTrials(redis, lambda simulation, pod: simulation.runs(pod)).started() as simulation:
        simulation.kubernetes.admission("Pod", without_collector)
        await simulation.rounds(8)
        reported = await simulation.message()
        assert (
            "kubectl label namespace sweeps katib.kubeflow.org/metrics-collector-injection=enabled"
            in reported
        )
