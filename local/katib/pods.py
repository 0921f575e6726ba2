"""Katib's webhook on Pods: adds labels, a completion marker to the command, and a collector sidecar."""

from pathlib import PurePosixPath

from local.katib.early_stopping import COMMAND
from local.katib.webhooks import denied
from local.kubernetes.apiserver.kinds import Object, clone
from local.kubernetes.apiserver.store import Store

DEFAULT_FILE = "/var/log/katib/metrics.log"
# Name, image, and memory limit of the sidecar in the stock katib-config
LINES = ("metrics-logger-and-collector", "file-metrics-collector", "100Mi")
CONTAINERS = {
    "TensorFlowEvent": ("metrics-collector", "tfevent-metrics-collector", "1Gi"),
    "File": LINES,
    "StdOut": LINES,
}
TRIAL = "katib.kubeflow.org/trial"
ABOVE = ("Job", "PyTorchJob", "JobSet", "TrainJob")  # what katib-controller may read, of the owners of pods
# Recorded with Katib outside the cluster; inside, it would read the entrypoint from the image's registry.
NO_COMMAND = (
    "Failed to create k8schain: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST "
    "and KUBERNETES_SERVICE_PORT must be defined"
)


def admit(store: Store, pod: Object) -> Object:
    """Return the mutated pod; unchanged unless it belongs to a Trial. Raises Refused (400)."""
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
    if spec.get("primaryPodLabels", {}).items() <= labels.items():
        _collect(new, main, trial)
    return new


def _trial_of(store: Store, pod: Object) -> Object | None:
    """Search the owners of the pod's owners as well, as of a Job, its JobSet, and its TrainJob."""
    meta = pod["metadata"]
    for owner in meta.get("ownerReferences", []):
        above = (
            store.find(owner["kind"], meta["namespace"], owner["name"]) if owner["kind"] in ABOVE else None
        )
        if above and any(one["kind"] == "Trial" for one in above["metadata"].get("ownerReferences", [])):
            return store.find("Trial", meta["namespace"], owner["name"])
        if above and (found := _trial_of(store, above)):
            return found
    return None


def _collect(pod: Object, main: Object, trial: Object) -> None:
    collector, objective = trial["spec"]["metricsCollector"], trial["spec"]["objective"]
    kind = collector["collector"]["kind"]
    if kind == "Push":
        return
    path = DEFAULT_FILE if kind == "StdOut" else collector["source"]["fileSystemPath"]["path"]
    folder = path if kind == "TensorFlowEvent" else str(PurePosixPath(path).parent)
    names = [objective["objectiveMetricName"], *objective.get("additionalMetricNames", [])]
    args = ["-t", trial["metadata"]["name"], "-m", ";".join(names)]
    args += ["-o-type", objective["type"], "-s-db", "katib-db-manager.kubeflow:6789", "-path", path]
    args += _line_arguments(kind, collector.get("source", {}))
    rules = trial["spec"].get("earlyStoppingRules", [])
    for rule in rules:
        args += [
            "-stop-rule",
            ";".join(str(rule[key]) for key in ("name", "value", "comparison", "startStep")),
        ]
        args += ["-s-earlystop", f"{trial['metadata']['name']}.earlystopping:6788"]
    mount = {"name": "metrics-volume", "mountPath": folder}
    name, image, memory = CONTAINERS[kind]
    sidecar = {
        "name": name,
        "image": f"ghcr.io/kubeflow/katib/{image}:latest",
        "args": args,
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "limits": {"cpu": "500m", "ephemeral-storage": "5Gi", "memory": memory},
            "requests": {"cpu": "50m", "ephemeral-storage": "500Mi", "memory": "10Mi"},
        },
        "volumeMounts": [mount],
    }
    redirect = [f"1>{path} 2>&1"] if kind == "StdOut" else []
    _wrap(main, folder, *redirect, *([COMMAND.format(PurePosixPath(folder))] if rules else []))
    main.setdefault("volumeMounts", []).append(dict(mount))
    pod["spec"]["containers"].append(sidecar)
    pod["spec"].setdefault("volumes", []).append({"name": "metrics-volume", "emptyDir": {}})
    pod["spec"]["shareProcessNamespace"] = True


def _line_arguments(kind: str, source: Object) -> list[str]:
    filters = source.get("filter", {}).get("metricsFormat", [])
    form = source.get("fileSystemPath", {}).get("format", "TEXT")
    lines = [] if kind == "TensorFlowEvent" else ["-format", form]
    return [*(["-f", ";".join(filters)] if filters else []), *lines]


def _wrap(main: Object, folder: str, *more: str) -> None:
    """Join words with a space, unquoted. Kubernetes turns `$$$$` into `$$`, sh's process id."""
    if not main.get("command"):
        raise denied("mutator.pod", NO_COMMAND)
    words = [*main["command"], *main.get("args", [])]
    shell = words[:2] if words[:2] in (["sh", "-c"], ["bash", "-c"]) else []
    marker = str(PurePosixPath(folder) / "$$$$.pid")
    main["command"] = shell or ["sh", "-c"]
    main["args"] = [" ".join([*words[len(shell) :], *more, "&& echo completed >", marker])]
