"""A reservation of GPUs for a team, and which placeholders it needs. Pure."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from bot.config.policy import Config
from bot.text.wording import counted
from k8s import objects
from k8s.kueue import Workload, fits_quota
from k8s.objects import GPU, Manifest, Ref
from k8s.reservations import Placeholder, is_placeholder

MAX_GPUS = 256  # of all reservations together: each GPU is one Job
MAX_TIME = timedelta(days=31)
CONFIGMAP_NAME = "sweepbot-reservations"
REJECTED = "rejected."  # prefix of the keys of reservations whose admins were notified of a rejection


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


_RESERVATION: TypeAdapter[Reservation] = TypeAdapter(Reservation)


def reservation_id(team: str, seed: str) -> str:
    """Return a name, the same for the same seed: a repeated delivery is the same reservation."""
    return f"{team[:20].strip('-')}-{hashlib.sha256(seed.encode()).hexdigest()[:5]}"


def ref(namespace: str) -> Ref:
    return Ref("ConfigMap", namespace, CONFIGMAP_NAME)


def config_map(namespace: str, entries: Mapping[str, Reservation | None]) -> Manifest:
    """Return the patch that stores these reservations by ID, and removes those that are None."""
    texts = {name: _RESERVATION.dump_json(one).decode() if one else None for name, one in entries.items()}
    removed = {REJECTED + name: None for name, one in entries.items() if one is None}
    return manifest_of(namespace, texts | removed)


def manifest_of(namespace: str, texts: Mapping[str, str | None]) -> Manifest:
    """Return the patch that stores these texts by key, and removes those that are None."""
    return objects.config_map(ref(namespace), texts)


def read(manifest: Manifest | None) -> list[Reservation]:
    """Return the stored reservations, the first to end first. One in another version's format is left out."""
    found = []
    for text in ((manifest or {}).get("data") or {}).values():
        try:
            found.append(_RESERVATION.validate_json(text))
        except ValidationError:
            continue
    return sorted(found, key=lambda one: (one.until, one.id))


def rejections(manifest: Manifest | None) -> dict[str, str]:
    """Return why the cluster rejects placeholders, by the ID of their reservation."""
    data = (manifest or {}).get("data") or {}
    return {key.removeprefix(REJECTED): text for key, text in data.items() if key.startswith(REJECTED)}


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
