"""Decide how many replicas run in free GPUs or CPUs, and which other pods wait for those of replicas. Pure.

The number goes down at once, and up one by one after enough was free for some time.

A pod that terminates still holds what it requests. A pod that waits with a nominated node already has its
victims, so its demand counts on that node only.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.platform.config.elastic import ElasticDeployment
from k8s.nodes.scheduling import OpenNode, ScheduledPod, Sizes, admits, gpu_resource, placement, pod_needs
from k8s.objects import Manifest

FREE_FOR = timedelta(minutes=5)  # uninterrupted, before the first step up
STEP_INTERVAL = timedelta(minutes=1)  # between two steps up
AFTER_DOWN = timedelta(minutes=10)  # loading a model takes minutes


@dataclass(frozen=True, kw_only=True)
class Replica:
    """What the scheduler has to find for one replica."""

    namespace: str
    deployment: str
    priority: int
    needs: Sizes
    placement: Manifest = field(default_factory=dict)

    @property
    def gpus(self) -> str:
        """Return the name of its GPUs; "" if it has none and follows free CPUs."""
        return gpu_resource(self.needs)

    def owns(self, pod: ScheduledPod) -> bool:
        return (pod.namespace, pod.deployment) == (self.namespace, self.deployment)


@dataclass(frozen=True, kw_only=True)
class Supply:
    """The cluster as one Deployment sees it, in replicas."""

    running: int  # with a node, and not terminating
    ready: int
    free: int  # more that fit now
    coming: int  # more that fit once the pods that terminate are gone
    pressing: tuple[ScheduledPod, ...] = ()  # one of each kind that fits only in place of replicas
    nominated: tuple[ScheduledPod, ...] = ()  # the scheduler preempts others for them
    victims: tuple[ScheduledPod, ...] = ()  # replicas that must go for pods that can't preempt

    @property
    def pressure(self) -> bool:
        return bool(self.pressing or self.nominated)


def read_replica(deployment: Manifest, priority: int) -> Replica:
    """Return what the Deployment's template requests. Raises ValueError for an unreadable size."""
    spec, meta = deployment["spec"]["template"]["spec"], deployment["metadata"]
    return Replica(
        namespace=meta["namespace"],
        deployment=meta["name"],
        priority=priority,
        needs=pod_needs(spec),
        placement=placement(spec),
    )


def supply(replica: Replica, nodes: Iterable[OpenNode], pods: Collection[ScheduledPod]) -> Supply:
    """Return what the nodes and pods leave for this Deployment.

    Args:
        nodes: the open ones; no pod is scheduled to others.
    """
    mine = [pod for pod in pods if replica.owns(pod) and pod.node and not pod.terminating]
    free = _FreeNodes({node.name: node for node in nodes}, replica)
    free.fill(pods)
    waiting = [pod for pod in pods if _competes(pod, replica)]
    found = free.place([pod for pod in waiting if not pod.nominated], mine)
    return Supply(
        running=len(mine),
        ready=sum(pod.ready for pod in mine),
        free=free.blocks(free.now),
        coming=free.blocks(free.soon),
        pressing=tuple(found),
        nominated=tuple(pod for pod in waiting if pod.nominated and pod.priority > replica.priority),
        victims=tuple(free.victims),
    )


def _competes(pod: ScheduledPod, replica: Replica) -> bool:
    """Return whether a pod without a node comes before new replicas; the replicas' own don't count."""
    waits = not pod.node and not pod.terminating and (pod.waits or pod.nominated)
    rivals = waits and (pod.gpus or not replica.gpus)
    return bool(rivals) and pod.priority >= replica.priority and not replica.owns(pod)


class _FreeNodes:
    """What is free on each node: `now`, and `soon`, once the pods that terminate are gone."""

    def __init__(self, nodes: Mapping[str, OpenNode], replica: Replica) -> None:
        self.nodes, self.replica = nodes, replica
        self.now = {name: dict(node.sizes) for name, node in nodes.items()}
        self.soon = {name: dict(node.sizes) for name, node in nodes.items()}
        self.victims: list[ScheduledPod] = []
        self._left: dict[str, list[str]] = {}  # by shape: nodes where such pods can still fit

    def fill(self, pods: Iterable[ScheduledPod]) -> None:
        for pod in pods:
            node = pod.node or (pod.nominated if pod.priority >= self.replica.priority else "")
            if node in self.nodes:
                _take(self.now[node], pod.needs)
                if not (pod.node and pod.terminating):
                    _take(self.soon[node], pod.needs)

    def place(self, waiting: Iterable[ScheduledPod], mine: Iterable[ScheduledPod]) -> list[ScheduledPod]:
        """Place pods that wait. Return those that would fit only in place of replicas.

        The scheduler chooses the victims of pods that can preempt; for the others, `victims` gets them.
        """
        ours = defaultdict(list)
        for pod in sorted(mine, key=lambda each: (not each.ready, each.created)):
            ours[pod.node].append(pod)  # the last one goes first: as in ReplicaSets, the newest unready one
        pressing, settled = list[ScheduledPod](), set[str]()
        for pod in sorted(waiting, key=lambda each: (-each.priority, each.created, each.key)):
            shape = json.dumps([pod.priority, pod.preempts, pod.needs, pod.placement])
            if shape in settled or self._fits_beside(pod, shape):
                continue
            lost = self._replaced(pod, ours) if pod.priority > self.replica.priority else None
            if lost:
                pressing.append(pod)
            if lost and not pod.preempts:
                self._evict(pod, lost, ours)
            else:
                settled.add(shape)  # what is free only shrinks, so the same follows for every pod like this
        return pressing

    def blocks(self, free: Mapping[str, dict[str, int]]) -> int:
        """Return how many more replicas fit."""
        needs = self.replica.needs.items()
        return sum(
            max(0, min(sizes.get(resource, 0) // size for resource, size in needs))
            for name, sizes in free.items()
            if admits(self.nodes[name], self.replica.placement, self.replica.gpus)
        )

    def _fits_beside(self, pod: ScheduledPod, shape: str) -> bool:
        """Place the pod on a node where it fits without replacing a replica, if there is one."""
        if shape not in self._left:
            self._left[shape] = [name for name in self.nodes if admits(self.nodes[name], pod.placement)]
        left = self._left[shape]
        while left and not _has(self.soon[left[-1]], pod.needs):
            left.pop()
        if left:
            _take(self.soon[left[-1]], pod.needs)
            _take(self.now[left[-1]], pod.needs)
        return bool(left)

    def _replaced(
        self, pod: ScheduledPod, ours: Mapping[str, list[ScheduledPod]]
    ) -> list[ScheduledPod] | None:
        """Return the fewest replicas of one node in whose place the pod fits; None if it fits nowhere."""
        found: list[list[ScheduledPod]] = []
        for name, here in ours.items():
            if name not in self.nodes or not admits(self.nodes[name], pod.placement):
                continue
            free, lost = dict(self.soon[name]), list[ScheduledPod]()
            for each in reversed(here):
                _give(free, each.needs)
                lost.append(each)
                if _has(free, pod.needs):
                    found.append(lost)
                    break
        return min(found, key=len, default=None)

    def _evict(
        self, pod: ScheduledPod, lost: list[ScheduledPod], ours: Mapping[str, list[ScheduledPod]]
    ) -> None:
        name = lost[0].node
        for each in lost:
            _give(self.soon[name], each.needs)
            ours[name].remove(each)
        _take(self.soon[name], pod.needs)
        _take(self.now[name], pod.needs)
        self.victims += lost


def _has(free: Mapping[str, int], needs: Sizes) -> bool:
    return all(free.get(name, 0) >= size for name, size in needs.items() if size)


def _take(free: dict[str, int], needs: Sizes) -> None:
    for name, size in needs.items():
        free[name] = free.get(name, 0) - size


def _give(free: dict[str, int], needs: Sizes) -> None:
    for name, size in needs.items():
        free[name] += size  # its pod was taken from it


@dataclass(frozen=True, kw_only=True)
class Times:
    free_since: datetime | None = None  # one more replica fits; None: none does
    raised_at: datetime | None = None
    lowered_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    replicas: int  # the target
    free_since: datetime | None = None
    raise_at: datetime | None = None  # when the next step up follows, if it stays free


def decide(
    config: ElasticDeployment,
    replicas: int,
    supply: Supply,
    times: Times,
    now: datetime,
) -> Decision:
    """Return the next number of replicas, which can be the current one.

    Without pressure it is `running + free - reserve`. While other pods wait for what replicas have, it is
    what survives: the scheduler chooses the victims, and lowering the number keeps it from replacing them.
    While a replica has no node yet, there are no more.
    """
    if replicas < config.min:
        return Decision(replicas=config.min)
    if (most := _most(config, replicas, supply)) < replicas:
        return Decision(replicas=most)
    wanted = min(config.max, supply.running + supply.free - config.reserve)
    if supply.pressure or wanted <= replicas:
        return Decision(replicas=replicas)
    since = times.free_since or now
    pauses = ((since, FREE_FOR), (times.raised_at, STEP_INTERVAL), (times.lowered_at, AFTER_DOWN))
    raise_at = max(begin + pause for begin, pause in pauses if begin)
    if supply.running < replicas:
        return Decision(replicas=replicas, free_since=since)
    return Decision(replicas=replicas + (now >= raise_at), free_since=since, raise_at=raise_at)


def _most(config: ElasticDeployment, replicas: int, supply: Supply) -> int:
    """Return the most replicas that can stay. Pods that terminate count as gone: a rollout replaces them."""
    most = supply.running + supply.coming - config.reserve
    if supply.pressure:
        most = min(replicas, supply.running - len(supply.victims))
    return max(config.min, min(config.max, most))
