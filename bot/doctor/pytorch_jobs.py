"""Check what trials as PyTorchJobs need: the Training Operator, and and the settings of Katib and Kueue.

Katib and Kueue read their ConfigMaps at start, and ignore kinds that aren't named there: a trial's result is
then never seen, or it starts without quota.
"""

from typing import Any

import yaml

from bot.config.policy import Config
from bot.doctor.findings import Finding, broken, ok, warning
from bot.doctor.probe_cluster import GRANT_READ
from k8s.client import KubernetesClient
from k8s.errors import ApiError
from k8s.objects import Manifest, Ref
from k8s.trial_kinds import PYTORCH_JOB

CHECK = "PyTorchJobs"
CRD = "pytorchjobs.kubeflow.org"
OPERATOR, KATIB, KUEUE = "training-operator", "katib-controller", "kueue-controller-manager"  # Deployments
KATIB_CONFIG, KUEUE_CONFIG = "katib-config", "kueue-manager-config"  # ConfigMaps in their namespaces
TRIAL_RESOURCE = "PyTorchJob.v1.kubeflow.org"
FRAMEWORK = "kubeflow.org/pytorchjob"


async def pytorch_jobs(cluster: KubernetesClient, config: Config) -> list[Finding]:
    """Return no findings unless trials can be PyTorchJobs. Raises ApiError, UnreachableError."""
    if config.trials.multi_node is not PYTORCH_JOB:
        return []
    if not _serves(await cluster.get(Ref("CustomResourceDefinition", "", CRD))):
        fix = "install Kubeflow's Training Operator v1: docs/machines.md, or set trials.multi_node: job"
        return [broken(CHECK, "kubeflow.org/v1 not served; sweeps with nodes= are refused", fix)]
    deployments = {each["metadata"]["name"]: each for each in await cluster.list("Deployment", "")}
    found = operator(deployments.get(OPERATOR))
    found += await _katib(cluster, deployments.get(KATIB))
    if config.queueing.queues or any(team.queue for team in config.teams):
        found += await _kueue(cluster, deployments.get(KUEUE))
    return found or [ok(CHECK, "served, and watched by Katib")]


def _serves(crd: Manifest | None) -> bool:
    versions = crd["spec"].get("versions", []) if crd else []
    return any(each["name"] == "v1" and each.get("served") for each in versions)


def operator(deployment: Manifest | None) -> list[Finding]:
    """Evaluate the Training Operator's Deployment. It can have another name, so None is only a warning."""
    if deployment is None:
        look = f"kubectl get deployments -A | grep {OPERATOR}"
        return [warning(CHECK, f"Deployment {OPERATOR} not found; without it, trials get no pods", look)]
    if not deployment.get("status", {}).get("readyReplicas"):
        namespace = deployment["metadata"]["namespace"]
        look = f"kubectl -n {namespace} describe deployment {OPERATOR}"
        return [broken(CHECK, f"Deployment {OPERATOR} in {namespace} isn't ready", look)]
    return []


async def _katib(cluster: KubernetesClient, controller: Manifest | None) -> list[Finding]:
    if controller is None:
        return []  # reported with Katib's Deployments
    namespace = controller["metadata"]["namespace"]
    settings = await _settings(cluster, namespace, KATIB_CONFIG)
    if isinstance(settings, Finding):
        return [settings]
    if TRIAL_RESOURCE in _texts(settings, "init", "controller", "trialResources"):
        return []
    what = f"trialResources in {KATIB_CONFIG} lacks {TRIAL_RESOURCE}; Katib never sees these trials end"
    fix = f"kubectl -n {namespace} edit configmap {KATIB_CONFIG}; then {_restart(namespace, KATIB)}"
    return [broken(CHECK, what, fix)]


async def _kueue(cluster: KubernetesClient, controller: Manifest | None) -> list[Finding]:
    if controller is None:
        return []  # reported with the queues
    namespace = controller["metadata"]["namespace"]
    settings = await _settings(cluster, namespace, KUEUE_CONFIG)
    if isinstance(settings, Finding):
        return [settings]
    if FRAMEWORK in _texts(settings, "integrations", "frameworks"):
        return []
    what = f"integrations.frameworks of Kueue lacks {FRAMEWORK}; these trials start without quota"
    fix = f"kubectl -n {namespace} edit configmap {KUEUE_CONFIG}; then {_restart(namespace, KUEUE)}"
    return [broken(CHECK, what, fix)]


def _restart(namespace: str, deployment: str) -> str:
    return f"kubectl -n {namespace} rollout restart deployment {deployment}"


async def _settings(cluster: KubernetesClient, namespace: str, name: str) -> dict[str, Any] | Finding:
    """Return the YAML in a ConfigMap with one file; a warning if it can't be read."""
    try:
        found = await cluster.get(Ref("ConfigMap", namespace, name))
    except ApiError as error:
        if error.status != 403:
            raise
        return warning(CHECK, f"ConfigMap {name} unknown: no permission", GRANT_READ)
    text = next(iter(((found or {}).get("data") or {}).values()), "")
    try:
        settings = yaml.safe_load(text)
    except yaml.YAMLError:
        settings = None
    if not isinstance(settings, dict):
        look = f"kubectl -n {namespace} get configmap {name} -o yaml"
        return warning(CHECK, f"ConfigMap {name} in {namespace} can't be read", look)
    return settings


def _texts(settings: Any, *path: str) -> list[Any]:
    """Return the list at this path; [] if there is none."""
    for key in path:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings if isinstance(settings, list) else []
