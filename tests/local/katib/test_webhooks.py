"""Katib's webhook on experiments: which fields and edits it rejects, with the recorded messages."""

import copy

import pytest

from local.kubernetes.apiserver.store import Refused


def intended(world, *path, value=None):
    """The intended experiment with one field changed or removed."""
    body = world.recorded_experiment()
    *above, last = path
    place = body["spec"]
    for key in above:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return body


CONTAINER = ("trialTemplate", "trialSpec", "spec", "template", "spec", "containers", 0)
REFUSED = [
    (
        ("objective", "type"),
        "best",
        'spec.objective.type: Invalid value: "best": must be minimize or maximize',
    ),
    (
        ("objective", "objectiveMetricName"),
        "",
        "spec.objective.objectiveMetricName: Required value: must be spec",
    ),
    (
        ("algorithm", "algorithmName"),
        "tpee",
        "failed to find suggestion config for algorithm: tpee in ConfigMap",
    ),
    (("parameters", 0, "parameterType"), "float", "parameterType: float is not supported"),
    (("parameters", 0, "feasibleSpace", "distribution"), "log", "distribution: log is not supported"),
    (
        ("parameters", 0, "feasibleSpace", "list"),
        ["1"],
        "feasibleSpace.list is not supported for parameterType: d",
    ),
    (
        ("parameters", 0, "feasibleSpace", "min"),
        None,
        "feasibleSpace.max or feasibleSpace.min must be specified",
    ),
    (
        ("parameters", 0, "feasibleSpace", "min"),
        0.1,
        "json: cannot unmarshal number into Go struct field Feas",
    ),
    (
        ("trialTemplate", "primaryContainerName"),
        None,
        "spec.trialTemplate.primaryContainerName: Required value",
    ),
    (
        ("trialTemplate", "trialParameters"),
        None,
        "spec.trialTemplate.trialParameters: Required value: must be",
    ),
    (("trialTemplate", "trialParameters", 0, "name"), "l{r", "name must not contain '{' or '}'"),
    (
        ("trialTemplate", "trialParameters", 1, "name"),
        "lr",
        "parameter name lr can't be duplicated in spec.trial",
    ),
    (
        ("trialTemplate", "trialParameters", 0, "reference"),
        "eta",
        "parameter reference eta does not exist in spec.p",
    ),
    (
        ("trialTemplate", "trialParameters", 1, "reference"),
        "${trialSpec.Uid}",
        "does not exist in spec.parameters",
    ),
    (
        ("trialTemplate", "trialSpec", "kind"),
        None,
        "APIVersion and Kind in spec.trialTemplate must be specified",
    ),
    (
        ("trialTemplate", "trialSpec", "spec", "retries"),
        3,
        "unable to convert: /spec/retries - 3 to Job, converted",
    ),
    (
        ("trialTemplate", "trialSpec", "spec", "backoffLimit"),
        "0",
        "invalid spec.trialTemplate: unable to convert",
    ),
    (
        (*CONTAINER, "comand"),
        ["sh"],
        "unable to convert: /spec/template/spec/containers/0/comand - [sh] to Job",
    ),
    (
        (*CONTAINER, "volumeMounts"),
        [{"name": "data", "mountPath": "/data", "readOnly": False}],
        "unable to convert: /spec/template/spec/containers/0/volumeMounts/0/readOnly - false to Job",
    ),
    ((*CONTAINER, "ports"), [], "unable to convert: /spec/template/spec/containers/0/ports - [] to Job"),
    ((*CONTAINER, "env", 0), {"name": "EMPTY", "value": ""}, "containers/0/env/0/value -  to Job"),
    (("metricsCollectorSpec", "collector", "kind"), "None", "invalid metrics collector kind: None"),
    (
        ("metricsCollectorSpec", "source", "fileSystemPath", "kind"),
        "File",
        "directory path where tensorflow event",
    ),
    (
        ("metricsCollectorSpec", "source", "fileSystemPath", "path"),
        "logs",
        "directory path where tensorflow event",
    ),
    (("algorithm", "algorithmName"), "hyperband", "the local Katib has no algorithm hyperband"),
    (
        ("algorithm", "algorithmSettings"),
        [{"name": "gamma", "value": 0.25}],
        "json: cannot unmarshal number into Go struct field AlgorithmSetting.spec.algorithm",
    ),
    (
        ("earlyStopping",),
        {"algorithmName": "best"},
        "failed to find early stopping config for algorithm: best",
    ),
    (
        ("trialTemplate", "trialSpec", "kind"),
        "TFJob",
        "the local Katib runs Jobs, PyTorchJobs, and TrainJobs only",
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
async def test_webhook_rejects_an_invalid_field_by_name(world, path, value, message):
    with pytest.raises(Refused) as refused:
        world.store.create(intended(world, *path, value=value))
    assert refused.value.code == 400
    assert message in refused.value.body["message"]
    assert "reason" not in refused.value.body


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("trialTemplate", "trialSpec", "metadata", "annotations"), {"a": "b"}),
        ((*CONTAINER, "resources", "limits", "cpu"), 2),
        (("parameters", 0, "feasibleSpace", "min"), "x"),
    ],
)
async def test_webhook_accepts_what_the_real_one_accepts(world, path, value):
    world.store.create(intended(world, *path, value=value))


EDITS = [
    ("katib/03-D0-patch-max-to-current", 3),
    ("katib/03-D2-patch-parallel-gt-max", 3),
    ("katib/03-D3-patch-zero", 3),
    ("katib/07-template-label-edit", 1),
    ("14-edit-running-objective", 1),
]


@pytest.mark.parametrize(("name", "trials"), EDITS)
async def test_webhook_rejects_edits_of_a_running_experiment_as_recorded(world, name, trials):
    recorded = world.recorded(name)
    await world.experiment(maxTrialCount=8, parallelTrialCount=trials)
    with pytest.raises(Refused) as refused:
        world.store.patch("Experiment", "kaniko", "sweep", recorded["request_body"])
    assert refused.value.body == recorded["body"]


async def test_webhook_accepts_only_annotations_of_a_finished_experiment(world):
    recorded = world.recorded("katib/06-Never-edit-max-same")
    await world.experiment(maxTrialCount=2, parallelTrialCount=2, maxFailedTrialCount=2)
    for trial in world.trials():
        await world.succeed(trial)
    edit = copy.deepcopy(recorded["request_body"]) | {"metadata": {"annotations": {"note": "kept"}}}
    edit["spec"]["maxFailedTrialCount"] = 1
    with pytest.raises(Refused) as refused:
        world.store.patch("Experiment", "kaniko", "sweep", edit)
    assert refused.value.body == recorded["body"]
    world.store.patch("Experiment", "kaniko", "sweep", {"metadata": {"annotations": {"note": "kept"}}})
    assert world.store.get("Experiment", "kaniko", "sweep")["metadata"]["annotations"]["note"] == "kept"
