"""A reservation of GPUs for a team, its machines, and which placeholders it needs. Pure."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.core.errors import UserError
from bot.core.work_item import WorkItem
from bot.platform.config.policy import Config
from bot.platform.config.profiles import Profile, chosen, on_machines_of, shaped
from bot.platform.pod_health.queue_words import fits_quota
from bot.text.wording import counted, listed
from k8s.katib.pod_shape import PodShape
from k8s.kueue import Workload
from k8s.nodes.gpu_pods import is_placeholder
from k8s.objects import GPU
from k8s.reservations import Placeholder

ITEM = WorkItem("reservations", "now")  # holds the GPUs of all
MAX_GPUS = 256  # of all reservations together: each GPU is one Job
MAX_TIME = timedelta(days=31)


@dataclass(frozen=True, kw_only=True)
class Reservation:
    id: str
    team: str
    gpus: int
    until: datetime
    by: str  # Slack user id
    namespace: str  # of the team's trials
    queue: str  # the team's LocalQueue
    profile: str = ""  # whose machines it is for; "": any with GPUs
    resource: str = GPU  # that the GPUs, or MIG slices, are requested as
    created: datetime
    released: bool = False  # by an admin; forgotten once its placeholders are gone

    def active(self, now: datetime) -> bool:
        return not self.released and now < self.until

    @property
    def size(self) -> str:
        """What is reserved, for users: `4 GPUs`, `4 GPUs (profile mig)`."""
        return counted(self.gpus, "GPU") + (f" (profile {self.profile})" if self.profile else "")


def reservation_id(team: str, seed: str) -> str:
    """Return a name, the same for the same seed: a repeated delivery is the same reservation."""
    return f"{team[:20].strip('-')}-{hashlib.sha256(seed.encode()).hexdigest()[:5]}"


def team_queue(team: str, config: Config) -> tuple[str, str]:
    """Return the namespace and the LocalQueue of a team's trials; "" for K8S_NAMESPACE, or if it has none."""
    found = next((each for each in config.teams if each.name == team), None)
    queues = [each.name for each in config.queueing.queues]
    return (found.namespace, found.queue or next(iter(queues), "")) if found else ("", "")


def needed(active: Iterable[Reservation], workloads: Iterable[Workload]) -> dict[str, int]:
    """Return, by ID, how many GPUs placeholders must hold: what the queue's trials neither use nor wait for.

    So waiting Workloads get their GPUs even if the ClusterQueue has no preemption. What one reservation
    doesn't cover counts toward the queue's next one of the same resource. All are of one namespace.
    """
    used, found = Counter[tuple[str, str]](), dict[str, int]()
    for each in workloads:
        if not is_placeholder(each.job) and (each.admitted or fits_quota(each)):
            used.update({(each.queue, resource): number for resource, number in each.devices.items()})
    for one in active:
        covered = min(one.gpus, used[one.queue, one.resource])
        used[one.queue, one.resource] -= covered
        found[one.id] = one.gpus - covered
    return found


def surplus(placeholders: Iterable[Placeholder], number: int) -> list[Placeholder]:
    """Return the placeholders above this number, those that wait first."""
    ordered = sorted(placeholders, key=lambda each: (each.suspended, each.number))
    return ordered[number:]


def profile_of(name: str | None, config: Config) -> Profile | None:
    """Return the profile of a request; None without `profile=`. Raises UserError if it can't be reserved."""
    with_gpus = [each for each in config.profiles if each.gpus and not each.device_class]
    names = f"Available: {listed([each.name for each in with_gpus])}." if with_gpus else "Add one with GPUs."
    if name is None:
        if with_gpus and GPU not in {each.resource for each in with_gpus}:
            raise UserError(f"Missing profile=, because no profile requests {GPU}. {names}")
        return None
    found = chosen(config.profiles, name, None)
    if found and not found.gpus:
        raise UserError(f"profile= must be a profile with GPUs; {found.name} has none. {names}")
    if found and found.device_class:
        raise UserError(f"profile={found.name} claims GPUs, which queues don't count. {names}")
    return found


def shape_of(one: Reservation, config: Config) -> PodShape:
    """Return where its team's trials with this profile run. A profile that was removed has no machines."""
    profile = next((each for each in config.profiles if each.name == one.profile), None)
    team = next((each for each in config.teams if each.name == one.team), None)
    return on_machines_of(team, shaped(config.trials, profile, profile.gpus) if profile else config.trials)
