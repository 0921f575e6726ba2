"""What the pods of all trials need on this cluster: `trials:` of the configuration file, such as tolerations,
CPU, memory, volumes, user, and the kind of Job on several nodes. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, Literal

from bot.platform.config.rules import Key, Matching, Problem, Reads, Several, Via
from bot.platform.config.section import Section
from bot.platform.config.value_types import Claim, Flag, Labels, Quantity, Text, Whole, Written, object_name
from bot.platform.config.yaml_reader import Node
from k8s.katib.manifest import KUBERNETES_GRACE
from k8s.katib.pod_shape import TRIAL_UID, PodShape, Volume
from k8s.trial_kinds import JOB, TRIAL_KINDS, TrialKind

MOUNT = re.compile(r"/[^:]*[^:/]")
MAX_GRACE = 24 * 3600  # seconds; the trial's GPUs stay allocated meanwhile
HIGHEST_USER = 2**31 - 1
MULTI_NODE = {kind.lower(): each for kind, each in TRIAL_KINDS.items()}
Effect = Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], Reads(Node.text)]


@dataclass(frozen=True, kw_only=True)
class Toleration(Section):
    key: Annotated[Written | None, Key("nvidia.com/gpu", "any")] = None
    """Taint key."""
    operator: Annotated[
        Annotated[Literal["Exists", "Equal"], Reads(Node.text)] | None, Key("Exists", "Equal")
    ] = None
    """How the taint's value is compared."""
    value: Annotated[Written | None, Key("gpus")] = None
    """Taint value, for `Equal`."""
    effect: Annotated[Effect | None, Key("NoSchedule", "any")] = None
    """Taint effect."""

    def problems(self, _: Any) -> Iterator[Problem]:
        if self.operator == "Exists" and self.value is not None:
            yield "", "value has no effect with operator Exists. Remove it, or use Equal."


def given(section: Section) -> dict[str, Any]:
    """Return the keys that are set."""
    return {key: value for key, value in vars(section).items() if value is not None}


Tolerations = Several[Annotated[dict[str, str], Via(Toleration, given)]]  # as Kubernetes takes them


@dataclass(frozen=True, kw_only=True)
class VolumeKeys(Section):
    claim: Annotated[Claim, Key("datasets")]
    """PersistentVolumeClaim in the trials' namespace."""
    at: Annotated[Text, Matching(MOUNT, "an absolute path such as /data", "path"), Key("/data")]
    """Mount path, absolute."""
    read_only: Annotated[Flag, Key("true")] = False
    """Mount it read-only."""

    @property
    def volume(self) -> Volume:
        return Volume(claim=self.claim, at=self.at, read_only=self.read_only)


RuntimeClass = Annotated[Text, object_name("a RuntimeClass"), Key("nvidia", "the cluster's")]


@dataclass(frozen=True, kw_only=True)
class TrialPods(Section):
    runtime_class: RuntimeClass = ""
    """RuntimeClass of the pods. k3s needs `nvidia`, unless it is the default runtime."""
    nodes: Annotated[Labels, Key("{pool: gpus}", "all nodes")] = field(default_factory=dict)
    """Labels of the nodes to run on."""
    tolerations: Annotated[
        Tolerations, Key("[{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]")
    ] = ()
    """Tolerations for the taints of GPU nodes."""
    cpu: Annotated[Quantity, Key("4")] = ""
    """Requested CPU."""
    memory: Annotated[Quantity, Key("32Gi")] = ""
    """Requested memory, which is also the limit."""
    volumes: Annotated[
        Several[Annotated[Volume, Via(VolumeKeys, attrgetter("volume"))]],
        Key("[{claim: datasets, at: /data, read_only: true}]"),
    ] = ()
    """Volumes to mount."""
    # 0 would delete the pod from the API while its process still uses the GPUs.
    grace_seconds: Annotated[Whole | None, Key("60", f"{KUBERNETES_GRACE}", least=1, most=MAX_GRACE)] = None
    """Seconds from SIGTERM to SIGKILL, unless the space file sets it."""
    multi_node: Annotated[
        TrialKind,
        Via(Annotated[Literal["job", "pytorchjob", "trainjob"], Reads(Node.text)], MULTI_NODE.__getitem__),
        Key("pytorchjob", "job"),
    ] = JOB
    """What runs a trial of several nodes: a Job, a PyTorchJob of Kubeflow's Training Operator
    ([details](machines.md#use-pytorchjobs)), or a TrainJob of Kubeflow Trainer 2
    ([details](machines.md#use-trainjobs))."""
    user: Annotated[Whole, Key("2001", least=0, most=HIGHEST_USER)] = TRIAL_UID
    """User ID that trials run as. 0: the image's user, usually root."""


ConfiguredShape = Annotated[PodShape, Via(TrialPods, lambda keys: PodShape(**vars(keys)))]
