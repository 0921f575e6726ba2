"""The whole experiment manifest, and recorded experiments and trials."""

import copy
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from k8s.engine import End, ExperimentState, TrialState
from k8s.katib.experiment import experiment, training_runtime
from k8s.katib.manifest import first_pod, ui_link, with_image
from k8s.katib.patches import (
    drain_experiment,
    kill_trial,
    pause_experiment,
    resume_experiment,
    stop_experiment,
)
from k8s.katib.pod_shape import PodShape
from k8s.katib.reader import Reader
from k8s.katib.spec import ExperimentSpec, Feasible
from k8s.katib.status import read_experiment, read_trial
from k8s.katib.training import Collector
from k8s.objects import Ref
from k8s.trial_kinds import PYTORCH_JOB, TRAIN_JOB
from tests.recordings.__init__ import FOLDER, body

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
FLAGS = "'--lr=${trialParameters.lr}' '--optimizer=${trialParameters.optimizer}'"
SPEC = ExperimentSpec(
    name="lr-brave-otter",
    namespace="sweeps",
    sweep="lr-brave-otter",
    labels={"sweepbot/owner": "U1"},
    annotations={"sweepbot/commit": "c" * 40},
    metric="val_loss",
    maximize=False,
    target=0.02,
    algorithm="random",
    parallel=2,
    max_trials=6,
    max_failed=3,
    trial_hours=None,
    parameters=(
        Feasible(
            name="lr", type="double", space={"min": "0.0001", "max": "0.1", "distribution": "logUniform"}
        ),
        Feasible(name="optimizer", type="categorical", space={"list": ["adam", "sgd"]}),
    ),
    command="python train.py --out $$HOME",
    arguments=FLAGS,
    image="registry:5000/sweepbot/digits@sha256:aa",
    gpus=4,
    env={"MLFLOW_TRACKING_URI": "http://mlflow"},
)


@pytest.mark.parametrize(
    ("gpus", "resources", "hidden"),
    [(0, {}, True), (1, {}, False), (0, {"rdma/hca": "1"}, True), (0, {"nvidia.com/gpu.shared": "1"}, False)],
)
def test_trial_without_gpus_hides_those_of_its_machine(gpus, resources, hidden):
    shape = PodShape(resources=resources)
    env = first_pod(experiment(replace(SPEC, gpus=gpus, shape=shape)))["containers"][0]["env"]
    assert ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in env) == hidden


def test_reader_is_a_sidecar_of_every_kind_of_trial_and_katib_adds_none():
    reader = Reader(image="reg/sweepbot@sha256:bb", katib="katib-db-manager.kubeflow:6789", rungs=(1, 3))
    spec = replace(SPEC, additional=("accuracy",), collector=Collector(kind="Push", reader=reader))
    made = experiment(spec)
    pod, folder = first_pod(made), "/var/log/katib/tfevent"
    assert made["spec"]["metricsCollectorSpec"] == {"collector": {"kind": "Push"}}
    label = "metadata.labels['{}']"
    index = "batch.kubernetes.io/job-completion-index"
    assert pod["initContainers"] == [
        {
            "name": "metrics-reader",
            "image": "reg/sweepbot@sha256:bb",
            "restartPolicy": "Always",
            "command": ["python", "-m", "reader", folder],
            "args": [
                *("--metric=val_loss", "--metric=accuracy", "--rungs=1,3"),
                *("--katib=katib-db-manager.kubeflow:6789", "--grace=30", "--ready=/state/ready"),
            ],
            "env": [
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": label.format(key)}}}
                for name, key in (("TRIAL", "katib.kubeflow.org/trial"), ("WORKER", index))
            ],
            "startupProbe": {
                "exec": {"command": ["test", "-f", "/state/ready"]},
                "periodSeconds": 1,
                "failureThreshold": 120,
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "5m", "memory": "24Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "readOnlyRootFilesystem": True,
            },
            "volumeMounts": [
                {"name": "events", "mountPath": folder, "readOnly": True},
                {"name": "reader-state", "mountPath": "/state"},
            ],
        }
    ]
    main = pod["containers"][0]
    assert {"name": "events", "mountPath": folder} in main["volumeMounts"]
    assert [volume for volume in pod["volumes"] if volume["name"] != "dshm"] == [
        {"name": "events", "emptyDir": {}},
        {"name": "reader-state", "emptyDir": {}},
    ]
    assert "sleep" not in main["args"][0]
    pytorch = replace(spec, nodes=2, shape=PodShape(multi_node=PYTORCH_JOB, grace_seconds=90))
    [sidecar] = first_pod(experiment(pytorch))["initContainers"]
    assert "--grace=90" in sidecar["args"]
    assert "training.kubeflow.org/replica-type" in sidecar["env"][1]["valueFrom"]["fieldRef"]["fieldPath"]
    runtime = training_runtime(replace(spec, nodes=2, shape=PodShape(multi_node=TRAIN_JOB)))
    assert first_pod(runtime)["initContainers"] == pod["initContainers"]


def test_experiment_has_the_expected_manifest():
    ours = {"app.kubernetes.io/managed-by": "sweepbot", "sweepbot/sweep": "lr-brave-otter"}
    command = f"( python train.py --out $$HOME {FLAGS} )"
    trap = "trap 'kill -TERM $p; wait $p; exit 143' TERM"
    left = "IFS=. read n _ < /proc/uptime; w=$((b + ${SWEEPBOT_COLLECTOR_SECONDS:-60} - n))"
    end = f"wait $p && trap - TERM && {{ {left}; [ $w -le 0 ] || sleep $w; }}"
    shell = f"{{ IFS=. read b _ < /proc/uptime; {command} & p=$!; {trap}; {end}; }}"
    assert experiment(SPEC) == {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {
            "name": "lr-brave-otter",
            "namespace": "sweeps",
            "labels": {**ours, "sweepbot/owner": "U1"},
            "annotations": {"sweepbot/commit": "c" * 40},
        },
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "val_loss", "goal": 0.02},
            "algorithm": {"algorithmName": "random"},
            "parallelTrialCount": 2,
            "maxTrialCount": 6,
            "maxFailedTrialCount": 3,
            "resumePolicy": "LongRunning",
            "parameters": [
                {
                    "name": "lr",
                    "parameterType": "double",
                    "feasibleSpace": {"min": "0.0001", "max": "0.1", "distribution": "logUniform"},
                },
                {
                    "name": "optimizer",
                    "parameterType": "categorical",
                    "feasibleSpace": {"list": ["adam", "sgd"]},
                },
            ],
            "metricsCollectorSpec": {
                "collector": {"kind": "TensorFlowEvent"},
                "source": {"fileSystemPath": {"kind": "Directory", "path": "/var/log/katib/tfevent/"}},
            },
            "trialTemplate": {
                "retain": True,
                "primaryContainerName": "main",
                "trialParameters": [
                    {"name": "lr", "reference": "lr"},
                    {"name": "optimizer", "reference": "optimizer"},
                    {"name": "trialName", "reference": "${trialSpec.Name}"},
                ],
                "trialSpec": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"labels": ours},
                    "spec": {
                        "backoffLimit": 0,
                        "ttlSecondsAfterFinished": 604800,
                        "podFailurePolicy": {
                            "rules": [
                                {
                                    "action": "Ignore",
                                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                                }
                            ]
                        },
                        "template": {
                            "metadata": {"labels": ours | {"sidecar.istio.io/inject": "false"}},
                            "spec": {
                                "restartPolicy": "Never",
                                "automountServiceAccountToken": False,
                                "enableServiceLinks": False,
                                "containers": [
                                    {
                                        "name": "main",
                                        "image": "registry:5000/sweepbot/digits@sha256:aa",
                                        "command": ["sh", "-c"],
                                        "args": [shell],
                                        "env": [
                                            {"name": "HOME", "value": "/tmp"},
                                            {"name": "USER", "value": "trial"},
                                            {"name": "MLFLOW_TRACKING_URI", "value": "http://mlflow"},
                                        ],
                                        "securityContext": {
                                            "allowPrivilegeEscalation": False,
                                            "capabilities": {"drop": ["ALL"]},
                                            "seccompProfile": {"type": "RuntimeDefault"},
                                            "runAsNonRoot": True,
                                            "runAsUser": 1000,
                                            "runAsGroup": 1000,
                                        },
                                        "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
                                        "resources": {"limits": {"nvidia.com/gpu": 4}},
                                    }
                                ],
                                "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
                            },
                        },
                    },
                },
            },
        },
    }


def test_experiment_runs_as_root_only_if_configured_and_without_privileges():
    made = experiment(replace(SPEC, shape=PodShape(user=0)))
    pod = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert [variable["name"] for variable in pod["containers"][0]["env"]] == ["MLFLOW_TRACKING_URI"]
    assert "securityContext" not in pod, "it would be the collector's, too, which is Katib's"


def test_experiment_settings_are_strings():
    spec = replace(SPEC, algorithm="tpe", settings={"gamma": "0.25", "random_state": "1"})
    assert experiment(spec)["spec"]["algorithm"] == {
        "algorithmName": "tpe",
        "algorithmSettings": [{"name": "gamma", "value": "0.25"}, {"name": "random_state", "value": "1"}],
    }


def test_with_image_leaves_the_plan_unchanged():
    plan = experiment(SPEC)
    before = copy.deepcopy(plan)
    made = with_image(plan, "registry:5000/x@sha256:bb")
    pod = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry:5000/x@sha256:bb"
    assert plan == before


@pytest.mark.parametrize(
    ("recording", "state", "end"),
    [
        ("13-experiment-final", ExperimentState.SUCCEEDED, End.ALL_TRIALS),
        ("14-experiment-goal-reached", ExperimentState.SUCCEEDED, End.TARGET),
        ("15-experiment-failed", ExperimentState.FAILED, End.TOO_MANY_FAILED),
        ("14-experiment-backoff6-still-running", ExperimentState.RUNNING, End.NONE),
        ("katib/06-LongRunning-after-extend", ExperimentState.SUCCEEDED, End.ALL_TRIALS),
    ],
)
def test_read_experiment_parses_recordings(recording, state, end):
    found = read_experiment(body(recording))
    assert (found.state, found.end) == (state, end)


def test_read_experiment_without_status_is_running():
    obj = body("13-experiment-final")
    del obj["status"]
    assert read_experiment(obj).state is ExperimentState.RUNNING


@pytest.mark.parametrize(
    ("recording", "state", "value"),
    [
        ("13-trials", TrialState.SUCCEEDED, 0.31),
        ("15-trials-metrics-unavailable", TrialState.NO_METRICS, None),
        ("15-trials-failed", TrialState.FAILED, None),
    ],
)
def test_read_trial_parses_recordings(recording, state, value):
    trials = [read_trial(t, {"loss": "min"}) for t in body(recording)["items"]]
    assert {(t.state, t.value) for t in trials} == {(state, value)}
    assert all(set(t.parameters) == {"lr", "momentum"} for t in trials)


def test_best_value_of_a_trial_follows_the_goal():
    trial = body("13-trials")["items"][0]
    assert read_trial(trial, {"loss": "max"}).value == 0.9


def test_nan_is_no_value():
    trial = body("13-trials")["items"][0]
    trial["status"]["observation"]["metrics"][0]["min"] = "NaN"
    assert read_trial(trial, {"loss": "min"}).value is None


def test_kill_patch_puts_killed_first_and_running_false():
    """The order and the fields of the patch that the real Katib took (katib/02-A1)."""
    trial = body("13-trials")["items"][0]
    trial["status"]["conditions"] = [
        {"type": "Created", "status": "True", "reason": "TrialCreated", "message": "Trial is created"},
        {"type": "Running", "status": "True", "reason": "TrialRunning", "message": "Trial is running"},
    ]
    patch = kill_trial(trial, "cancelled", NOW)
    conditions = patch["status"]["conditions"]
    assert patch["metadata"] == {"resourceVersion": trial["metadata"]["resourceVersion"]}
    assert [(c["type"], c["status"]) for c in conditions] == [
        ("Killed", "True"),
        ("Created", "True"),
        ("Running", "False"),
    ]
    assert conditions[0]["lastTransitionTime"] == conditions[0]["lastUpdateTime"] == "2026-11-21T14:00:00Z"
    assert not read_trial(trial, {"loss": "min"}).killed
    trial["status"]["conditions"] = conditions
    killed = read_trial(trial, {"loss": "min"})
    assert (killed.state, killed.killed) == (TrialState.KILLED, True)
    trial["status"]["conditions"][0]["reason"] = "SweepbotNotStarted"
    never = read_trial(trial, {"loss": "min"})
    assert (never.state, never.killed) == (TrialState.NOT_STARTED, True)


def test_close_patch_puts_failed_last_and_a_completion_time():
    """As in katib/04-cancel-A, which the real Katib never overwrote."""
    obj = body("14-experiment-backoff6-still-running")
    patch = stop_experiment(obj, "Sweepbot: cancelled", NOW)
    kinds = [(c["type"], c["status"]) for c in patch["status"]["conditions"]]
    assert kinds[-1] == ("Failed", "True")
    assert ("Running", "False") in kinds
    assert patch["status"]["completionTime"] == "2026-11-21T14:00:00Z"
    drained = drain_experiment(obj, "Sweepbot: drained", NOW)
    done = read_experiment(obj | {"status": obj["status"] | drained["status"]})
    assert (done.state, done.end) == (ExperimentState.SUCCEEDED, End.DRAINED)


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def steady(patch):
    """Return the conditions of a patch without times and our own words."""
    return [(each["type"], each["status"]) for each in patch["status"]["conditions"]]


def test_pause_and_resume_patches_have_the_recorded_conditions():
    """Recorded: Katib stopped starting trials, and later continued until all trials were done."""
    paused, resumed = (load(f"katib/04-drain4-{name}") for name in ("A", "C-undrain"))
    before = {"metadata": {"resourceVersion": "1"}, "status": resumed["body"]["status"]}
    pause = pause_experiment(before, NOW)
    assert steady(pause) == steady(paused["request_body"])
    assert pause["status"].keys() == paused["request_body"]["status"].keys()
    after = {"metadata": {"resourceVersion": "2"}, "status": pause["status"]}
    resume = resume_experiment(after, NOW)
    assert steady(resume) == steady(resumed["request_body"])
    assert resume["status"].keys() == resumed["request_body"]["status"].keys()
    assert [patch["metadata"] for patch in (pause, resume)] == [
        {"resourceVersion": "1"},
        {"resourceVersion": "2"},
    ]


def test_katib_link_has_the_namespace_before_the_name():
    ref = Ref("Experiment", "sweeps", "lr-brave-otter")
    assert ui_link("https://kf", ref) == "https://kf/katib/experiment/sweeps/lr-brave-otter"
