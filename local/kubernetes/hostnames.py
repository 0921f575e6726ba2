"""Hostnames of pods, which a headless Service resolves.

Pods here are processes of one machine without a resolver of their own. So each pod with a hostname and a
subdomain gets its own loopback address, derived from both, and the kubelet replaces such a hostname by the
address where it is the whole value of a variable.
"""

import hashlib

from local.kubernetes.kinds import Object
from local.kubernetes.store import Store


def address(namespace: str, hostname: str, subdomain: str) -> str:
    """Return an address of 127.0.0.0/8, but not 127.0.x.x, which services of this machine use."""
    digest = hashlib.sha256(f"{hostname}.{subdomain}.{namespace}".encode()).digest()
    return f"127.{digest[0] % 254 + 1}.{digest[1]}.{digest[2] % 254 + 1}"


def resolved(store: Store, pod: Object, name: str) -> str:
    """Return the address of `hostname.subdomain` as this pod would resolve it; the name if it can't.

    The subdomain must be a headless Service of the namespace that selects this pod, which stands for all pods
    of its Job. With publishNotReadyAddresses, the other pod needn't run yet.
    """
    hostname, _, subdomain = name.partition(".")
    namespace = pod["metadata"]["namespace"]
    service = store.get("Service", namespace, subdomain) if subdomain and "." not in subdomain else None
    if service is None or pod["spec"].get("subdomain") != subdomain:
        return name
    spec, labels = service["spec"], pod["metadata"].get("labels", {})
    selects = spec.get("selector", {}).items() <= labels.items()
    headless = spec.get("clusterIP") == "None" and spec.get("publishNotReadyAddresses")
    return address(namespace, hostname, subdomain) if headless and selects else name
