"""What the pods of all trials need on this cluster: `trials:` of the configuration file. Pure."""

import re

from bot.config.keys import (
    BOOLEAN,
    LIST,
    OBJECT_NAME,
    SCALAR,
    Key,
    Keys,
    Schema,
    integer,
    one_of,
    string,
)
from bot.config.yaml_reader import Node, entries
from bot.text.wording import listed, shortened
from k8s.katib.manifest import KUBERNETES_GRACE
from k8s.katib.pod_shape import TRIAL_UID, PodShape, Volume
from k8s.quantities import QUANTITY
from k8s.trial_kinds import JOB, TRIAL_KINDS, TrialKind

QUANTITY_TYPE: Schema = {
    "title": "Kubernetes quantity",
    "type": ["string", "number"],
    "pattern": f"^(?:{QUANTITY.pattern})$",
}
MOUNT = re.compile(r"/[^:]*[^:/]")
MAX_GRACE = 24 * 3600  # seconds; the trial's GPUs stay allocated meanwhile
HIGHEST_USER = 2**31 - 1
MULTI_NODE = {kind.lower(): each for kind, each in TRIAL_KINDS.items()}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_KEYS: Keys = {
    "key": Key(meaning="Taint key.", type=SCALAR, default="any", example="nvidia.com/gpu"),
    "operator": Key(
        meaning="How the taint's value is compared.",
        type=one_of("Exists", "Equal"),
        default="Equal",
        example="Exists",
    ),
    "value": Key(meaning="Taint value, for `Equal`.", type=SCALAR, default="none", example="gpus"),
    "effect": Key(meaning="Taint effect.", type=one_of(*EFFECTS), default="any", example="NoSchedule"),
}
VOLUME_KEYS: Keys = {
    "claim": Key(
        meaning="PersistentVolumeClaim in the trials' namespace.",
        type=string("name", OBJECT_NAME.pattern),
        example="datasets",
        required=True,
    ),
    "at": Key(
        meaning="Mount path, absolute.", type=string("path", MOUNT.pattern), example="/data", required=True
    ),
    "read_only": Key(meaning="Mount it read-only.", type=BOOLEAN, default="false", example="true"),
}
POD_KEYS: Keys = {
    "runtime_class": Key(
        meaning="RuntimeClass of the pods. k3s needs `nvidia`, unless it is the default runtime.",
        type=string("name", OBJECT_NAME.pattern),
        default="the cluster's",
        example="nvidia",
    ),
    "nodes": Key(
        meaning="Labels of the nodes to run on.",
        type={"type": "object", "additionalProperties": SCALAR},
        default="all nodes",
        example="{pool: gpus}",
    ),
    "tolerations": Key(
        meaning="Tolerations for the taints of GPU nodes.",
        type=LIST,
        default="none",
        example="[{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]",
        keys=TOLERATION_KEYS,
    ),
    "cpu": Key(
        meaning="Requested CPU.",
        type=QUANTITY_TYPE,
        default="none",
        example="4",
    ),
    "memory": Key(
        meaning="Requested memory, which is also the limit.",
        type=QUANTITY_TYPE,
        default="none",
        example="32Gi",
    ),
    "volumes": Key(
        meaning="Volumes to mount.",
        type=LIST,
        default="none",
        example="[{claim: datasets, at: /data, read_only: true}]",
        keys=VOLUME_KEYS,
    ),
    "grace_seconds": Key(
        meaning="Seconds from SIGTERM to SIGKILL, unless the space file sets it.",
        type=integer(1, MAX_GRACE),
        default=str(KUBERNETES_GRACE),
        example="60",
    ),
    "multi_node": Key(
        meaning="What runs a trial of several nodes: a Job, a PyTorchJob of Kubeflow's Training Operator "
        "([details](machines.md#use-pytorchjobs)), or a TrainJob of Kubeflow Trainer 2 "
        "([details](machines.md#use-trainjobs)).",
        type=one_of(*MULTI_NODE),
        default="job",
        example="pytorchjob",
    ),
    "user": Key(
        meaning="User ID that trials run as. 0: the image's user, usually root.",
        type=integer(0, HIGHEST_USER),
        default=str(TRIAL_UID),
        example="2001",
    ),
}


def read_trials(node: Node | None) -> PodShape:
    keys = node.mapping(POD_KEYS) if node else {}
    return PodShape(
        runtime_class=read_name(keys.get("runtime_class"), "a RuntimeClass"),
        nodes=read_labels(keys.get("nodes")),
        tolerations=tuple(read_toleration(each) for each in entries(keys.get("tolerations"))),
        cpu=read_quantity(keys.get("cpu"), "4 or 500m"),
        memory=read_quantity(keys.get("memory"), "32Gi"),
        volumes=tuple(read_volume(each.mapping(VOLUME_KEYS)) for each in entries(keys.get("volumes"))),
        grace_seconds=read_grace(keys.get("grace_seconds"), MAX_GRACE),
        user=_user(keys.get("user")),
        multi_node=_multi_node(keys.get("multi_node")),
    )


def _multi_node(node: Node | None) -> TrialKind:
    name = node.text() if node else "job"
    if node and name and name not in MULTI_NODE:
        node.error(f'must be {listed(MULTI_NODE, "or")}; got "{shortened(name)}"')
    return MULTI_NODE.get(name, JOB)


def _user(node: Node | None) -> int:
    """Return the user id that trials run as; 0: the image's user."""
    user = node.whole() if node else TRIAL_UID
    if node and not 0 <= user <= HIGHEST_USER:
        node.error(f"must be from 0 (the image's user, usually root) to {HIGHEST_USER}; got {user}")
    return user


def read_grace(node: Node | None, most: int) -> int | None:
    """Return the seconds from SIGTERM to SIGKILL of a trial; None if not set.

    0 would delete the pod from the API while its process still uses the GPUs.
    """
    if node is None:
        return None
    before, grace = len(node.errors), node.whole()
    if len(node.errors) == before and not 1 <= grace <= most:
        limit = "" if most == MAX_GRACE else " (limits.grace_seconds)"
        node.error(f"must be from 1 to {most} seconds{limit}; got {grace}")
    return grace


def read_nodes(node: Node | None, most: int) -> int | None:
    """Return the nodes of one trial; None if not set. `most`: limits.nodes_per_trial."""
    if node is None:
        return None
    before, nodes = len(node.errors), node.whole()
    if len(node.errors) == before and not 1 <= nodes <= most:
        node.error(f"must be from 1 to {most} (limits.nodes_per_trial); got {nodes}")
    return nodes


def read_name(node: Node | None, what: str) -> str:
    """Return the name of an object; `what`: its kind, with an article."""
    name = node.text() if node else ""
    if node and name and not OBJECT_NAME.fullmatch(name):
        node.error(f"must be the name of {what}")
    return name


def read_labels(node: Node | None) -> dict[str, str]:
    """Return node labels; `true` and `1` are text there."""
    found = node.mapping() if node else {}
    for value in found.values():
        if isinstance(value.value, dict | list):
            value.error("must be text")
    return {key: value.raw for key, value in found.items()}


def read_toleration(node: Node) -> dict[str, str]:
    """Return a toleration as Kubernetes takes it."""
    found = {key: value.raw for key, value in node.mapping(TOLERATION_KEYS).items()}
    operator = found.get("operator", "Equal")
    if operator not in {"Exists", "Equal"}:
        node.error(f'operator must be Exists or Equal; got "{shortened(operator)}"')
    if operator == "Exists" and "value" in found:
        node.error("value has no effect with operator Exists. Remove it, or use Equal.")
    if "effect" in found and found["effect"] not in EFFECTS:
        node.error(f'effect must be {listed(EFFECTS, "or")}; got "{shortened(found["effect"])}"')
    return found


def read_quantity(node: Node | None, example: str) -> str:
    """Return a quantity, "" if it isn't set."""
    if node and not QUANTITY.fullmatch(node.raw):
        node.error(f"must be a Kubernetes quantity such as {example}; got {node.described}")
    return node.raw if node else ""


def read_volume(keys: dict[str, Node]) -> Volume:
    """Read the keys of a volume: its claim and its mount path."""
    at = keys["at"].text() if "at" in keys else "/data"
    if not MOUNT.fullmatch(at):
        keys["at"].error(f'must be an absolute path such as /data; got "{shortened(at)}"')
    return Volume(
        claim=read_name(keys.get("claim"), "a PersistentVolumeClaim"),
        at=at,
        read_only=keys["read_only"].flag() if "read_only" in keys else False,
    )
