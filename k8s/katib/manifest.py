"""Read and change the manifest of an experiment that `experiment` built: image, variables, name, or counts,
such as only the first trial; link it in Katib's UI.

The spec of a TrainJob's pods isn't in the experiment, but in the TrainingRuntime (k8s.katib.train_job).
"""

from collections.abc import Callable, Mapping
from copy import deepcopy

from k8s.objects import Manifest, Ref
from k8s.trial_kinds import TRAIN_JOB, TRIAL_KINDS, TrialKind, pod_templates

KUBERNETES_GRACE = 30  # seconds from SIGTERM to SIGKILL if the pod doesn't set it


def ui_link(base: str, experiment: Ref) -> str:
    """Return the URL of the experiment in Katib's UI (its app-routing.module.ts)."""
    return f"{base}/katib/experiment/{experiment.namespace}/{experiment.name}"


def kind_of_trials(experiment: Manifest) -> TrialKind:
    return TRIAL_KINDS[_job(experiment)["kind"]]


def is_pushed(experiment: Manifest) -> bool:
    """Return whether the trials report their metrics themselves."""
    collector = experiment["spec"].get("metricsCollectorSpec", {}).get("collector", {})
    return bool(collector.get("kind") == "Push")


def variables_of(experiment: Manifest) -> Manifest:
    """Return the environment variables that an experiment of TrainJobs sets."""
    found: Manifest = _job(experiment)["spec"]["trainer"]["env"]
    return found


def grace_of(manifest: Manifest) -> int:
    """Return the seconds that a trial's pod has to terminate. `manifest`: as of `first_pod`."""
    pod = first_pod(manifest)
    return int(pod.get("terminationGracePeriodSeconds", KUBERNETES_GRACE))


def first_pod(manifest: Manifest) -> Manifest:
    """Return the spec of a trial's pod; of several, the first: they request the same.

    `manifest`: of a TrainingRuntime, or of an experiment without one.
    """
    found: Manifest = pod_templates(_job(manifest))[0]["spec"]
    return found


def main_container(manifest: Manifest) -> Manifest:
    """Return the container of the training in `first_pod`: Katib adds others only to the pods."""
    found: Manifest = first_pod(manifest)["containers"][0]
    return found


def _job(manifest: Manifest) -> Manifest:
    """Return the Job that an experiment makes of each trial, or that a TrainingRuntime describes."""
    spec = manifest["spec"]
    found: Manifest = (
        spec["trialTemplate"]["trialSpec"]
        if "trialTemplate" in spec
        else spec["template"]["spec"]["replicatedJobs"][0]["template"]
    )
    return found


def gated(manifest: Manifest) -> Manifest:
    """Return the experiment limited to its first trial; `patches.more_trials` raises the counts later."""
    counts = {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 1}
    return {**manifest, "spec": {**manifest["spec"], **counts}}


def limited(manifest: Manifest, total: int, parallel: int) -> Manifest:
    """Return the experiment with lower counts, as `patches.paced` has them."""
    spec = manifest["spec"]
    counts = {"maxTrialCount": total, "parallelTrialCount": min(parallel, spec["parallelTrialCount"])}
    kept = {name: each for name, each in spec.items() if name != "maxFailedTrialCount" or each <= total}
    return {**manifest, "spec": {**kept, **counts}}


def renamed(manifest: Manifest, name: str) -> Manifest:
    """Return the same experiment under another name; its trials then refer to a runtime of that name."""
    changed = deepcopy(manifest)
    changed["metadata"]["name"] = name
    job = _job(changed)
    if job["kind"] == TRAIN_JOB.kind:
        job["spec"]["runtimeRef"]["name"] = name
    return changed


def with_annotations(manifest: Manifest, annotations: dict[str, str]) -> Manifest:
    """Return the experiment with more annotations."""
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "annotations": meta.get("annotations", {}) | annotations}}


def with_image(manifest: Manifest, image: str) -> Manifest:
    """Return the experiment with the image by digest."""
    return _with_main(manifest, lambda main: {**main, "image": image})


def with_values(manifest: Manifest, parameter: str, values: Mapping[str, str]) -> Manifest:
    """Return the experiment with other words for values of one parameter, which is a list."""
    if not values:
        return manifest
    changed = deepcopy(manifest)
    for each in changed["spec"]["parameters"]:
        if each["name"] == parameter:
            each["feasibleSpace"]["list"] = [values[word] for word in each["feasibleSpace"]["list"]]
    return changed


def with_variable(manifest: Manifest, name: str, change: Callable[[str], str]) -> Manifest:
    """Return the experiment with one environment variable of the training changed, if it has it."""

    def changed(main: Manifest) -> Manifest:
        env = [{**e, "value": change(e["value"])} if e["name"] == name else e for e in main.get("env", [])]
        return {**main, "env": env}

    return _with_main(manifest, changed)


def _with_main(manifest: Manifest, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Return the experiment with the training's container changed, in all of a trial's pods."""
    changed = deepcopy(manifest)
    job = _job(changed)
    if job["kind"] == TRAIN_JOB.kind:
        job["spec"]["trainer"] = change(job["spec"]["trainer"])  # image and env, as of a container
        return changed
    name = changed["spec"]["trialTemplate"]["primaryContainerName"]
    for pod in (each["spec"] for each in pod_templates(job)):
        pod["containers"] = [change(c) if c["name"] == name else c for c in pod["containers"]]
    return changed
