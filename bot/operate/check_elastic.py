"""Check the Deployments of `elastic:`: permissions, and what interferes, such as autoscalers (HPA, KEDA),
rollouts, disruption budgets, Argo CD, or Flux.
"""

from collections.abc import Iterable
from dataclasses import replace

from bot.core.finding import Finding, broken, ok, warning
from bot.operate.check_cluster import granted, listed_unless
from bot.platform.config.elastic import ElasticDeployment
from bot.platform.config.policy import Config
from bot.platform.config.settings import Settings
from bot.text.wording import listed
from bot.workspaces.elastic.preconditions import APPLY, problem_of
from k8s.api.client import KubernetesClient
from k8s.objects import Manifest, Ref

ELASTIC = "elastic"
AUTOSCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
# Annotations and labels by which GitOps controllers mark what they apply.
GITOPS = {
    "Argo CD": ("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"),
    "Flux": ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"),
}
# In all namespaces, from deploy/elastic: what the scheduler counts.
FOR_ELASTIC = {
    ("", "nodes"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("scheduling.k8s.io", "priorityclasses"): ("get",),
}

# In the namespace of an elastic Deployment, from deploy/elastic: the first two for named Deployments only.
FOR_ELASTIC_DEPLOYMENT = {
    ("apps", "deployments"): ("get",),
    ("apps", "deployments/scale"): ("patch",),
    ("", "pods"): ("patch",),  # their pod-deletion-cost
    ("autoscaling", "horizontalpodautoscalers"): ("list",),  # this and the next two: the doctor
    ("keda.sh", "scaledobjects"): ("list",),
    ("policy", "poddisruptionbudgets"): ("list",),
}


async def elastic(cluster: KubernetesClient, _: Settings, config: Config) -> list[Finding]:
    """Return no findings without `elastic:`. Raises ApiError, UnreachableError."""
    if not config.elastic:
        return []
    findings = [await granted(cluster, "", FOR_ELASTIC, APPLY)]
    for each in config.elastic:
        findings += await _deployment(cluster, each)
    return findings


async def _deployment(cluster: KubernetesClient, config: ElasticDeployment) -> list[Finding]:
    """Check a Deployment of `elastic:`, and what interferes with its scaling."""
    check, namespace = f"{ELASTIC} {config.key}", config.namespace
    found = await cluster.get(Ref("Deployment", namespace, config.deployment)) or {}
    name = found["spec"]["template"]["spec"].get("priorityClassName") if found else ""
    class_ = await cluster.get(Ref("PriorityClass", "", name)) if name else None
    if problem := problem_of(config, found, class_["value"] if class_ else None):
        return [broken(check, problem.text.replace("`", ""), problem.fix.replace("`", ""))]
    rights = await granted(cluster, namespace, FOR_ELASTIC_DEPLOYMENT, APPLY, name=config.deployment)
    faults = [*_rollout(config, found), *_gitops(found)]
    for kind in AUTOSCALERS:  # 404: not installed, such as KEDA
        faults += _autoscalers(config, await listed_unless(404, cluster, kind, namespace) or ())
    faults += _budgets(found, await listed_unless(404, cluster, "PodDisruptionBudget", namespace) or ())
    passed = ok(check, "negative priority, no autoscaler, no disruption budget")
    return [rights, *(replace(each, check=check) for each in faults or [passed])]


def _rollout(config: ElasticDeployment, deployment: Manifest) -> list[Finding]:
    """Warn about a rollout that needs room for an additional replica."""
    strategy = deployment["spec"].get("strategy") or {}
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", "25%")
    if strategy.get("type") == "Recreate" or surge in {0, "0%"}:
        return []
    what = f"maxSurge is {surge}: a rollout needs more {config.follows} than there are replicas, and can hang"
    return [warning(ELASTIC, what, "set strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1")]


def _autoscalers(config: ElasticDeployment, found: Iterable[Manifest]) -> list[Finding]:
    """Report autoscalers of the same Deployment: they would change its replicas, and Sweepbot would pause."""
    names = [
        f"{each['kind']} {each['metadata']['name']}"
        for each in found
        if _target(each) == (config.deployment, "Deployment")
    ]
    fix = "delete it, or remove the Deployment from elastic:"
    return [broken(ELASTIC, f"also scaled by {listed(names)}", fix)] if names else []


def _target(autoscaler: Manifest) -> tuple[str, str]:
    target = autoscaler["spec"].get("scaleTargetRef") or {}
    return target.get("name", ""), target.get("kind", "Deployment")


def _budgets(deployment: Manifest, found: Iterable[Manifest]) -> list[Finding]:
    """Warn about a PodDisruptionBudget: it diverts preemption to pods of a higher priority elsewhere."""
    labels = deployment["spec"]["template"]["metadata"].get("labels") or {}
    names = [each["metadata"]["name"] for each in found if _selects(each["spec"].get("selector"), labels)]
    what = f"PodDisruptionBudget {listed(names)} protects its pods, so the scheduler prefers other victims"
    return [warning(ELASTIC, what, "delete it, or exclude these pods from its selector")] if names else []


def _selects(selector: Manifest | None, labels: Manifest) -> bool:
    """Return whether a budget's selector can match; expressions count as a match."""
    return selector is not None and (selector.get("matchLabels") or {}).items() <= labels.items()


def _gitops(deployment: Manifest) -> list[Finding]:
    """Warn that a GitOps controller could reset the replicas."""
    meta = deployment["metadata"]
    marks = {*(meta.get("labels") or {}), *(meta.get("annotations") or {})}
    fix = "make it ignore spec.replicas: docs/elastic.md"
    names = [name for name, keys in GITOPS.items() if marks & set(keys)][:1]
    return [warning(ELASTIC, f"{name} manages it and can reset its replicas", fix) for name in names]
