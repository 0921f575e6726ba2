"""Deployments whose replicas follow free GPUs or CPUs: `elastic:` of the configuration file. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from bot.platform.config.rules import Key, Problem
from bot.platform.config.section import Section
from bot.platform.config.value_types import Channel, Namespace, Text, Whole, object_name

MAX_DEPLOYMENTS, MAX_REPLICAS = 20, 1_000
# What Kubernetes adds to a Deployment's name for a pod: a hash and five characters of this alphabet.
REPLICA = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}")
# Of a longer name, the five characters follow its first 58: without the dash, and perhaps without the hash.
KEPT, CUT = 58, re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,15}")


@dataclass(frozen=True, kw_only=True)
class ElasticDeployment(Section):
    namespace: Annotated[Namespace, Key("serving")]
    """Namespace of the Deployment."""
    deployment: Annotated[Text, object_name("a Deployment"), Key("llm")]
    """Name of the Deployment."""
    gpus: Annotated[Whole, Key("2", least=0, most=MAX_REPLICAS)]
    """GPUs of one replica, as its pods request them. 0: the replicas follow free CPUs."""
    min: Annotated[Whole, Key("1", least=0, most=MAX_REPLICAS)] = 0
    """Minimum replicas. They can be preempted, too."""
    max: Annotated[Whole, Key("6", least=1, most=MAX_REPLICAS)]
    """Maximum replicas."""
    reserve: Annotated[Whole, Key("2", least=0, most=MAX_REPLICAS)] = 1
    """Replicas for which GPUs, or CPUs, stay free, so that other pods start without waiting."""
    channel: Annotated[Channel, Key("C012ABC")]
    """Slack channel of the Deployment's message."""

    def problems(self, _: Any) -> Iterator[Problem]:
        if self.min > self.max:
            yield "min", f"must be at most max ({self.max}); got {self.min}"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.deployment}"

    @property
    def follows(self) -> str:
        """Return what its replicas follow, in the plural."""
        return "GPUs" if self.gpus else "CPUs"

    def owns(self, namespace: str, pod: str) -> bool:
        """Return whether a pod of this name is one of its replicas: `llm-6d5f9c7b8-x2x4z`."""
        prefix = f"{self.deployment}-"[:KEPT]
        rest = pod.removeprefix(prefix)
        is_replica = REPLICA.fullmatch(rest) or (len(pod) == KEPT + 5 and CUT.fullmatch(rest))
        return namespace == self.namespace and rest != pod and bool(is_replica)


def is_elastic(deployments: Iterable[ElasticDeployment], namespace: str, pod: str) -> bool:
    """Return whether a pod of this name is a replica of one of these Deployments."""
    return any(each.owns(namespace, pod) for each in deployments)
