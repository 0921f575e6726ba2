"""What a Deployment must be like before Sweepbot scales it (a priority below 0, the GPUs of `elastic:`, or a
CPU request), for its message and the doctor. Pure.
"""

from collections.abc import Callable

from bot.core.finding import Finding
from bot.platform.config.elastic import ElasticDeployment
from bot.text.wording import counted
from k8s.api.errors import ApiError
from k8s.nodes.scheduling import gpu_count, pod_needs
from k8s.objects import Manifest

APPLY = "kubectl apply -k deploy/elastic"
CLASS = "sweepbot-elastic"  # the PriorityClass of deploy/elastic


def problem_of(config: ElasticDeployment, deployment: Manifest, priority: int | None) -> Finding | None:
    """Return why Sweepbot must not scale the Deployment; None if it can.

    Args:
        deployment: {} if it doesn't exist.
        priority: the value of its PriorityClass; None if it names none, or one that doesn't exist.
    """
    if not deployment:
        text = f"Deployment `{config.deployment}` doesn't exist in `{config.namespace}`."
        return Finding(text, "Create it, or remove it from `elastic:`.")
    spec = deployment["spec"]["template"]["spec"]
    if priority is None or priority >= 0:
        why = "Other pods couldn't preempt the replicas."
        text = f"The priority of the replicas isn't below 0: {_class(spec, priority)}. {why}"
        return Finding(text, f"Set `priorityClassName: {CLASS}` in its template (`{APPLY}`).")
    needs = pod_needs(spec)
    if (gpus := gpu_count(needs)) != config.gpus:
        text = f"A replica requests {counted(gpus, 'GPU')}, but `gpus` in `elastic:` is {config.gpus}."
        return Finding(text, "Correct `gpus` in `elastic:`, or the Deployment's template.")
    if not config.gpus and not needs.get("cpu"):
        text = "A replica requests no CPU, so any number of them would fit on a node."
        return Finding(text, "Set `resources.requests.cpu` in the Deployment's template.")
    return None


def _class(spec: Manifest, priority: int | None) -> str:
    name = spec.get("priorityClassName", "")
    if not name:
        return "the template has no `priorityClassName`"
    return f"PriorityClass `{name}` " + ("doesn't exist" if priority is None else f"is {priority}")


def rejection(error: Exception, mask: Callable[[str], str]) -> Finding | None:
    """Return what to show for a failed call; None for an outage, which ends by itself."""
    if isinstance(error, ApiError) and error.permanent:
        fix = f"Grant the permissions (`{APPLY}`), and run `/sweep doctor`."
        return Finding("The cluster rejected a request.", fix, detail=mask(error.message))
    return None
