"""The manifest of a trial on several machines, and its shell line with and without Katib's volume."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from k8s.katib.multi_node import MULTI_LABEL, SERVICE, service
from k8s.katib.spec import experiment
from k8s.katib.training import FOLDER, LOG, TENSORBOARD_DIR, Collector, shell
from k8s.trial_kinds import INDEX_LABEL
from tests.k8s.test_katib import SPEC

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
    assert "podFailurePolicy" not in job
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
    }


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
    line = line.replace("sleep 10", "sleep 0")
    done = subprocess.run([name, "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "loss=0.5\n")
    assert (tmp_path / "metrics.log").read_text() == "loss=0.5\n"


@pytest.mark.parametrize("name", SHELLS)
def test_shell_of_the_first_worker_writes_to_katibs_volume(name, tmp_path):
    line = shell("echo loss=0.5", "", STDOUT, several=True)
    line = line.replace(FOLDER, str(tmp_path)).replace("sleep 10", "sleep 0")
    subprocess.run([name, "-c", line], capture_output=True, timeout=60, check=True)
    assert (tmp_path / "metrics.log").read_text() == "loss=0.5\n"


@pytest.mark.parametrize("name", SHELLS)
def test_shell_of_a_worker_that_cannot_write_the_metrics_file_still_trains(name, tmp_path):
    (tmp_path / "file").write_text("")
    collector = Collector(kind="File", path=str(tmp_path / "file/metrics.txt"))
    line = shell("echo trained", "", collector, several=True).replace("sleep 10", "sleep 0")
    done = subprocess.run([name, "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n")
