"""Decide the queue and the priority of a sweep's trials, or refuse them; without a queue, trials of several
nodes run one at a time. Pure.
"""

from dataclasses import dataclass, replace

from bot.core.errors import UserError
from bot.core.request import SweepRequest
from bot.core.space import SearchSpace
from bot.platform.config.policy import Config
from bot.platform.config.queues import Member, priority_denial, queue_denial
from k8s.katib.device_claims import device_class
from k8s.katib.pod_shape import PodShape
from k8s.kueue import job_labels


@dataclass(frozen=True, kw_only=True)
class Queueing:
    """Where trials wait. Empty: the cluster decides."""

    queue: str = ""  # Kueue's LocalQueue
    priority: str = ""  # low, normal, or high
    priority_class: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the trials' Jobs. Kueue reads them there, and on no pod."""
        return job_labels(self.queue, self.priority_class if self.queue else "")

    @property
    def pod_priority(self) -> str:
        """Return the PriorityClass of the pods: without a queue, the scheduler decides who is first."""
        return "" if self.queue else self.priority_class


def with_priority(shape: PodShape, place: Queueing) -> PodShape:
    """Return the pods with the PriorityClass of a sweep's priority, which replaces the profile's."""
    return replace(shape, priority_class=place.pod_priority or shape.priority_class)


def one_at_a_time(space: SearchSpace, nodes: int, request: SweepRequest, place: Queueing) -> SearchSpace:
    """Return the space with one trial at a time if nothing else starts all nodes of a trial together.

    Without a queue, the scheduler places each pod by itself, and two half-started trials can wait for each
    other forever. Kueue admits all pods of a trial at once.
    """
    if nodes == 1 or place.queue or request.parallel is not None or space.parallel == 1:
        return space
    note = (
        f"nodes={nodes}: one trial runs at a time, because two half-started trials could wait for "
        "each other's nodes. Use a queue, or set parallel= to run several."
    )
    return replace(space, parallel=1, notes=(*space.notes, note))


def check_claims(resource: str, place: Queueing) -> None:
    """Raise UserError for GPUs that Kueue doesn't count: it would admit them beyond its quotas.

    Kueue counts claims only with DynamicResourceAllocation, an alpha feature gate that is off by default, and
    its own mapping of each DeviceClass (kubernetes-sigs/kueue#10504).
    """
    if place.queue and (claimed := device_class(resource)):
        raise UserError(
            f"GPUs of the DeviceClass {claimed} can't be queued: the quotas of queue {place.queue} don't "
            "count them. *Fix:* Use another profile=, or ask an admin to remove the queue.",
            field="profile",
        )


def queueing(request: SweepRequest, who: Member, config: Config) -> Queueing:
    """Return the queue and the priority of a request. Raises UserError if `who` can't use them."""
    policy = config.queueing
    names = [each.name for each in policy.queues]
    # Who can use no queue gets the reason: without a queue, trials would pass all that wait.
    default = next((name for name in names if not queue_denial(name, who, policy)), names[0] if names else "")
    queue = request.queue or who.team_queue or default
    priority = request.priority or policy.default_priority
    if queue and (refusal := queue_denial(queue, who, policy)):
        raise UserError(refusal, field="queue")
    if priority and (refusal := priority_denial(priority, who, policy)):
        raise UserError(refusal, field="priority")
    return Queueing(queue=queue, priority=priority, priority_class=policy.priority_class(priority))
