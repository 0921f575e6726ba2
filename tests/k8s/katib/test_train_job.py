"""The TrainJob of a trial on several machines, and the TrainingRuntime with its pods."""

import json
from dataclasses import replace

import pytest

from bot.core.ids import MAX_ID
from k8s.katib.experiment import JOB_TTL, experiment, training_runtime
from k8s.katib.manifest import first_pod, grace_of, main_container, renamed, with_image, with_variable
from k8s.katib.multi_node import MULTI_LABEL
from k8s.katib.pod_shape import PodShape
from k8s.katib.train_job import owned
from k8s.trial_kinds import INDEX_LABEL, TRAIN_JOB
from tests.k8s.katib.test_katib import SPEC

SHAPE = PodShape(multi_node=TRAIN_JOB, runtime_class="nvidia", grace_seconds=90)
THREE_NODES = replace(SPEC, nodes=3, shape=SHAPE)


def template(**changes):
    return experiment(replace(THREE_NODES, **changes))["spec"]["trialTemplate"]


def trainer(**changes):
    return template(**changes)["trialSpec"]["spec"]["trainer"]


def replicated_job(**changes):
    spec = training_runtime(replace(THREE_NODES, **changes))["spec"]
    [job] = spec["template"]["spec"]["replicatedJobs"]
    return job


def test_experiment_of_train_jobs_names_its_own_runtime():
    found = template()
    assert (found["trialSpec"]["apiVersion"], found["trialSpec"]["kind"]) == (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
    )
    assert found["trialSpec"]["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": SPEC.name,
    }
    assert (found["retain"], found["primaryContainerName"]) == (True, "node")
    assert found["primaryPodLabels"] == {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        INDEX_LABEL: "0",
    }
    assert found["successCondition"] == 'status.conditions.#(type=="Complete")#|#(status=="True")#'
    assert found["failureCondition"] == 'status.conditions.#(type=="Failed")#|#(status=="True")#'


def test_train_job_has_what_katib_and_the_build_fill_in():
    found = trainer(env={"A": "1"})
    assert (found["numNodes"], found["numProcPerNode"]) == (3, 4)
    assert found["command"] == ["sh", "-c"]
    assert "${trialParameters.lr}" in found["args"][0]
    assert found["image"] == SPEC.image
    assert {"name": "A", "value": "1"} in found["env"]
    assert set(found) == {"image", "command", "args", "env", "numNodes", "numProcPerNode"}


def test_train_job_without_gpus_runs_one_process_per_node():
    assert trainer(gpus=0)["numProcPerNode"] == 1


def test_variables_that_trainer_reserves_are_left_to_it():
    """Trainer's webhook would reject the TrainJob."""
    names = {each["name"] for each in trainer(env={"PET_NNODES": "9", "PET_MAX_RESTARTS": "1"})["env"]}
    assert names & {"PET_NNODES", "PET_MAX_RESTARTS"} == {"PET_MAX_RESTARTS"}


def test_runtime_has_one_job_that_never_restarts():
    found = replicated_job()
    assert (found["name"], found["replicas"]) == ("node", 1)
    assert found["template"]["metadata"]["labels"] == {
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"
    }
    job = found["template"]["spec"]
    assert (job["backoffLimit"], job["completionMode"]) == (0, "Indexed")
    assert job["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["ttlSecondsAfterFinished"] == JOB_TTL
    # Without a failurePolicy, JobSet fails with its first failed Job.
    assert set(training_runtime(THREE_NODES)["spec"]["template"]["spec"]) == {"replicatedJobs"}


def test_runtime_has_the_pod_but_nothing_that_the_train_job_sets():
    pod = replicated_job()["template"]["spec"]["template"]
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "sweepbot",
        "sweepbot/sweep": SPEC.sweep,
        MULTI_LABEL: "true",
        "sidecar.istio.io/inject": "false",
    }
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert "subdomain" not in pod["spec"]
    [node] = pod["spec"]["containers"]
    assert node["name"] == "node"
    assert not {"image", "command", "args", "env"} & set(node)
    assert node["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert "${" not in json.dumps(training_runtime(THREE_NODES))  # Katib replaces nothing there


def test_pod_is_read_from_the_runtime():
    runtime = training_runtime(THREE_NODES)
    assert first_pod(runtime)["restartPolicy"] == "Never"
    assert main_container(runtime)["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert grace_of(runtime) == 90


def test_image_and_variable_are_set_in_the_train_job():
    made = experiment(replace(THREE_NODES, env={"A": "1"}))
    changed = with_variable(with_image(made, "repo@sha256:1"), "A", lambda value: f"{value}2")
    found = changed["spec"]["trialTemplate"]["trialSpec"]["spec"]["trainer"]
    assert found["image"] == "repo@sha256:1"
    assert {"name": "A", "value": "12"} in found["env"]
    assert (found["numNodes"], found["args"]) == (3, trainer()["args"])


def test_renamed_experiment_names_a_runtime_of_its_own():
    before = experiment(THREE_NODES)
    after = renamed(before, f"{SPEC.name}-2")
    assert after["spec"]["trialTemplate"]["trialSpec"]["spec"]["runtimeRef"]["name"] == f"{SPEC.name}-2"
    runtime = owned(training_runtime(THREE_NODES), after, "u2")
    assert runtime["metadata"]["name"] == f"{SPEC.name}-2"
    assert before == experiment(THREE_NODES)


def test_runtime_is_deleted_with_its_experiment():
    found = owned(training_runtime(THREE_NODES), experiment(THREE_NODES), "u1")
    assert (found["apiVersion"], found["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime")
    assert found["metadata"]["namespace"] == SPEC.namespace
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "name": SPEC.name, "uid": "u1"}
    ]


@pytest.mark.parametrize("changes", [{"nodes": 1}, {"shape": PodShape()}])
def test_other_trials_have_no_runtime(changes):
    assert training_runtime(replace(THREE_NODES, **changes)) is None


def test_longest_pod_name_of_a_train_job_fits_jobsets_limit():
    """JobSet rejects longer names of pods, with a suffix of five characters. Katib adds eight to trials."""
    trial = f"{'x' * MAX_ID}-99-abcdefgh"
    assert len(f"{trial}-node-0-9999-abcde") <= 63
