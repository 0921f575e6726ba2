"""Machine profiles of trials, and autoscaled pools: `profiles:` and `pools:` of the configuration. Pure."""

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction

from bot.config.keys import BOOLEAN, LIST, OBJECT_NAME, SCALAR, Key, Keys, Schema, integer, list_of, string
from bot.config.trial_pods import (
    EFFECTS,
    POD_KEYS,
    QUANTITY_TYPE,
    TOLERATION_KEYS,
    read_labels,
    read_name,
    read_nodes,
    read_quantity,
    read_toleration,
)
from bot.config.yaml_reader import Node, entries
from bot.core.errors import UserError
from bot.text.wording import counted, did_you_mean, listed, shortened
from k8s.katib.pod_shape import PodShape
from k8s.nodes.machines import UNLIMITED, Machine
from k8s.objects import GPU
from k8s.quantities import amount, scaled

PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
MEBIBYTE = Fraction(2**20)
RESOURCE_TYPE: Schema = string("resource", RESOURCE.pattern)
RESOURCES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
LABEL_CHOICES: Schema = {
    "type": "object",
    "additionalProperties": {"anyOf": [SCALAR, list_of(SCALAR)]},
}
PROFILE_KEYS: Keys = {
    "gpus": Key(meaning="GPUs, or MIG slices, of one trial.", type=integer(0), example="8", required=True),
    "nodes_per_trial": Key(
        meaning="Nodes of one trial, each with the profile's GPUs "
        "([details](machines.md#run-a-trial-on-several-machines)). `nodes` of a space file and `nodes=` "
        "override it.",
        type=integer(1),
        default="1",
        example="4",
    ),
    "resource": Key(
        meaning="Resource that a GPU or a MIG slice is requested as.",
        type=RESOURCE_TYPE,
        default=GPU,
        example="nvidia.com/mig-3g.40gb",
    ),
    "cpu": Key(
        meaning="Requested CPUs of one trial.", type=QUANTITY_TYPE, default="`trials.cpu`", example="96"
    ),
    "whole_cpus": Key(
        meaning="Set the CPU limit to the request. With the kubelet's static CPU manager policy, the trial "
        "then gets CPUs of its own ([details](machines.md#whole-cpus)). `cpu` must be a whole number.",
        type=BOOLEAN,
        default="false",
        example="true",
    ),
    "memory": Key(
        meaning="Requested memory of one trial, which is also the limit.",
        type=QUANTITY_TYPE,
        default="`trials.memory`",
        example="1Ti",
    ),
    "shared_memory": Key(
        meaning="Size limit of `/dev/shm`. Its contents count toward the memory.",
        type=QUANTITY_TYPE,
        default="half of the node's memory",
        example="256Gi",
    ),
    "resources": Key(
        meaning="More resources of one trial, by name.",
        type=RESOURCES,
        default="none",
        example="{rdma/hca: 8}",
    ),
    "nodes": Key(
        meaning="Labels of the nodes to run on, in addition to `trials.nodes`: a value, or a list of values.",
        type=LABEL_CHOICES,
        default="`trials.nodes`",
        example="{nvidia.com/gpu.product: [NVIDIA-H100-80GB-HBM3, NVIDIA-H100-NVL]}",
    ),
    "tolerations": Key(
        meaning="Tolerations, in addition to `trials.tolerations`.",
        type=LIST,
        default="`trials.tolerations`",
        example="[{key: dedicated, value: h100}]",
        keys=TOLERATION_KEYS,
    ),
    "runtime_class": POD_KEYS["runtime_class"],
    "scheduler": Key(
        meaning="Scheduler of the pods.",
        type=string("name", OBJECT_NAME.pattern),
        default="the cluster's",
        example="volcano",
    ),
    "priority_class": Key(
        meaning="PriorityClass of the pods.",
        type=string("name", OBJECT_NAME.pattern),
        default="the cluster's",
        example="research",
    ),
}
POOL_KEYS: Keys = {
    "gpus": Key(meaning="GPUs of one machine.", type=integer(0), default="0", example="8"),
    "resource": PROFILE_KEYS["resource"],
    "cpu": Key(
        meaning="Allocatable CPUs of one machine.", type=QUANTITY_TYPE, default="no limit", example="190"
    ),
    "memory": Key(
        meaning="Allocatable memory of one machine.", type=QUANTITY_TYPE, default="no limit", example="1900Gi"
    ),
    "resources": Key(
        meaning="More resources of one machine, by name.",
        type=RESOURCES,
        default="none",
        example="{rdma/hca: 8}",
    ),
    "labels": Key(
        meaning="Labels of its nodes.",
        type={"type": "object", "additionalProperties": SCALAR},
        default="none",
        example="{cloud.google.com/gke-accelerator: nvidia-h100-80gb}",
    ),
    "taints": Key(
        meaning="Taints of its nodes.",
        type=LIST,
        default="none",
        example="[{key: dedicated, value: h100, effect: NoSchedule}]",
        keys={key: TOLERATION_KEYS[key] for key in ("key", "value", "effect")},
    ),
}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A machine type: what one trial requests, and where it runs. Unset values are those of `trials:`."""

    name: str
    gpus: int  # on each of its nodes
    nodes_per_trial: int = 1
    resource: str = GPU
    cpu: str = ""
    whole_cpus: bool = False
    memory: str = ""
    shared_memory: str = ""
    resources: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tolerations: tuple[dict[str, str], ...] = ()
    runtime_class: str = ""
    scheduler: str = ""
    priority_class: str = ""


def chosen(profiles: tuple[Profile, ...], name: str | None, gpus: int | None) -> Profile | None:
    """Return the profile of a request; None if none are configured. Raises UserError.

    Without a name it is the first, or, for gpus=0, the first without GPUs: None if there is none.
    """
    if name is None:
        usable = [each for each in profiles if gpus is None or bool(each.gpus) == bool(gpus)]
        if profiles and not usable and gpus:
            raise UserError("No profile has GPUs. Remove gpus=.", field="gpus")
        return next(iter(usable), None)
    found = next((each for each in profiles if each.name == name), None)
    if found is None:
        raise UserError(_unknown(profiles, name), field="profile")
    if gpus is not None and bool(gpus) != bool(found.gpus):
        raise UserError(_contradiction(found, profiles), field="gpus")
    return found


def _unknown(profiles: tuple[Profile, ...], name: str) -> str:
    if not profiles:
        return "profile= can't be used: the configuration has no `profiles:`. Use gpus=."
    names = [each.name for each in profiles]
    hint = did_you_mean(name, names) or f" Available: {listed(names)}."
    return f'profile= must be a configured profile; got "{shortened(name)}".{hint}'


def _contradiction(profile: Profile, profiles: tuple[Profile, ...]) -> str:
    others = [each.name for each in profiles if bool(each.gpus) != bool(profile.gpus)]
    choose = f", or use {listed([f'profile={each}' for each in others], 'or')}" if others else ""
    has = counted(profile.gpus, "GPU") if profile.gpus else "no GPUs"
    return f"gpus= can't be used with profile={profile.name}, which has {has}. Remove gpus={choose}."


def shaped(trials: PodShape, profile: Profile | None, gpus: int) -> PodShape:
    """Return `trials` with the profile's values, scaled from the profile's GPUs to `gpus`."""
    if profile is None:
        return trials
    factor = Fraction(gpus, profile.gpus) if profile.gpus else Fraction(1)
    own = _scaled(profile, factor)
    choices = {key: values for key, values in profile.nodes.items() if len(values) > 1}
    labels = {key: values[0] for key, values in profile.nodes.items() if len(values) == 1}
    return replace(
        trials,
        resource=own.resource,
        cpu=own.cpu or trials.cpu,
        whole_cpus=own.whole_cpus,
        memory=own.memory or trials.memory,
        shared_memory=own.shared_memory,
        resources=own.resources,
        nodes={key: value for key, value in trials.nodes.items() if key not in choices} | labels,
        node_choices=choices,
        tolerations=tuple({str(each): each for each in (*trials.tolerations, *own.tolerations)}.values()),
        runtime_class=own.runtime_class or trials.runtime_class,
        scheduler=own.scheduler,
        priority_class=own.priority_class,
        pack=True,
    )


def _scaled(profile: Profile, factor: Fraction) -> Profile:
    if factor == 1:
        return profile
    least = Fraction(1) if profile.whole_cpus else Fraction(1, 1000)
    return replace(
        profile,
        cpu=profile.cpu and scaled(profile.cpu, factor, least=least),
        memory=profile.memory and scaled(profile.memory, factor, least=MEBIBYTE),
        shared_memory=profile.shared_memory and scaled(profile.shared_memory, factor, least=MEBIBYTE),
        resources={key: scaled(each, factor, least=Fraction(1)) for key, each in profile.resources.items()},
    )


def read_profiles(node: Node | None, most: int, most_nodes: int) -> tuple[Profile, ...]:
    """Read the profiles. `most`: limits.gpus_per_trial; `most_nodes`: limits.nodes_per_trial."""
    return tuple(_profile(*each, most, most_nodes) for each in node.mapping().items()) if node else ()


def _profile(name: str, node: Node, most: int, most_nodes: int) -> Profile:
    _check_name(name, node)
    keys = node.mapping(PROFILE_KEYS)
    found = Profile(
        name=name,
        gpus=_gpus(keys.get("gpus"), most),
        nodes_per_trial=read_nodes(keys.get("nodes_per_trial"), most_nodes) or 1,
        resource=_resource(keys.get("resource")),
        cpu=read_quantity(keys.get("cpu"), "96"),
        whole_cpus=keys["whole_cpus"].flag() if "whole_cpus" in keys else False,
        memory=read_quantity(keys.get("memory"), "1Ti"),
        shared_memory=read_quantity(keys.get("shared_memory"), "256Gi"),
        resources=_resources(keys.get("resources")),
        nodes=_choices(keys.get("nodes")),
        tolerations=tuple(read_toleration(each) for each in entries(keys.get("tolerations"))),
        runtime_class=read_name(keys.get("runtime_class"), "a RuntimeClass"),
        scheduler=read_name(keys.get("scheduler"), "a scheduler"),
        priority_class=read_name(keys.get("priority_class"), "a PriorityClass"),
    )
    if not node.errors:
        _check(found, node)
    return found


def _check(profile: Profile, node: Node) -> None:
    if profile.whole_cpus and not (profile.cpu and profile.memory):
        node.error("whole_cpus needs cpu and memory: only then are all requests equal to their limits")
    elif profile.whole_cpus and amount(profile.cpu).denominator != 1:
        node.error(f"whole_cpus needs a whole number of CPUs; got cpu: {profile.cpu}")
    shared, memory = profile.shared_memory, profile.memory
    if shared and memory and amount(shared) > amount(memory):
        node.error(f"shared_memory counts toward memory ({memory}) and can't exceed it; got {shared}")


def read_pools(node: Node | None) -> tuple[Machine, ...]:
    """Read the autoscaled pools, as one machine of each."""
    return tuple(_pool(name, each) for name, each in node.mapping().items()) if node else ()


def _pool(name: str, node: Node) -> Machine:
    _check_name(name, node)
    keys = node.mapping(POOL_KEYS)
    sizes = {
        "cpu": read_quantity(keys.get("cpu"), "190"),
        "memory": read_quantity(keys.get("memory"), "1900Gi"),
    } | _resources(keys.get("resources"))
    gpus = _gpus(keys.get("gpus"), 2**31) if "gpus" in keys else 0
    found = {} if node.errors else {key: amount(size) if size else UNLIMITED for key, size in sizes.items()}
    return Machine(
        name=f"pool {name}",
        resources=found | {_resource(keys.get("resource")): Fraction(gpus)},
        labels=read_labels(keys.get("labels")),
        taints=tuple(_taint(each) for each in entries(keys.get("taints"))),
    )


def _taint(node: Node) -> dict[str, str]:
    found = {key: each.raw for key, each in node.mapping(POOL_KEYS["taints"].keys).items()}
    if not found.get("key"):
        node.error("missing key: key")
    if found.get("effect", EFFECTS[0]) not in EFFECTS:
        node.error(f'effect must be {listed(EFFECTS, "or")}; got "{shortened(found["effect"])}"')
    return {"effect": EFFECTS[0]} | found


def _check_name(name: str, node: Node) -> None:
    if not PROFILE_NAME.fullmatch(name):
        node.error(
            "name must have only lowercase letters, digits, dots, dashes, and underscores, at most 40; "
            f'got "{shortened(name)}"'
        )


def _gpus(node: Node | None, most: int) -> int:
    gpus, before = node.whole() if node else 0, len(node.errors) if node else 0
    if node and len(node.errors) == before and not 0 <= gpus <= most:
        node.error(f"must be from 0 to {most} (limits.gpus_per_trial); got {gpus}")
    return gpus


def _resource(node: Node | None) -> str:
    name = node.text() if node else GPU
    if node and name and not RESOURCE.fullmatch(name):
        node.error(f'must be a resource such as {GPU} or nvidia.com/mig-3g.40gb; got "{shortened(name)}"')
    return name


def _resources(node: Node | None) -> dict[str, str]:
    found = node.mapping() if node else {}
    for name, each in found.items():
        if not RESOURCE.fullmatch(name):
            each.error("must be a resource with a domain, such as rdma/hca")
    return {name: read_quantity(each, "8") for name, each in found.items()}


def _choices(node: Node | None) -> dict[str, tuple[str, ...]]:
    """Return the allowed values of each node label."""
    if node and node.raw.isdecimal():
        node.error("must be node labels. For the number of nodes per trial, use nodes_per_trial.")
        return {}
    found = node.mapping() if node else {}
    for each in found.values():
        if each.value == [] or isinstance(each.value, dict):
            each.error("must be a value or a list of values")
    return {
        key: tuple(item.raw for item in each.items()) if isinstance(each.value, list) else (each.raw,)
        for key, each in found.items()
    }
