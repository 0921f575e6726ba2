"""Check the Deployments of `elastic:`, and what interferes with their scaling."""

from collections.abc import Iterable

from bot.config.elastic import ElasticDeployment
from bot.config.policy import Config
from bot.doctor.findings import Finding, broken, ok, warning
from bot.doctor.probe_cluster import granted
from bot.elastic.preconditions import APPLY, problem_of
from bot.text.wording import listed
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Manifest, Ref
from k8s.rbac import FOR_ELASTIC, FOR_ELASTIC_DEPLOYMENT

CHECK = "elastic"
AUTOSCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
# Annotations and labels by which GitOps controllers mark what they apply.
GITOPS = {
    "Argo CD": ("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"),
    "Flux": ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"),
}
IGNORE = "make it ignore spec.replicas: docs/elastic.md"


async def elastic(cluster: KubernetesClient, config: Config) -> list[Finding]:
    """Return no findings without `elastic:`. Raises ApiError, UnreachableError."""
    if not config.elastic:
        return []
    findings = [await granted(cluster, "", FOR_ELASTIC, APPLY)]
    for each in config.elastic:
        findings += await _deployment(cluster, each)
    return findings


async def _deployment(cluster: KubernetesClient, config: ElasticDeployment) -> list[Finding]:
    check, namespace = f"{CHECK} {config.key}", config.namespace
    found = await cluster.get(Ref("Deployment", namespace, config.deployment)) or {}
    name = found["spec"]["template"]["spec"].get("priorityClassName") if found else ""
    class_ = await cluster.get(Ref("PriorityClass", "", name)) if name else None
    if problem := problem_of(config, found, class_["value"] if class_ else None):
        return [broken(check, problem.text.replace("`", ""), problem.fix.replace("`", ""))]
    rights = await granted(cluster, namespace, FOR_ELASTIC_DEPLOYMENT, APPLY, name=config.deployment)
    faults = [*rollout(check, found), *gitops(check, found)]
    for kind in AUTOSCALERS:
        faults += autoscalers(check, config, await _list(cluster, kind, namespace))
    faults += budgets(check, found, await _list(cluster, "PodDisruptionBudget", namespace))
    return [rights, *(faults or [ok(check, "negative priority, no autoscaler, no disruption budget")])]


async def _list(cluster: KubernetesClient, kind: str, namespace: str) -> list[Manifest]:
    try:
        return await cluster.list(kind, namespace)
    except ApiError as error:
        if error.status != 404:  # not installed, such as KEDA
            raise
        return []


def rollout(check: str, deployment: Manifest) -> list[Finding]:
    """Warn about a rollout that needs free GPUs for an additional replica."""
    strategy = deployment["spec"].get("strategy") or {}
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", "25%")
    if strategy.get("type") == "Recreate" or surge in {0, "0%"}:
        return []
    what = f"maxSurge is {surge}: a rollout needs more GPUs than there are replicas, and can hang"
    return [warning(check, what, "set strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1")]


def autoscalers(check: str, config: ElasticDeployment, found: Iterable[Manifest]) -> list[Finding]:
    """Report autoscalers of the same Deployment: they would change its replicas, and Sweepbot would pause."""
    names = [
        f"{each['kind']} {each['metadata']['name']}"
        for each in found
        if _target(each) == (config.deployment, "Deployment")
    ]
    if not names:
        return []
    fix = "delete it, or remove the Deployment from elastic:"
    return [broken(check, f"also scaled by {listed(names)}", fix)]


def _target(autoscaler: Manifest) -> tuple[str, str]:
    target = autoscaler["spec"].get("scaleTargetRef") or {}
    return target.get("name", ""), target.get("kind", "Deployment")


def budgets(check: str, deployment: Manifest, found: Iterable[Manifest]) -> list[Finding]:
    """Warn about a PodDisruptionBudget: it diverts preemption to pods of a higher priority elsewhere."""
    labels = deployment["spec"]["template"]["metadata"].get("labels") or {}
    names = [each["metadata"]["name"] for each in found if _selects(each["spec"].get("selector"), labels)]
    if not names:
        return []
    what = f"PodDisruptionBudget {listed(names)} protects its pods, so the scheduler prefers other victims"
    return [warning(check, what, "delete it, or exclude these pods from its selector")]


def _selects(selector: Manifest | None, labels: Manifest) -> bool:
    """Return whether a budget's selector can match; expressions count as a match."""
    return selector is not None and (selector.get("matchLabels") or {}).items() <= labels.items()


def gitops(check: str, deployment: Manifest) -> list[Finding]:
    """Warn that a GitOps controller could reset the replicas."""
    meta = deployment["metadata"]
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    for name, keys in GITOPS.items():
        if marks.keys() & set(keys):
            return [warning(check, f"{name} manages it and can reset its replicas", IGNORE)]
    return []
