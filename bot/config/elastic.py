"""Deployments whose replicas follow free GPUs: `elastic:` of the configuration file. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bot.config.keys import NAMESPACE_NAME, OBJECT_NAME, Key, Keys, integer, string
from bot.config.teams import CHANNEL_ID, read_channel
from bot.config.yaml_reader import Node, entries, matching

MAX_DEPLOYMENTS, MAX_REPLICAS = 20, 1_000
DEFAULT_MIN, DEFAULT_RESERVE = 0, 1  # replicas
# What Kubernetes adds to a Deployment's name for a pod: a hash and five characters of this alphabet.
REPLICA = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}")
# Of a longer name, the five characters follow its first 58: without the dash, and perhaps without the hash.
KEPT, CUT = 58, re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,15}")
ELASTIC_KEYS: Keys = {
    "namespace": Key(
        meaning="Namespace of the Deployment.",
        type=string("namespace", NAMESPACE_NAME.pattern),
        example="serving",
        required=True,
    ),
    "deployment": Key(
        meaning="Name of the Deployment.",
        type=string("name", OBJECT_NAME.pattern),
        example="llm",
        required=True,
    ),
    "gpus": Key(
        meaning="GPUs of one replica, as its pods request them.", type=integer(1), example="2", required=True
    ),
    "min": Key(
        meaning="Minimum replicas. They can be preempted, too.",
        type=integer(0, MAX_REPLICAS),
        default=str(DEFAULT_MIN),
        example="1",
    ),
    "max": Key(meaning="Maximum replicas.", type=integer(1, MAX_REPLICAS), example="6", required=True),
    "reserve": Key(
        meaning="Replicas for which GPUs stay free, so that other pods start without waiting.",
        type=integer(0, MAX_REPLICAS),
        default=str(DEFAULT_RESERVE),
        example="2",
    ),
    "channel": Key(
        meaning="Slack channel of the Deployment's message.",
        type=CHANNEL_ID,
        example="C012ABC",
        required=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class ElasticDeployment:
    namespace: str
    deployment: str
    gpus: int  # of one replica
    min: int = DEFAULT_MIN
    max: int
    reserve: int = DEFAULT_RESERVE  # in replicas
    channel: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.deployment}"

    def owns(self, namespace: str, pod: str) -> bool:
        """Return whether a pod of this name is one of its replicas: `llm-6d5f9c7b8-x2x4z`."""
        prefix = f"{self.deployment}-"[:KEPT]
        rest = pod.removeprefix(prefix)
        is_replica = REPLICA.fullmatch(rest) or (len(pod) == KEPT + 5 and CUT.fullmatch(rest))
        return namespace == self.namespace and rest != pod and bool(is_replica)


def is_elastic(deployments: Iterable[ElasticDeployment], namespace: str, pod: str) -> bool:
    """Return whether a pod of this name is a replica of one of these Deployments."""
    return any(each.owns(namespace, pod) for each in deployments)


def read_elastic(node: Node | None) -> tuple[ElasticDeployment, ...]:
    found: dict[str, ElasticDeployment] = {}
    nodes = entries(node)
    for each in nodes[:MAX_DEPLOYMENTS]:
        one = _deployment(each)
        if one.key in found:
            each.error(f"duplicate Deployment {one.deployment} in {one.namespace}")
        found.setdefault(one.key, one)
    if node and len(nodes) > MAX_DEPLOYMENTS:
        node.error(f"must have at most {MAX_DEPLOYMENTS} Deployments; got {len(nodes)}")
    return tuple(found.values())


def _deployment(node: Node) -> ElasticDeployment:
    keys = node.mapping(ELASTIC_KEYS)
    numbers = dict(_numbers(keys))
    one = ElasticDeployment(
        namespace=_name(keys.get("namespace"), "namespace"),
        deployment=_name(keys.get("deployment"), "Deployment"),
        gpus=numbers.get("gpus", 1),
        min=numbers.get("min", DEFAULT_MIN),
        max=numbers.get("max", MAX_REPLICAS),
        reserve=numbers.get("reserve", DEFAULT_RESERVE),
        channel=read_channel(keys.get("channel")),
    )
    if one.min > one.max:
        keys["min"].error(f"must be at most max ({one.max}); got {one.min}")
    return one


def _numbers(keys: dict[str, Node]) -> Iterator[tuple[str, int]]:
    for name, least in (("gpus", 1), ("min", 0), ("max", 1), ("reserve", 0)):
        if name not in keys:
            continue
        before, number = len(keys[name].errors), keys[name].whole()
        if len(keys[name].errors) == before:
            if not least <= number <= MAX_REPLICAS:
                keys[name].error(f"must be from {least} to {MAX_REPLICAS}; got {number}")
            yield name, number


def _name(node: Node | None, what: str) -> str:
    return matching(node, NAMESPACE_NAME if what == "namespace" else OBJECT_NAME, f"the name of a {what}")
