"""`trials:` of the configuration, and the pods of an experiment."""

from dataclasses import replace

import pytest

from bot.core.errors import UserError
from bot.platform.config.policy import parse_config
from bot.platform.config.profiles import shaped
from bot.sweep.launch.plan import plan
from k8s.katib.pod_shape import PodShape, Volume
from k8s.trial_kinds import JOB, PYTORCH_JOB, TRAIN_JOB
from tests.bot.factories import ORDER, SETTINGS
from tests.cases import cases

REPOSITORIES = "repositories:\n  digits: {url: https://git.example/digits.git}\n"
TEXT = """\
trials:
  runtime_class: nvidia
  nodes: {pool: gpus, big: true, node-role.kubernetes.io/gpu: ""}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  cpu: 4
  memory: 32Gi
  volumes: [{claim: datasets, at: /data, read_only: true}, {claim: scratch, at: /scratch}]
  grace_seconds: 60
  user: 2001
"""
SHAPE = PodShape(
    runtime_class="nvidia",
    nodes={"pool": "gpus", "big": "true", "node-role.kubernetes.io/gpu": ""},
    tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
    cpu="4",
    memory="32Gi",
    volumes=(
        Volume(claim="datasets", at="/data", read_only=True),
        Volume(claim="scratch", at="/scratch", read_only=False),
    ),
    grace_seconds=60,
    user=2001,
)


def pod(shape):
    experiment = plan(replace(ORDER, shape=shape), SETTINGS).experiment
    return experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]


def test_pod_has_all_that_is_configured_and_nothing_else():
    assert parse_config(REPOSITORIES + TEXT, "c.yaml").trials == SHAPE
    assert parse_config(REPOSITORIES, "c.yaml").trials == PodShape()
    found = pod(SHAPE)
    [container] = found["containers"]
    assert found["runtimeClassName"] == "nvidia"
    assert container["securityContext"]["runAsUser"] == 2001
    assert found["terminationGracePeriodSeconds"] == 60
    assert found["nodeSelector"] == SHAPE.nodes
    assert found["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert container["resources"] == {
        "limits": {"nvidia.com/gpu": 1, "memory": "32Gi"},
        "requests": {"cpu": "4", "memory": "32Gi"},
    }
    claims = {v["name"]: v.get("persistentVolumeClaim", {}).get("claimName") for v in found["volumes"]}
    mounts = {m["mountPath"]: (claims[m["name"]], m.get("readOnly")) for m in container["volumeMounts"]}
    assert mounts == {
        "/dev/shm": (None, None),
        "/data": ("datasets", True),
        "/scratch": ("scratch", None),
    }
    assert not pod(PodShape()).keys() & {
        "runtimeClassName",
        "nodeSelector",
        "tolerations",
        "terminationGracePeriodSeconds",
    }


@cases(
    ("text", "expected"),
    [
        ("{gpu: 1}", "trials.gpu: unknown key"),
        ("{runtime_class: a b}", "trials.runtime_class: must be the name of a RuntimeClass"),
        ("{nodes: [a]}", "trials.nodes: must be a mapping"),
        ("{nodes: {a: [b]}}", "trials.nodes.a: must be text"),
        (
            "{tolerations: [{key: a, operator: exists}]}",
            '[0].operator: must be Exists or Equal; got "exists"',
        ),
        ("{tolerations: [{key: a, operator: Exists, value: b}]}", "value has no effect with operator Exists"),
        ("{tolerations: [{key: a, effect: Never}]}", "effect: must be NoSchedule, "),
        ("{multi_node: tpu-job}", 'multi_node: must be job, pytorchjob, or trainjob; got "tpu-job"'),
        ("{cpu: four}", 'trials.cpu: must be a Kubernetes quantity such as 4 or 32Gi; got "four"'),
        ("{memory: 32 GB}", 'trials.memory: must be a Kubernetes quantity such as 4 or 32Gi; got "32 GB"'),
        ("{grace_seconds: 100000}", "trials.grace_seconds: must be from 1 to 86,400; got 100000"),
        ("{user: -1}", "trials.user: must be from 0 to 2,147,483,647; got -1"),
        ("{user: 2147483648}", "got 2147483648"),
        ("{user: root}", 'trials.user: must be a number; got "root"'),
        ("{volumes: [{at: /data}]}", "trials.volumes[0]: missing key: claim"),
        ("{volumes: [{claim: a, at: data}]}", "trials.volumes[0].at: must be an absolute path such as /data"),
        ("{volumes: [{claim: A_b, at: /data}]}", "must be the name of a PersistentVolumeClaim"),
    ],
)
def test_read_trials_invalid_value_names_its_line(text, expected):
    with pytest.raises(UserError) as error:
        parse_config(f"{REPOSITORIES}trials: {text}\n", "c.yaml")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("text", "kind"), [("job", JOB), ("pytorchjob", PYTORCH_JOB), ("trainjob", TRAIN_JOB)]
)
def test_multi_node_chooses_the_kind_of_trials_of_several_nodes(text, kind):
    config = parse_config(
        f"{REPOSITORIES}trials: {{multi_node: {text}}}\nprofiles: {{a: {{gpus: 1}}}}", "c.yaml"
    )
    assert config.trials.multi_node is kind
    assert shaped(config.trials, config.profiles[0], 1).multi_node is kind
