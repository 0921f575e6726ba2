"""Rules for an experiment without a trial, and a trial without a Job: Katib's own components."""

from functools import partial

import pytest

from k8s.kueue import QUEUE_LABEL
from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import ADMIN, META, a_pod, an_event, expected, found, key

alone = partial(found, trial=None, job=None)
of_experiment = partial(expected, trial="", parameters={})
OUT_OF_MEMORY = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


def suggestion(*conditions):
    """Return a Suggestion with conditions of (type, status, message)."""
    keys = ("type", "status", "message")
    return {"metadata": META, "status": {"conditions": [dict(zip(keys, c, strict=True)) for c in conditions]}}


def service(state=None, last=None, conditions=()):
    statuses = [{"name": "suggestion", "state": state, "lastState": last}] if state or last else None
    return a_pod(containerStatuses=statuses, conditions=list(conditions))


def test_no_suggestion_waits_or_quotes_the_services_pods_once_each():
    assert alone(search=suggestion(("DeploymentReady", "False", real_messages.NOT_READY))) == (
        of_experiment(
            "suggestion",
            "Katib's suggestion service isn't ready, so no trial can start.",
            ADMIN,
            real_messages.NOT_READY,
            soft=True,
            due=25,
        )
    )
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}
    crashed = {"terminated": {"reason": "Error"}}
    scheduled = {"type": "PodScheduled", "status": "True", "message": "on n1"}
    no_node = {"type": "PodScheduled", "status": "False", "message": real_messages.UNSCHEDULABLE}
    unready = {"type": "Ready", "status": "False", "message": "containers with unready status"}
    pods = (
        service(waits),
        service(waits, crashed, [unready, scheduled]),
        service(conditions=[unready, no_node]),
    )
    created = ("Created", "True", "Suggestion is created")
    waiting = suggestion(created, ("DeploymentReady", "False", real_messages.NOT_READY))
    assert alone(search=waiting, services=pods).detail.splitlines() == [
        "ImagePullBackOff: no such tag",
        "Error",
        real_messages.UNSCHEDULABLE,
        real_messages.NOT_READY,
    ]
    assert key(search=suggestion(), services=(service(OUT_OF_MEMORY),)) is None


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            real_messages.POD_SECURITY,
            "the namespace's Pod Security level `restricted:latest` doesn't allow it",
        ),
        (real_messages.MEMORY_QUOTA, "the namespace's quota `team` has no room"),
    ],
)
def test_no_suggestion_names_what_rejects_the_services_pod(message, why):
    waiting = suggestion(("DeploymentReady", "False", real_messages.NOT_READY))
    rejected = an_event("FailedCreate", f"(combined from similar events): Error creating: {message}")
    text = f"Kubernetes rejected the pod of Katib's suggestion service: {why}."
    diagnosis = alone(search=waiting, events=(rejected,))
    assert (diagnosis.text, diagnosis.detail) == (text, message)
    assert (
        key(trial=None, job=None, search=waiting, services=(service(),), events=(rejected,))
        != "suggestion-pod"
    )


def test_no_suggestion_names_the_queue_that_holds_the_services_pod():
    waiting = suggestion(("DeploymentReady", "False", real_messages.NOT_READY))
    gates = "Scheduling is blocked due to non-empty scheduling gates"
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": gates}
    pod = service(conditions=[gated])
    pod["metadata"] = {**pod["metadata"], "labels": {QUEUE_LABEL: "default"}}
    assert alone(search=waiting, services=(pod,)) == of_experiment(
        "suggestion-queued",
        "Kueue holds Katib's suggestion service in its queue `default`, so no trial can start.",
        "Ask an admin to give that LocalQueue another name: docs/queues.md.",
        f"{gates}\n{real_messages.NOT_READY}",
        soft=True,
        due=25,
    )


@pytest.mark.parametrize("pod", [service(OUT_OF_MEMORY), service({"running": {}}, OUT_OF_MEMORY)])
def test_no_suggestion_out_of_memory_is_reported_at_once(pod):
    """A restarted service is ready again, and killed at its next trial."""
    ready = suggestion(("DeploymentReady", "True", "Deployment is ready"))
    assert alone(search=ready, services=(service(), pod)) == of_experiment(
        "suggestion",
        "Katib's suggestion service ran out of memory, so no trial can start.",
        ADMIN,
        "OOMKilled\nDeployment is ready",
        soft=True,
    )


@pytest.mark.parametrize("why", ["Succeeded", "Failed"])
def test_diagnose_finished_experiment_needs_no_trial(why):
    done = {"metadata": META, "status": {"conditions": [{"type": why, "status": "True"}]}}
    assert alone(experiment=done, services=(service(OUT_OF_MEMORY),)) is None


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"search": suggestion(("DeploymentReady", "True", ""))},
        {"events": (an_event("ReconcileError", real_messages.CONFLICT, 9),)},
        {"events": (an_event("JobCreated", "Job created"),)},
        {"services": (service({"terminated": {"reason": "Error", "exitCode": 1}}),)},
    ],
)
def test_stuck_experiment_without_a_reason_is_a_wait(known):
    assert alone(**known) == of_experiment(
        "no-trial",
        "Katib hasn't created a trial and gives no reason.",
        "Ask an admin to check the Katib controller.",
        soft=True,
        due=25,
    )


@pytest.mark.parametrize(("count", "due"), [(1, -20), (2, None), (None, -20)])
def test_stuck_experiment_quotes_katibs_error_when_it_repeats(count, due):
    event = an_event("ReconcileError", f"Failed to reconcile: {real_messages.NO_RIGHT}", count)
    event = {name: value for name, value in event.items() if value is not None}
    assert alone(events=(event,)) == of_experiment(
        "experiment",
        "Katib can't reconcile the experiment, so no trial can start.",
        ADMIN,
        real_messages.NO_RIGHT,
        due=due,
    )


def test_no_job_and_rejected_settings_quote_katibs_error():
    failed = suggestion(("Failed", "True", real_messages.VALIDATION))
    assert alone(search=failed) == of_experiment(
        "settings",
        "Katib rejected the search space.",
        "Correct `algorithm` or `parameters` in the space file, then start the sweep again.",
        "n_initial_points should be great or equal than zero",
        lasting=True,
    )
    assert key(search=failed) is None, "a trial started, so the settings are valid"
    event = an_event("ReconcileError", f"Failed to reconcile: {real_messages.NO_RIGHT}")
    text = "Katib can't create the trial's Job."
    assert found(job=None, events=(event,)) == expected(
        "no-job", text, ADMIN, real_messages.NO_RIGHT, due=-20
    )
    assert key(events=(event,)) is None, "the trial has a Job"
    assert key(job=None) is None, "nothing failed so far"


RESTART_KUEUE = "`kubectl -n kueue-system rollout restart deployment kueue-controller-manager`"


@pytest.mark.parametrize(
    ("words", "text", "fix"),
    [
        (
            real_messages.KUEUE_AWAY,
            "Kueue's webhook `mjob.kb.io` isn't responding, so Kubernetes rejects the trial's Job.",
            f"Ask an admin to restore Kueue, for example with {RESTART_KUEUE}.",
        ),
        (
            real_messages.KUEUE_AWAY.replace("kueue", "policy").replace("mjob.kb.io", "policy.kyverno.svc"),
            "The webhook `policy.kyverno.svc` isn't responding, so Kubernetes rejects the trial's Job.",
            "Ask an admin to restore the webhook; the pod then starts without further action.",
        ),
    ],
)
def test_no_job_names_the_webhook_that_does_not_answer(words, text, fix):
    event = an_event("ReconcileError", f"Failed to reconcile: {words}")
    assert found(job=None, events=(event,)) == expected("webhook", text, fix, words, due=-20)
