"""The manifest of a trial on several machines, and its shell line with and without Katib's volume."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from k8s.katib.experiment import JOB_TTL, experiment
from k8s.katib.manifest import with_image, with_variable
from k8s.katib.multi_node import MULTI_LABEL, SERVICE, service
from k8s.katib.pod_shape import PodShape
from k8s.katib.status import is_open_with_several_nodes
from k8s.katib.training import FOLDER, LOG, TENSORBOARD_DIR, Collector, shell
from k8s.trial_kinds import INDEX_LABEL, JOB, PYTORCH_JOB, TRAIN_JOB, pod_templates
from tests.k8s.katib.test_katib import SPEC

SHELLS = [name for name in ("dash", "bash") if shutil.which(name)]
STDOUT = Collector(kind="File", path=LOG, tee=True)


def template(**changes):
    return experiment(replace(SPEC, **changes))["spec"]["trialTemplate"]


def test_experiment_with_several_nodes_has_an_indexed_job():
    found = template(nodes=4)
    job = found["trialSpec"]["spec"]
    pod = job["template"]
    assert found["primaryPodLabels"] == {INDEX_LABEL: "0"}
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 4, 4)
    assert job["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert job["backoffLimit"] == 0
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    assert job["podFailurePolicy"] == {"rules": [{"action": "FailJob", "onPodConditions": [disrupted]}]}
    assert pod["metadata"]["labels"][MULTI_LABEL] == "true"
    assert pod["spec"]["subdomain"] == SERVICE
    [main] = pod["spec"]["containers"]
    assert main["resources"]["limits"] == {"nvidia.com/gpu": 4}
    env = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"] for each in main["env"]}
    assert {name: value for name, value in env.items() if name.startswith("PET_")} == {
        "PET_NNODES": "4",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": {"fieldPath": f"metadata.labels['{INDEX_LABEL}']"},
        "PET_MASTER_ADDR": "${trialParameters.trialName}-0.sweepbot-trials",
        "PET_MASTER_PORT": "29500",
        "PET_RDZV_CONF": "timeout=1800",
    }


@pytest.mark.parametrize("kind", [JOB, PYTORCH_JOB, TRAIN_JOB], ids=lambda kind: kind.kind)
def test_workers_of_each_kind_wait_for_a_late_node_as_long_as_the_space_says(kind):
    def waits(nodes, **env):
        job = template(nodes=nodes, env=env, shape=PodShape(multi_node=kind))["trialSpec"]
        main = job["spec"].get("trainer") or pod_templates(job)[0]["spec"]["containers"][0]
        return [each["value"] for each in main["env"] if each["name"] == "PET_RDZV_CONF"]

    assert (waits(1), waits(2), waits(2, PET_RDZV_CONF="timeout=9")) == ([], ["timeout=1800"], ["timeout=9"])


def test_experiment_without_gpus_runs_one_process_per_node():
    [main] = template(nodes=2, gpus=0)["trialSpec"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "PET_NPROC_PER_NODE", "value": "1"} in main["env"]


def test_experiment_with_several_nodes_has_a_directory_for_every_workers_events():
    pod = template(nodes=2)["trialSpec"]["spec"]["template"]["spec"]
    [main] = pod["containers"]
    assert {"name": "events", "mountPath": FOLDER} in main["volumeMounts"]
    assert TENSORBOARD_DIR.startswith(f"{FOLDER}/")  # Katib mounts its own volume below
    assert {"name": "events", "emptyDir": {}} in pod["volumes"]
    lines = template(nodes=2, collector=STDOUT)["trialSpec"]["spec"]["template"]["spec"]
    assert [each["name"] for each in lines["volumes"]] == ["dshm"]  # Katib mounts the same directory


def pytorch_job(**changes):
    return template(shape=PodShape(multi_node=PYTORCH_JOB), **changes)


def test_experiment_of_pytorch_jobs_has_a_master_and_equal_workers():
    found = pytorch_job(nodes=4)
    trial, job = found["trialSpec"], found["trialSpec"]["spec"]
    assert (trial["apiVersion"], trial["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert found["primaryContainerName"] == "pytorch"
    assert found["primaryPodLabels"] == {"training.kubeflow.org/job-role": "master"}
    assert found["successCondition"] == 'status.conditions.#(type=="Succeeded")#|#(status=="True")#'
    assert found["failureCondition"] == 'status.conditions.#(type=="Failed")#|#(status=="True")#'
    assert job["nprocPerNode"] == "4"
    replicas = job["pytorchReplicaSpecs"]
    assert {type_: each["replicas"] for type_, each in replicas.items()} == {"Master": 1, "Worker": 3}
    assert {each["restartPolicy"] for each in replicas.values()} == {"Never"}
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]


def test_experiment_of_pytorch_jobs_frees_gpus_and_keeps_the_failed_pod():
    """With a backoffLimit, the operator would delete the failed pod and its log, too."""
    policy = pytorch_job(nodes=4)["trialSpec"]["spec"]["runPolicy"]
    assert policy == {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": JOB_TTL}


def test_pods_of_a_pytorch_job_get_what_connects_them_from_the_operator():
    [pod] = {str(each) for each in pod_templates(pytorch_job(nodes=4, gpus=0)["trialSpec"])}
    assert "MASTER_ADDR" not in pod
    assert "PET_NNODES" not in pod
    assert "subdomain" not in pod
    assert "restartPolicy" not in pod
    assert f"'{MULTI_LABEL}': 'true'" in pod


def test_experiment_with_one_node_is_a_job_whatever_several_nodes_are():
    assert pytorch_job() == template()


def test_image_and_variables_are_set_in_all_pods_of_a_pytorch_job():
    made = experiment(replace(SPEC, nodes=2, shape=PodShape(multi_node=PYTORCH_JOB), env={"A": "1"}))
    made = with_variable(with_image(made, "repo@sha256:1"), "A", lambda value: f"{value}2")
    for pod in pod_templates(made["spec"]["trialTemplate"]["trialSpec"]):
        [main] = pod["spec"]["containers"]
        assert main["image"] == "repo@sha256:1"
        assert {"name": "A", "value": "12"} in main["env"]


def test_service_resolves_pods_that_are_not_ready():
    spec = service("sweeps")["spec"]
    assert spec == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {MULTI_LABEL: "true"},
    }


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("code", [0, 3])
def test_shell_of_a_worker_without_katibs_volume_keeps_output_and_exit_code(name, code, tmp_path):
    line = shell(f"echo loss=0.5; exit {code}", "", STDOUT, several=True)
    line = line.replace(FOLDER, str(tmp_path / "missing")).replace("k=/tmp", f"k={tmp_path}")
    done = subprocess.run([name, "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "loss=0.5\n")
    assert (tmp_path / "metrics.log").read_text() == "loss=0.5\n"


@pytest.mark.parametrize("name", SHELLS)
def test_shell_of_the_first_worker_writes_to_katibs_volume(name, tmp_path):
    line = shell("echo loss=0.5", "", STDOUT, several=True)
    line = line.replace(FOLDER, str(tmp_path))
    subprocess.run([name, "-c", line], capture_output=True, timeout=60, check=True)
    assert (tmp_path / "metrics.log").read_text() == "loss=0.5\n"


@pytest.mark.parametrize("name", SHELLS)
def test_shell_of_a_worker_that_cannot_write_the_metrics_file_still_trains(name, tmp_path):
    (tmp_path / "file").write_text("")
    collector = Collector(kind="File", path=str(tmp_path / "file/metrics.txt"))
    line = shell("echo trained", "", collector, several=True)
    done = subprocess.run([name, "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n")


@pytest.mark.parametrize("kind", [JOB, PYTORCH_JOB, TRAIN_JOB])
def test_open_experiment_with_several_nodes_is_recognized(kind):
    shape = PodShape(multi_node=kind)
    several = experiment(replace(SPEC, nodes=2, shape=shape))
    ended = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert is_open_with_several_nodes(several)
    assert not is_open_with_several_nodes({**several, "status": ended})
    assert not is_open_with_several_nodes(experiment(replace(SPEC, shape=shape)))
    assert not is_open_with_several_nodes({"spec": {}})
