"""Katib's webhook on pods, beside recorded pods: labels, the marker in the command, and the collector."""

import copy
import re

import pytest

from local.kubernetes.apiserver.store import Refused


def pod_of(world, trial):
    """The pod as the Job controller creates it."""
    job = world.store.get("Job", "kaniko", trial)
    template = copy.deepcopy(job["spec"]["template"])
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": trial, "uid": job["metadata"]["uid"]}
    meta = template.get("metadata", {}) | {
        "name": f"{trial}-x",
        "namespace": "kaniko",
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def comparable(pod):
    """The fields that Katib's webhook sets, without those of other admission plugins and defaults."""
    containers = []
    for container in pod["spec"]["containers"]:
        kept = {key: container.get(key) for key in ("name", "image", "command", "args", "imagePullPolicy")}
        env = [
            (one["name"], one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"])
            for one in container.get("env", [])
        ]
        mounts = [
            (one["name"], one["mountPath"])
            for one in container["volumeMounts"]
            if "kube-api" not in one["name"]
        ]
        containers.append({**kept, "env": env, "mounts": mounts, "limits": container["resources"]["limits"]})
    volumes = [one for one in pod["spec"]["volumes"] if "kube-api" not in one["name"]]
    labels = {
        key: text
        for key, text in pod["metadata"]["labels"].items()
        if not re.search("job-name|controller-uid", key)
    }
    return {
        "containers": containers,
        "volumes": volumes,
        "labels": labels,
        "shared": pod["spec"]["shareProcessNamespace"],
    }


async def test_trial_pod_is_mutated_as_recorded(world):
    trial = world.recorded("katib/01-trial")["body"]
    trial["metadata"] = {key: trial["metadata"][key] for key in ("name", "namespace", "labels")}
    world.store.create(trial)
    await world.settle()
    pod = world.store.create(pod_of(world, "c1b-jd8wqr7q"))
    (recorded,) = world.recorded("katib/01-pod")["body"]["items"]
    assert comparable(pod) == comparable(recorded)


async def test_other_pods_are_not_mutated(world):
    spec = {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "build", "namespace": "kaniko"},
        "spec": spec,
    }
    assert len(world.store.create(pod)["spec"]["containers"]) == 1


async def with_main(world, **changes):
    body = world.recorded_experiment()
    main = body["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    main |= changes
    world.store.create(body)
    await world.settle()
    return world.trials()[0]


async def test_command_words_are_joined_without_quotes(world):
    trial = await with_main(world, command=["python", "-c", "print('a b')"], args=["${trialParameters.lr}"])
    main = world.store.create(pod_of(world, trial))["spec"]["containers"][0]
    given = world.status("sweep", "Suggestion")["suggestions"][0]["parameterAssignments"][0]["value"]
    script = f"python -c print('a b') {given} && echo completed > /var/log/katib/tfevent/$$$$.pid"
    assert (main["command"], main["args"]) == (["sh", "-c"], [script])


async def test_stdout_collector_redirects_the_output(world):
    world.store.create(world.recorded("13-201-create-defaulted-by-webhook")["request_body"])
    await world.settle()
    main, sidecar = world.store.create(pod_of(world, world.trials("kx")[0]))["spec"]["containers"]
    end = " 1>/var/log/katib/metrics.log 2>&1 && echo completed > /var/log/katib/$$$$.pid"
    assert main["args"][0].endswith(end)
    args = dict(zip(sidecar["args"][::2], sidecar["args"][1::2], strict=True))
    assert (sidecar["name"], args["-format"]) == ("metrics-logger-and-collector", "TEXT")


async def test_push_collector_leaves_command_and_containers(world):
    await world.experiment(metricsCollectorSpec={"collector": {"kind": "Push"}})
    (trial,) = world.trials()
    spec = world.store.create(pod_of(world, trial))["spec"]
    assert [one["name"] for one in spec["containers"]] == ["main"]
    assert "echo completed" not in spec["containers"][0]["args"][0]
    await world.job_ends(trial, ("Complete", "", ""))
    assert world.conditions(trial, "Trial")[-1][0] == "MetricsUnavailable"


async def test_pod_without_a_command_is_rejected_as_recorded(world):
    body = world.recorded_experiment()
    del body["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["command"]
    world.store.create(body)
    await world.settle()
    (trial,) = world.trials()
    with pytest.raises(
        Refused, match=r'^admission webhook "mutator.pod.katib.kubeflow.org" denied the request: Failed'
    ):
        world.store.create(pod_of(world, trial))
    assert world.conditions(trial, "Trial")[-1] == ("Running", "True", "TrialRunning")
