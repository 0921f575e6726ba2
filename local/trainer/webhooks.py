"""The validating webhooks of TrainJobs and TrainingRuntimes [kubeflow/trainer v2.3.0, pkg/webhooks].

An update of a TrainJob is refused as well once its runtime is gone, even the garbage collector's removal of a
finalizer. What only the real Trainer has is refused here, in the local cluster's own words.
"""

import json
from collections.abc import Iterator

from local.kubernetes.apiserver.kinds import KINDS, Object, refusal
from local.kubernetes.apiserver.store import Store
from local.trainer.template import ANCESTOR, NODE, RESERVED

KUEUE = "kueue.x-k8s.io/manager"  # of the runtime patch that Kueue's webhook adds to each TrainJob
JOBS = "spec.template.spec.replicatedJobs"
RUNTIMES = {"TrainingRuntime", "ClusterTrainingRuntime"}


def reviewed_job(store: Store, job: Object) -> Object:
    """Return the TrainJob unchanged. Raises Refused 403."""
    _refuse("trainjob", [*_runtime_of(store, job), *_reserved(job["spec"]), *_local_job(job["spec"])])
    return job


def reviewed_runtime(runtime: Object) -> Object:
    """Return the TrainingRuntime unchanged. The real webhook validates no update. Raises Refused 403."""
    spec = runtime.get("spec", {})
    jobs = spec.get("template", {}).get("spec", {}).get("replicatedJobs", [])
    errors = [] if "uid" in runtime["metadata"] else [*_replicated_jobs(jobs)]
    _refuse("trainingruntime", [*errors, *_local_runtime(spec, jobs)])
    return runtime


def _refuse(resource: str, errors: list[str]) -> None:
    if errors:
        why = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        hook = f"validator.{resource}.trainer.kubeflow.org"
        raise refusal(403, f'admission webhook "{hook}" denied the request: {why}', "Forbidden")


def _runtime_of(store: Store, job: Object) -> Iterator[str]:
    """A cluster has no ClusterTrainingRuntimes here."""
    reference = job["spec"]["runtimeRef"]
    group, kind, name = (reference[key] for key in ("apiGroup", "kind", "name"))
    if kind not in RUNTIMES or group != KINDS["TrainingRuntime"].group:
        yield f"unsupported runtime: {kind}.{group}"
    elif kind != "TrainingRuntime" or not store.get(kind, job["metadata"]["namespace"], name):
        there = f"specified {kind[0].lower()}{kind[1:]} must be created before the TrainJob is created"
        shown = _json({"name": name, "apiGroup": group, "kind": kind})
        yield f'spec.runtimeRef: Invalid value: {shown}: {kind}.{group} "{name}" not found: {there}'


def _reserved(spec: Object) -> Iterator[str]:
    env = spec.get("trainer", {}).get("env", [])
    if found := sorted({each["name"] for each in env} & set(RESERVED)):
        why = f"must not have reserved envs, invalid envs configured: [{' '.join(found)}]"
        yield f"spec.trainer.env: Invalid value: {_json(env)}: {why}"


def _replicated_jobs(jobs: list[Object]) -> Iterator[str]:
    for index, job in enumerate(jobs):
        path, template = f"{JOBS}[{index}]", job["template"]
        if template.get("metadata", {}).get("labels", {}).get(ANCESTOR) != "trainer":
            continue
        if job["replicas"] != 1:
            yield f"{path}.replicas: Invalid value: {job['replicas']}: always must be 1"
        containers = template["spec"]["template"]["spec"]["containers"]
        if NODE not in [each["name"] for each in containers]:
            why = "must contain the required container for the ancestor: trainer"
            yield f"{path}.template.spec.template.spec.containers: Invalid value: {_json(containers)}: {why}"


def _local_job(spec: Object) -> Iterator[str]:
    """Refuse what the local Trainer doesn't do."""
    for field in ("initializer", "activeDeadlineSeconds"):
        if field in spec:
            yield f"spec.{field}: Forbidden: the local Trainer has no {field}"
    if spec["managedBy"].startswith("kueue"):
        yield "spec.managedBy: Forbidden: the local Kueue runs no TrainJob on another cluster"
    if any(each["manager"] != KUEUE for each in spec.get("runtimePatches", [])):
        yield "spec.runtimePatches: Forbidden: the local Trainer applies no patches"
    if spec.get("trainer", {}).get("numNodes") == 0:
        yield "spec.trainer.numNodes: Forbidden: the local Trainer runs at least 1 node"


def _local_runtime(spec: Object, jobs: list[Object]) -> Iterator[str]:
    if "podGroupPolicy" in spec:
        yield "spec.podGroupPolicy: Forbidden: the local Trainer has no podGroupPolicy"
    if spec.get("mlPolicy", {}).get("torch") != {}:
        yield "spec.mlPolicy: Forbidden: the local Trainer needs an empty spec.mlPolicy.torch"
    template = spec.get("template", {}).get("spec", {})
    for field in sorted(template.keys() - {"replicatedJobs", "ttlSecondsAfterFinished"}):
        yield f"spec.template.spec.{field}: Forbidden: the local JobSet has no {field}"
    labels = [each["template"].get("metadata", {}).get("labels", {}) for each in jobs]
    if [each["name"] for each in jobs] != [NODE] or labels[0].get(ANCESTOR) != "trainer":
        yield f"{JOBS}: Forbidden: the local Trainer needs one Job, {NODE}, labeled {ANCESTOR}: trainer"
    if any("dependsOn" in each for each in jobs):
        yield f"{JOBS}[0].dependsOn: Forbidden: the local JobSet has no dependsOn"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
