"""Hostnames of pods, and names of headless Services, which resolve to the pods behind them.

Pods here are processes of one machine without a resolver of their own. So each such name gets its own
loopback address, derived from it, and the kubelet replaces the name by the address where it is the whole
value of a variable.
"""

import hashlib
import re

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.pods import LABEL
from local.kubernetes.apiserver.store import Store


def address(namespace: str, hostname: str, subdomain: str) -> str:
    """Return an address of 127.0.0.0/8, but not 127.0.x.x, which services of this machine use."""
    digest = hashlib.sha256(f"{hostname}.{subdomain}.{namespace}".encode()).digest()
    return f"127.{digest[0] % 254 + 1}.{digest[1]}.{digest[2] % 254 + 1}"


def resolved(store: Store, pod: Object, name: str) -> str:
    """Return the address of `hostname.subdomain`, or of a Service, as this pod would; the name if it can't.

    The subdomain must be a headless Service of the namespace that selects this pod, which stands for all pods
    of its Job. With publishNotReadyAddresses, the other pod needn't run yet. A Service without it selects one
    pod here, the only one that listens at its address.
    """
    hostname, _, subdomain = name.partition(".")
    namespace = pod["metadata"]["namespace"]
    if re.fullmatch(LABEL, name):
        alone = store.get("Service", namespace, name) or {"spec": {}}
        return address(namespace, name, "") if alone["spec"].get("clusterIP") == "None" else name
    service = store.get("Service", namespace, subdomain) if subdomain and "." not in subdomain else None
    if service is None or pod["spec"].get("subdomain") != subdomain:
        return name
    spec, labels = service["spec"], pod["metadata"].get("labels", {})
    selects = spec.get("selector", {}).items() <= labels.items()
    headless = spec.get("clusterIP") == "None" and spec.get("publishNotReadyAddresses")
    return address(namespace, hostname, subdomain) if headless and selects else name
