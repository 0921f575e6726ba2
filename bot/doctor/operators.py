"""Check what trials as PyTorchJobs or TrainJobs need: their operator, and the settings of Katib and Kueue.

Katib and Kueue read their ConfigMaps at start, and ignore kinds that aren't named there: a trial's result is
then never seen, or it starts without quota.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from bot.config.policy import Config
from bot.doctor.findings import Finding, broken, ok, warning
from bot.doctor.probe_cluster import GRANT_READ
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Manifest, Ref
from k8s.trial_kinds import PYTORCH_JOB, TRAIN_JOB, TrialKind

TRAIN_JOBS = "trainjobs.trainer.kubeflow.org"  # a CustomResourceDefinition
KATIB, KUEUE = "katib-controller", "kueue-controller-manager"  # Deployments
KATIB_CONFIG, KUEUE_CONFIG = "katib-config", "kueue-manager-config"  # ConfigMaps in their namespaces


# The field of a TrainJob's spec in which Kueue sets node selectors and tolerations, by the first version of
# Kueue that uses it (pkg/controller/jobs/trainjob). Each Trainer has one; the API server drops the others.
KUEUE_FIELDS = {
    (0, 17, 0): "runtimePatches",
    (0, 14, 5): "podTemplateOverrides",
    (0, 14, 0): "podSpecOverrides",
}
VERSION = r":v([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})"
KUEUE_IMAGE, KATIB_IMAGE = re.compile(f"kueue{VERSION}"), re.compile(f"katib-controller{VERSION}")
FITTING = (
    "install versions that fit: Kueue 0.14.0 to 0.14.4 with Trainer 2.0, 0.14.5 to 0.16 with 2.1, "
    "0.17 or newer with 2.2 or newer"
)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a kind of trials needs in the cluster."""

    kind: TrialKind
    version: str  # of the operator, for users
    crds: Mapping[str, str]  # served version by name
    deployments: tuple[str, ...]
    trial_resource: str  # in Katib's settings
    framework: str  # in Kueue's settings
    katib: tuple[int, ...] = ()  # its first version with permissions for the kind

    @property
    def check(self) -> str:
        return f"{self.kind.kind}s"


NEEDS = {
    PYTORCH_JOB: Needs(
        kind=PYTORCH_JOB,
        version="Kubeflow's Training Operator v1",
        crds={"pytorchjobs.kubeflow.org": "v1"},
        deployments=("training-operator",),
        trial_resource="PyTorchJob.v1.kubeflow.org",
        framework="kubeflow.org/pytorchjob",
    ),
    TRAIN_JOB: Needs(
        kind=TRAIN_JOB,
        version="Kubeflow Trainer 2",
        crds={
            TRAIN_JOBS: "v1alpha1",
            "trainingruntimes.trainer.kubeflow.org": "v1alpha1",
            "jobsets.jobset.x-k8s.io": "v1alpha2",
        },
        deployments=("kubeflow-trainer-controller-manager", "jobset-controller-manager"),
        trial_resource="TrainJob.v1alpha1.trainer.kubeflow.org",
        framework="trainer.kubeflow.org/trainjob",
        katib=(0, 19, 0),
    ),
}


def check_name(config: Config) -> str:
    return f"{config.trials.multi_node.kind}s"


async def operators(cluster: KubernetesClient, config: Config) -> list[Finding]:
    """Return no findings unless trials need an operator. Raises ApiError, UnreachableError."""
    needs = NEEDS.get(config.trials.multi_node)
    if needs is None:
        return []
    fields = set[str]()
    for name, version in needs.crds.items():
        crd = await cluster.get(Ref("CustomResourceDefinition", "", name))
        fields |= _fields_of_spec(crd, version) if name == TRAIN_JOBS else set()
        if not _serves(crd, version):
            what = f"{name.partition('.')[2]}/{version} not served; sweeps with nodes= are refused"
            fix = f"install {needs.version}: docs/machines.md, or set trials.multi_node: job"
            return [broken(needs.check, what, fix)]
    deployments = {each["metadata"]["name"]: each for each in await cluster.list("Deployment", "")}
    found = [each for name in needs.deployments for each in operator(needs, name, deployments.get(name))]
    found += await _katib(cluster, needs, deployments.get(KATIB))
    if config.queueing.queues or any(team.queue for team in config.teams):
        found += await _kueue(cluster, needs, deployments.get(KUEUE))
        found += kueue_fits(needs, fields, deployments.get(KUEUE))
    return found or [ok(needs.check, "served, and watched by Katib")]


def _serves(crd: Manifest | None, version: str) -> bool:
    versions = crd["spec"].get("versions", []) if crd else []
    return any(each["name"] == version and each.get("served") for each in versions)


def _fields_of_spec(crd: Manifest | None, version: str) -> set[str]:
    """Return the fields of the kind's spec; none if its schema is unknown."""
    versions = crd["spec"].get("versions", []) if crd else []
    schema: Manifest = next((each.get("schema", {}) for each in versions if each["name"] == version), {})
    found = schema.get("openAPIV3Schema", {}).get("properties", {}).get("spec", {}).get("properties", {})
    return set(found)


def kueue_fits(needs: Needs, fields: Collection[str], controller: Manifest | None) -> list[Finding]:
    """Compare Kueue with Trainer. `fields`: of a TrainJob's spec. Unknown versions aren't reported."""
    version = _version(controller, KUEUE_IMAGE) if fields else ()
    used = next((field for first, field in KUEUE_FIELDS.items() if version >= first), "")
    if not used or used in fields:
        return []
    what = f"Kueue {_shown(version)} sets {used} of TrainJobs, which this Trainer doesn't have"
    return [broken(needs.check, f"{what}: trials ignore the nodes of their flavor, or never start", FITTING)]


def _version(deployment: Manifest | None, image: re.Pattern[str]) -> tuple[int, ...]:
    """Return the version in the tag of a Deployment's image; () if it is unknown."""
    containers = deployment["spec"]["template"]["spec"]["containers"] if deployment else []
    found = next(filter(None, (image.search(each["image"]) for each in containers)), None)
    return tuple(map(int, found.groups())) if found else ()


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def operator(needs: Needs, name: str, deployment: Manifest | None) -> list[Finding]:
    """Evaluate an operator's Deployment. It can have another name, so None is only a warning."""
    if deployment is None:
        look = f"kubectl get deployments -A | grep {name}"
        return [warning(needs.check, f"Deployment {name} not found; without it, trials get no pods", look)]
    if not deployment.get("status", {}).get("readyReplicas"):
        namespace = deployment["metadata"]["namespace"]
        look = f"kubectl -n {namespace} describe deployment {name}"
        return [broken(needs.check, f"Deployment {name} in {namespace} isn't ready", look)]
    return []


async def _katib(cluster: KubernetesClient, needs: Needs, controller: Manifest | None) -> list[Finding]:
    if controller is None:
        return []  # reported with Katib's Deployments
    if () < (version := _version(controller, KATIB_IMAGE)) < needs.katib:
        # Not to be added to its settings: it would stop at a kind that it can't list.
        what = f"Katib {_shown(version)} has no permission for {needs.check}"
        return [broken(needs.check, what, f"upgrade Katib to {_shown(needs.katib)} or newer")]
    namespace = controller["metadata"]["namespace"]
    settings = await _settings(cluster, needs.check, namespace, KATIB_CONFIG)
    if isinstance(settings, Finding):
        return [settings]
    if needs.trial_resource in _texts(settings, "init", "controller", "trialResources"):
        return []
    what = f"trialResources in {KATIB_CONFIG} lacks {needs.trial_resource}; Katib never sees these trials end"
    fix = f"kubectl -n {namespace} edit configmap {KATIB_CONFIG}; then {_restart(namespace, KATIB)}"
    return [broken(needs.check, what, fix)]


async def _kueue(cluster: KubernetesClient, needs: Needs, controller: Manifest | None) -> list[Finding]:
    if controller is None:
        return []  # reported with the queues
    namespace = controller["metadata"]["namespace"]
    settings = await _settings(cluster, needs.check, namespace, KUEUE_CONFIG)
    if isinstance(settings, Finding):
        return [settings]
    if needs.framework in _texts(settings, "integrations", "frameworks"):
        return []
    what = f"integrations.frameworks of Kueue lacks {needs.framework}; these trials start without quota"
    fix = f"kubectl -n {namespace} edit configmap {KUEUE_CONFIG}; then {_restart(namespace, KUEUE)}"
    return [broken(needs.check, what, fix)]


def _restart(namespace: str, deployment: str) -> str:
    return f"kubectl -n {namespace} rollout restart deployment {deployment}"


async def _settings(
    cluster: KubernetesClient, check: str, namespace: str, name: str
) -> dict[str, Any] | Finding:
    """Return the YAML in a ConfigMap with one file; a warning if it can't be read."""
    try:
        found = await cluster.get(Ref("ConfigMap", namespace, name))
    except ApiError as error:
        if error.status != 403:
            raise
        return warning(check, f"ConfigMap {name} unknown: no permission", GRANT_READ)
    look = f"kubectl -n {namespace} get configmap {name} -o yaml"
    if found is None:
        return warning(check, f"ConfigMap {name} in {namespace} not found", look)
    text = next(iter((found.get("data") or {}).values()), "")
    try:
        settings = yaml.safe_load(text)
    except yaml.YAMLError:
        settings = None
    if not isinstance(settings, dict):
        return warning(check, f"ConfigMap {name} in {namespace} can't be read", look)
    return settings


def _texts(settings: Any, *path: str) -> list[Any]:
    """Return the list at this path; [] if there is none."""
    for key in path:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings if isinstance(settings, list) else []
