"""Check what trials need of Kubernetes' version (several nodes, the metrics reader), and PyTorchJobs or
TrainJobs of their operator and of the settings of Katib and Kueue.

Katib and Kueue read their ConfigMaps at start, and ignore kinds that aren't named there: a trial's result is
then never seen, or it starts without quota.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import GRANT_READ, list_controllers, serves
from bot.platform.config.policy import Config
from bot.platform.config.settings import Settings
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Manifest, Ref
from k8s.trial_kinds import JOB, PYTORCH_JOB, TRAIN_JOB

TRAIN_JOBS = "trainjobs.trainer.kubeflow.org"  # a CustomResourceDefinition

INDEX_LABEL_SINCE = (1, 28)  # the label of a pod's number, by which workers get their rank
SUCCESS_POLICY_SINCE = (1, 31)  # enabled by default
SIDECARS_SINCE = 1, 29  # of Kubernetes, enabled by default
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


@dataclass(frozen=True)
class Controller:
    """What watches kinds of trials that its settings name: the Deployment, and its ConfigMap beside it."""

    name: str
    settings: str
    path: tuple[str, ...]  # of the list of kinds
    lacks: str  # the text if that lacks {}


KATIB = Controller(
    "katib-controller",
    "katib-config",
    ("init", "controller", "trialResources"),
    "trialResources in katib-config lacks {}; Katib won't notice their end",
)
KUEUE = Controller(
    "kueue-controller-manager",
    "kueue-manager-config",
    ("integrations", "frameworks"),
    "integrations.frameworks of Kueue lacks {}; these trials start without quota",
)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a kind of trials needs in the cluster."""

    check: str
    version: str  # of the operator, for users
    crds: Mapping[str, str]  # served version by name
    deployments: tuple[str, ...]
    entries: Mapping[str, str]  # in the settings of each controller
    katib: tuple[int, ...] = ()  # its first version with permissions for the kind


NEEDS = {
    PYTORCH_JOB: Needs(
        check="PyTorchJobs",
        version="Kubeflow's Training Operator v1",
        crds={"pytorchjobs.kubeflow.org": "v1"},
        deployments=("training-operator",),
        entries={KATIB.name: "PyTorchJob.v1.kubeflow.org", KUEUE.name: "kubeflow.org/pytorchjob"},
    ),
    TRAIN_JOB: Needs(
        check="TrainJobs",
        version="Kubeflow Trainer 2",
        crds={
            TRAIN_JOBS: "v1alpha1",
            "trainingruntimes.trainer.kubeflow.org": "v1alpha1",
            "jobsets.jobset.x-k8s.io": "v1alpha2",
        },
        deployments=("kubeflow-trainer-controller-manager", "jobset-controller-manager"),
        entries={
            KATIB.name: "TrainJob.v1alpha1.trainer.kubeflow.org",
            KUEUE.name: "trainer.kubeflow.org/trainjob",
        },
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
        if not serves(crd, version):
            what = f"{name.partition('.')[2]}/{version} not served; sweeps with nodes= are refused"
            fix = f"install {needs.version}: docs/machines.md, or set trials.multi_node: job"
            return [broken(needs.check, what, fix)]
    deployments = {each["metadata"]["name"]: each for each in await list_controllers(cluster)}
    found = [each for name in needs.deployments for each in _operator(needs, name, deployments.get(name))]
    if katib := deployments.get(KATIB.name):  # else reported with Katib's Deployments
        old = _old_katib(needs, katib)
        found += old or await _unknown_to(cluster, KATIB, katib, needs)
    kueue = deployments.get(KUEUE.name)  # without it, reported with the queues
    if kueue and (config.queueing.queues or any(team.queue for team in config.teams)):
        found += await _unknown_to(cluster, KUEUE, kueue, needs)
        found += _kueue_fits(needs, fields, kueue)
    return found or [ok(needs.check, "served, and watched by Katib")]


def _old_katib(needs: Needs, controller: Manifest) -> list[Finding]:
    """Report a Katib without permission for the kind; added to its settings, that would stop it."""
    if not () < (version := _version(controller, KATIB_IMAGE)) < needs.katib:
        return []
    what = f"Katib {_shown(version)} has no permission for {needs.check}"
    return [broken(needs.check, what, f"upgrade Katib to {_shown(needs.katib)} or newer")]


def _fields_of_spec(crd: Manifest | None, version: str) -> set[str]:
    """Return the fields of the kind's spec; none if its schema is unknown."""
    versions = crd["spec"].get("versions", []) if crd else []
    schema: Manifest = next((each.get("schema", {}) for each in versions if each["name"] == version), {})
    found = schema.get("openAPIV3Schema", {}).get("properties", {}).get("spec", {}).get("properties", {})
    return set(found)


def _kueue_fits(needs: Needs, fields: Collection[str], controller: Manifest) -> list[Finding]:
    """Compare Kueue with Trainer. `fields`: of a TrainJob's spec. Unknown versions aren't reported."""
    version = _version(controller, KUEUE_IMAGE) if fields else ()
    used = next((field for first, field in KUEUE_FIELDS.items() if version >= first), "")
    if not used or used in fields:
        return []
    what = f"Kueue {_shown(version)} sets {used} of TrainJobs, which this Trainer doesn't have"
    return [broken(needs.check, f"{what}: trials ignore the nodes of their flavor, or never start", FITTING)]


def _version(deployment: Manifest, image: re.Pattern[str]) -> tuple[int, ...]:
    """Return the version in the tag of a Deployment's image; () if it is unknown."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    found = next(filter(None, (image.search(each["image"]) for each in containers)), None)
    return tuple(map(int, found.groups())) if found else ()


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _operator(needs: Needs, name: str, deployment: Manifest | None) -> list[Finding]:
    """Evaluate an operator's Deployment. It can have another name, so None is only a warning."""
    if deployment is None:
        look = f"kubectl get deployments -A | grep {name}"
        return [warning(needs.check, f"Deployment {name} not found; without it, trials get no pods", look)]
    if not deployment.get("status", {}).get("readyReplicas"):
        namespace = deployment["metadata"]["namespace"]
        look = f"kubectl -n {namespace} describe {deployment['kind'].lower()} {name}"
        return [broken(needs.check, f"{deployment['kind']} {name} in {namespace} isn't ready", look)]
    return []


async def _unknown_to(
    cluster: KubernetesClient, controller: Controller, deployment: Manifest, needs: Needs
) -> list[Finding]:
    """Return the finding that the controller's settings lack the kind; none if they have it."""
    namespace, name = deployment["metadata"]["namespace"], controller.settings
    settings = await read_settings(cluster, needs.check, namespace, name)
    if isinstance(settings, Finding):
        return [settings]
    kinds: Any = settings
    for key in controller.path:
        kinds = kinds.get(key) if isinstance(kinds, dict) else None
    entry = needs.entries[controller.name]
    if isinstance(kinds, list) and entry in kinds:
        return []
    on = f"kubectl -n {namespace}"
    restart = f"rollout restart {deployment['kind'].lower()} {controller.name}"
    fix = f"{on} edit configmap {name}; then {on} {restart}"
    return [broken(needs.check, controller.lacks.format(entry), fix)]


async def read_settings(
    cluster: KubernetesClient, check: str, namespace: str, name: str
) -> Mapping[str, Any] | Finding:
    """Return what a controller's ConfigMap says, or why that is unknown. Raises ApiError."""
    try:
        found = await cluster.get(Ref("ConfigMap", namespace, name))
    except ApiError as error:
        if error.status != 403:
            raise
        return warning(check, f"ConfigMap {name} unknown: no permission", GRANT_READ)
    settings = _parsed(found)
    if isinstance(settings, dict):
        return settings
    what = "not found" if found is None else "can't be read"
    look = f"kubectl -n {namespace} get configmap {name} -o yaml"
    return warning(check, f"ConfigMap {name} in {namespace} {what}", look)


def _parsed(config_map: Manifest | None) -> Any:
    """Return what the YAML in a ConfigMap with one file says; None if it can't be read."""
    text = next(iter(((config_map or {}).get("data") or {}).values()), "")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def has_sidecars(version: str) -> bool | None:
    """Return whether this version of Kubernetes starts sidecars; None if the version can't be read."""
    known = _of_server(version)
    return known >= SIDECARS_SINCE if known else None


def _of_server(version: str) -> tuple[int, ...]:
    """Return the first two numbers of what the API server reports; () for anything else."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", version)
    return tuple(map(int, found.groups())) if found else ()


def event_reader(version: str, settings: Settings) -> list[Finding]:
    """Return no findings unless the server is too old for sidecars, which trials would wait for."""
    if not settings.metrics_reader_image or has_sidecars(version) is not False:
        return []
    what = f"trials never start: METRICS_READER_IMAGE needs Kubernetes 1.29 or newer; found {version}"
    return [broken("metrics reader", what, "upgrade Kubernetes, or remove METRICS_READER_IMAGE")]


def several_nodes(version: str, config: Config) -> list[Finding]:
    """Return no findings if the version is new enough, or no Job can have several nodes.

    `version`: as the API server reports it, such as `v1.36.2`.
    """
    known = _of_server(version)
    is_used = config.limits.nodes_per_trial > 1 and config.trials.multi_node is JOB
    if not (is_used and known) or known >= SUCCESS_POLICY_SINCE:
        return []
    what = f"before Kubernetes 1.31, a trial with nodes= ends only when all its workers end; found {version}"
    fix = "make all workers exit when the first one does"
    if known < INDEX_LABEL_SINCE:
        what = f"nodes= needs Kubernetes 1.28 or newer; found {version}"
        fix = "set limits.nodes_per_trial: 1 in SWEEPBOT_CONFIG"
    return [warning("several nodes", what, f"upgrade Kubernetes, or {fix}")]
