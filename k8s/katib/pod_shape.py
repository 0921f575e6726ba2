"""The settings of a trial's pod, as values: node labels, tolerations, CPU, memory, volumes, Secrets, grace,
user id, scheduler, priority class.
"""

from dataclasses import dataclass, field

from k8s.objects import GPU
from k8s.trial_kinds import JOB, TrialKind

TRIAL_UID = 1000


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A PersistentVolumeClaim in the trials' namespace, and its mount path."""

    claim: str
    at: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class SecretVariables:
    """A Secret in the trials' namespace, and those of its keys that become variables of the same name."""

    name: str
    keys: tuple[str, ...]
    optional: bool = False  # whether the training starts without it


@dataclass(frozen=True, kw_only=True)
class PodShape:
    """Settings of a trial's pod: those of the cluster, with those of its profile and team."""

    runtime_class: str = ""
    nodes: dict[str, str] = field(default_factory=dict)  # node selector
    node_choices: dict[str, tuple[str, ...]] = field(default_factory=dict)  # labels with several values
    tolerations: tuple[dict[str, str], ...] = ()
    resource: str = GPU  # that a GPU, or a MIG slice, is requested as
    cpu: str = ""  # requested
    whole_cpus: bool = False  # CPU limit = request, which the kubelet's static policy needs
    memory: str = ""  # request and limit
    shared_memory: str = ""  # size limit of /dev/shm; counts toward the memory
    resources: dict[str, str] = field(default_factory=dict)  # others, such as rdma/hca
    volumes: tuple[Volume, ...] = ()
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL, unless the space sets it
    user: int = TRIAL_UID  # user id of the training; 0: the image's user, usually root
    scheduler: str = ""  # "": the cluster's default
    priority_class: str = ""
    pack: bool = False  # prefer machines that other trials use
    multi_node: TrialKind = JOB  # of trials of several nodes
