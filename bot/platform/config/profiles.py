"""Machine profiles and autoscaled pools: `profiles:` and `pools:` of the configuration; the profile of a
request, scaled by `gpus=`, or why it is refused. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any

from pydantic import WithJsonSchema

from bot.core.errors import UserError
from bot.platform.config.rules import Key, Matching, Name, Problem, Reads, Several, Via
from bot.platform.config.section import Section
from bot.platform.config.teams import Team
from bot.platform.config.trial_pods import Effect, RuntimeClass, Tolerations, given
from bot.platform.config.value_types import (
    SCALAR,
    Flag,
    Labels,
    Quantity,
    Text,
    Whole,
    Written,
    object_name,
    read_quantity,
)
from bot.platform.config.yaml_reader import Node
from bot.text.wording import counted, did_you_mean, listed, shortened
from k8s.katib.pod_shape import PodShape
from k8s.nodes.gpus import GPU_CLASS
from k8s.nodes.machines import UNLIMITED, Machine
from k8s.objects import CLASS_PREFIX, GPU
from k8s.quantities import amount, scaled

PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
MEBIBYTE = Fraction(2**20)


def _resources(node: Node) -> dict[str, str]:
    found = node.mapping()
    for name, each in found.items():
        if not RESOURCE.fullmatch(name):
            each.error("must be a resource with a domain, such as rdma/hca")
    return {name: read_quantity(each) for name, each in found.items()}


def _choices(node: Node) -> dict[str, tuple[str, ...]]:
    """Return the allowed values of each node label."""
    if node.raw.isdecimal():
        node.error("must be node labels. For the number of nodes per trial, use nodes_per_trial.")
        return {}
    found = node.mapping()
    for each in found.values():
        if each.value == [] or isinstance(each.value, dict):
            each.error("must be a value or a list of values")
    return {
        key: tuple(item.raw for item in each.items()) if isinstance(each.value, list) else (each.raw,)
        for key, each in found.items()
    }


MachineName = Annotated[
    str, Name(PROFILE_NAME, "have only lowercase letters, digits, dots, dashes, and underscores, at most 40")
]
Resource = Annotated[
    Text,
    Matching(RESOURCE, f"a resource such as {GPU} or nvidia.com/mig-3g.40gb", "resource"),
    Key("nvidia.com/mig-3g.40gb", GPU),
]
Resources = Annotated[
    dict[str, str],
    Reads(_resources),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number"]}}),
]
LabelChoices = Annotated[
    dict[str, tuple[str, ...]],
    Reads(_choices),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"anyOf": [SCALAR, {"type": "array", "items": SCALAR}]}}
    ),
]


@dataclass(frozen=True, kw_only=True)
class Profile(Section):
    """A machine type: what one trial requests, and where it runs. Unset values are those of `trials:`."""

    name: MachineName
    gpus: Annotated[Whole, Key("8", least=0)]  # on each of its nodes
    """GPUs, or MIG slices, of one trial."""
    nodes_per_trial: Annotated[Whole, Key("4", least=1)] = 1
    """Nodes of one trial, each with the profile's GPUs
    ([details](machines.md#run-a-trial-on-several-machines)). `nodes` of a space file and `nodes=`
    override it."""
    resource: Resource = GPU
    """Resource that a GPU or a MIG slice is requested as."""
    device_class: Annotated[
        Text, Matching(GPU_CLASS, "a DeviceClass whose name starts with gpu or mig"), Key("gpu.nvidia.com")
    ] = ""
    """DeviceClass to claim GPUs by, instead of `resource`
    ([details](machines.md#claim-gpus-by-a-deviceclass))."""
    cpu: Annotated[Quantity, Key("96", "`trials.cpu`")] = ""
    """Requested CPUs of one trial."""
    whole_cpus: Annotated[Flag, Key("true")] = False
    """Set the CPU limit to the request. With the kubelet's static CPU manager policy, the trial then gets
    CPUs of its own ([details](machines.md#whole-cpus)). `cpu` must be a whole number."""
    memory: Annotated[Quantity, Key("1Ti", "`trials.memory`")] = ""
    """Requested memory of one trial, which is also the limit."""
    shared_memory: Annotated[Quantity, Key("256Gi", "half of the node's memory")] = ""
    """Size limit of `/dev/shm`. Its contents count toward the memory."""
    resources: Annotated[Resources, Key("{rdma/hca: 8}")] = field(default_factory=dict)
    """More resources of one trial, by name."""
    nodes: Annotated[
        LabelChoices,
        Key("{nvidia.com/gpu.product: [NVIDIA-H100-80GB-HBM3, NVIDIA-H100-NVL]}", "`trials.nodes`"),
    ] = field(default_factory=dict)
    """Labels of the nodes to run on, in addition to `trials.nodes`: a value, or a list of values."""
    tolerations: Annotated[Tolerations, Key("[{key: dedicated, value: h100}]", "`trials.tolerations`")] = ()
    """Tolerations, in addition to `trials.tolerations`."""
    runtime_class: RuntimeClass = ""
    """RuntimeClass of the pods. k3s needs `nvidia`, unless it is the default runtime."""
    scheduler: Annotated[Text, object_name("a scheduler"), Key("volcano", "the cluster's")] = ""
    """Scheduler of the pods."""
    priority_class: Annotated[Text, object_name("a PriorityClass"), Key("research", "the cluster's")] = ""
    """PriorityClass of the pods."""

    @property
    def requested(self) -> str:
        """The resource that counts its GPUs."""
        return CLASS_PREFIX + self.device_class if self.device_class else self.resource

    def problems(self, context: Any) -> Iterator[Problem]:
        if self.device_class and self.resource != GPU:
            yield "", f"device_class replaces resource; remove one of them. Got resource: {self.resource}"
        elif self.resource.startswith(CLASS_PREFIX):
            yield "", f"resource must be device_class: {self.resource.removeprefix(CLASS_PREFIX)}"
        for key, most in (("gpus", "gpus_per_trial"), ("nodes_per_trial", "nodes_per_trial")):
            number, limit = getattr(self, key), getattr(context.limits, most)
            if number > limit:
                least = int(key != "gpus")
                yield key, f"must be from {least} to {limit} (limits.{most}); got {number}"
        if self.whole_cpus and not (self.cpu and self.memory):
            yield "", "whole_cpus needs cpu and memory: only then are all requests equal to their limits"
        elif self.whole_cpus and amount(self.cpu).denominator != 1:
            yield "", f"whole_cpus needs a whole number of CPUs; got cpu: {self.cpu}"
        shared, memory = self.shared_memory, self.memory
        if shared and memory and amount(shared) > amount(memory):
            yield "", f"shared_memory counts toward memory ({memory}) and can't exceed it; got {shared}"


@dataclass(frozen=True, kw_only=True)
class Taint(Section):
    key: Annotated[Written, Key("nvidia.com/gpu")]
    """Taint key."""
    value: Annotated[Written | None, Key("gpus")] = None
    """Taint value, for `Equal`."""
    effect: Annotated[Effect, Key("NoSchedule")] = "NoSchedule"
    """Taint effect."""


@dataclass(frozen=True, kw_only=True)
class Pool(Section):
    """An autoscaled pool: what one machine has."""

    name: MachineName
    gpus: Annotated[Whole, Key("8", least=0)] = 0
    """GPUs of one machine."""
    resource: Resource = GPU
    """Resource that a GPU or a MIG slice is requested as."""
    cpu: Annotated[Quantity, Key("190", "no limit")] = ""
    """Allocatable CPUs of one machine."""
    memory: Annotated[Quantity, Key("1900Gi", "no limit")] = ""
    """Allocatable memory of one machine."""
    resources: Annotated[Resources, Key("{rdma/hca: 8}")] = field(default_factory=dict)
    """More resources of one machine, by name."""
    labels: Annotated[Labels, Key("{cloud.google.com/gke-accelerator: nvidia-h100-80gb}")] = field(
        default_factory=dict
    )
    """Labels of its nodes."""
    taints: Annotated[
        Several[Annotated[dict[str, str], Via(Taint, given)]],
        Key("[{key: dedicated, value: h100, effect: NoSchedule}]"),
    ] = ()
    """Taints of its nodes."""


def _machine(pool: Pool) -> Machine:
    sizes = {"cpu": pool.cpu, "memory": pool.memory} | pool.resources
    found = {key: amount(size) if size else UNLIMITED for key, size in sizes.items()}
    return Machine(
        name=f"pool {pool.name}",
        resources=found | {pool.resource: Fraction(pool.gpus)},
        labels=pool.labels,
        taints=pool.taints,
    )


PoolMachine = Annotated[Machine, Via(Pool, _machine)]


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
        resource=own.requested,
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


def on_machines_of(team: Team | None, shape: PodShape) -> PodShape:
    """Return the shape limited to the machines reserved for a team."""
    if team is None:
        return shape
    choices = {key: values for key, values in shape.node_choices.items() if key not in team.nodes}
    return replace(
        shape,
        nodes=shape.nodes | team.nodes,
        node_choices=choices,
        tolerations=(
            *shape.tolerations,
            *(each for each in team.tolerations if each not in shape.tolerations),
        ),
    )
