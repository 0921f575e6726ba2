"""Decide whether a service is within the limits of services. Pure."""

from collections.abc import Collection

from bot.config.services import ServiceLimits
from bot.services.snippet import Service
from bot.text.wording import counted, listed
from k8s.quantities import amount


def limit_denial(service: Service, own: Collection[str], limits: ServiceLimits) -> str:
    """Return why the service exceeds a limit, as a sentence with its fix; "" if it is allowed.

    Args:
        own: the names of the owner's other services.
    """
    if len(own) >= limits.per_person:
        names = [f"`{each}`" for each in own]
        fix = f"*Fix:* Delete one of yours ({listed(names)})." if names else "Ask an admin to raise it."
        return f"The limit is {counted(limits.per_person, 'service')} per person. {fix}"
    return _replica_denial(service, limits) or _size_denial(service, limits)


def _replica_denial(service: Service, limits: ServiceLimits) -> str:
    if service.replicas <= limits.replicas:
        return ""
    most = counted(limits.replicas, "replica")
    return f"The limit is {most} per service; got {service.replicas:,}. *Fix:* Request fewer."


def _size_denial(service: Service, limits: ServiceLimits) -> str:
    requested = {
        counted(limits.gpus, "GPU"): (str(service.gpus), str(limits.gpus)),
        f"{limits.cpu} CPU": (service.cpu, limits.cpu),
        f"{limits.memory} of memory": (service.memory, limits.memory),
    }
    for limit, (each, most) in requested.items():
        if amount(each) * service.replicas > amount(most):
            total = f"{counted(service.replicas, 'replica')} with {each} each"
            return f"The limit is {limit} per service, across all replicas; got {total}. *Fix:* Request less."
    return ""
