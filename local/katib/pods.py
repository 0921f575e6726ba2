"""Katib's webhook on Pods: labels for a trial's, a marker behind its command, a collector beside it."""

from pathlib import PurePosixPath

from local.katib.webhooks import denied
from local.kubernetes.kinds import Object, clone
from local.kubernetes.store import Store

TRIAL = "katib.kubeflow.org/trial"
IMAGES = "ghcr.io/kubeflow/katib"
REQUESTS = {"cpu": "50m", "ephemeral-storage": "500Mi", "memory": "10Mi"}
# Recorded where Katib ran outside the cluster; inside it would ask the image's registry for the entrypoint.
NO_COMMAND = (
    "Failed to create k8schain: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST "
    "and KUBERNETES_SERVICE_PORT must be defined"
)


def admit(store: Store, pod: Object) -> Object:
    """The pod as it runs; untouched unless a Trial owns its Job. Raises Refused (400)."""
    trial = _trial_of(store, pod)
    if trial is None or "uid" in pod["metadata"]:
        return pod
    new, spec = clone(pod), trial["spec"]
    labels = new["metadata"].setdefault("labels", {})
    labels |= {**trial["metadata"]["labels"], TRIAL: trial["metadata"]["name"]}
    containers = new["spec"]["containers"]
    main = next((one for one in containers if one["name"] == spec["primaryContainerName"]), None)
    if main is None:
        why = f"Unable to find primary container {spec['primaryContainerName']} in mutated pod containers"
        raise denied("mutator.pod", f"{why} {[one['name'] for one in containers]}")
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{TRIAL}']"}}
    main.setdefault("env", []).append({"name": "KATIB_TRIAL_NAME", "valueFrom": source})
    if spec["metricsCollector"]["collector"]["kind"] != "Push":
        _collect(new, main, trial)
    return new


def _trial_of(store: Store, pod: Object) -> Object | None:
    meta = pod["metadata"]
    for owner in meta.get("ownerReferences", []):
        job = store.get("Job", meta["namespace"], owner["name"]) if owner["kind"] == "Job" else None
        owners = job["metadata"].get("ownerReferences", []) if job else []
        if any(one["kind"] == "Trial" for one in owners):
            return store.get("Trial", meta["namespace"], owner["name"])
    return None


def _collect(pod: Object, main: Object, trial: Object) -> None:
    collector, objective = trial["spec"]["metricsCollector"], trial["spec"]["objective"]
    events = collector["collector"]["kind"] == "TensorFlowEvent"
    folder = collector["source"]["fileSystemPath"]["path"] if events else "/var/log/katib"
    place = folder if events else f"{folder}/metrics.log"
    metrics = ";".join([objective["objectiveMetricName"], *objective.get("additionalMetricNames", [])])
    args = ["-t", trial["metadata"]["name"], "-m", metrics, "-o-type", objective["type"]]
    args += ["-s-db", "katib-db-manager.kubeflow:6789", "-path", place]
    args += [] if events else ["-format", "TEXT"]
    mount = {"name": "metrics-volume", "mountPath": folder}
    sidecar = {
        "name": "metrics-collector" if events else "metrics-logger-and-collector",
        "image": f"{IMAGES}/{'tfevent' if events else 'file'}-metrics-collector:latest",
        "args": args,
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "limits": {"cpu": "500m", "ephemeral-storage": "5Gi", "memory": "1Gi" if events else "100Mi"},
            "requests": dict(REQUESTS),
        },
        "volumeMounts": [mount],
    }
    _wrap(main, [] if events else [f"1>{place} 2>&1"], folder)
    main.setdefault("volumeMounts", []).append(dict(mount))
    pod["spec"]["containers"].append(sidecar)
    pod["spec"].setdefault("volumes", []).append({"name": "metrics-volume", "emptyDir": {}})
    pod["spec"]["shareProcessNamespace"] = True


def _wrap(main: Object, redirect: list[str], folder: str) -> None:
    """Words are joined by one space, unquoted; Kubernetes makes `$$` of `$$$$`, sh its process id of that."""
    if not main.get("command"):
        raise denied("mutator.pod", NO_COMMAND)
    words = [*main["command"], *main.get("args", [])]
    shell = words[:2] if words[:2] in (["sh", "-c"], ["bash", "-c"]) else []
    marker = str(PurePosixPath(folder) / "$$$$.pid")
    main["command"] = shell or ["sh", "-c"]
    main["args"] = [" ".join([*words[len(shell) :], *redirect, "&& echo completed >", marker])]
