"""Hold reserved GPUs: the job of one work item, which creates and deletes placeholders as needed.

A worker can die at any call: placeholders have deterministic names, and each run starts from what the cluster
has. The ConfigMap `sweepbot-reservations` survives the loss of Redis.
"""

import logging
from collections.abc import Iterable
from datetime import timedelta

from bot.platform.clients import Clients
from bot.workspaces.reservations.models import Reservation, needed, shape_of, surplus
from bot.workspaces.reservations.store import ReservationStore, report_rejections
from k8s.api.errors import ApiError
from k8s.katib.trial_pod import placement
from k8s.kueue import read_workload, unfinished
from k8s.objects import Ref
from k8s.reservations import (
    RESERVATION_LABEL,
    Placeholder,
    placeholder,
    placeholder_name,
    read_placeholder,
)

log = logging.getLogger(__name__)

INTERVAL = timedelta(seconds=30)  # while there are reservations


async def hold(_: str, clients: Clients) -> timedelta | None:
    """Bring the placeholders of all reservations up to date. Return when to run again; None without any.

    Raises ApiError, UnreachableError; a namespace that rejects a change doesn't keep others from theirs.
    """
    stored = await ReservationStore(clients).read()
    known, notified = stored.reservations, stored.rejections
    failure: ApiError | None = None
    for namespace in {one.namespace for one in known}:
        here = [one for one in known if one.namespace == namespace]
        try:
            await _hold_in(namespace, here, clients)
            await report_rejections(here, notified, None, clients)
        except ApiError as error:
            log.warning("can't hold reserved GPUs in %s: %s", namespace, error)
            failure = error
            if error.permanent:
                await report_rejections(here, notified, error, clients)
    if failure and not failure.permanent:
        raise failure
    return INTERVAL if known else None


async def _hold_in(namespace: str, known: list[Reservation], clients: Clients) -> None:
    now, cluster = clients.now(), clients.cluster
    found = await cluster.list("Job", namespace, labels=RESERVATION_LABEL)
    jobs = [each for job in found if (each := read_placeholder(job))]
    active = [one for one in known if one.active(now) and clients.config.reservations]
    listed = await cluster.list("Workload", namespace, only=unfinished) if active else ()
    numbers = needed(active, [read_workload(each) for each in listed])
    for one in known:
        mine = [job for job in jobs if job.reservation == one.id]
        if one in active:
            await _adjust(one, mine, numbers[one.id], clients)
        elif mine:
            await _delete(namespace, mine, clients)
        else:
            await ReservationStore(clients).remove(one.id)
    ids = {one.id for one in known}
    await _delete(namespace, [job for job in jobs if job.reservation not in ids], clients)


async def _adjust(one: Reservation, mine: list[Placeholder], number: int, clients: Clients) -> None:
    await _delete(one.namespace, surplus(mine, number), clients)
    taken = {job.number for job in mine}
    free = (n for n in range(one.gpus + len(taken)) if n not in taken)
    where = placement(shape_of(one, clients.config), 0)
    for _ in range(number - len(mine)):
        manifest = placeholder(
            placeholder_name(one.id, next(free)),
            one.namespace,
            reservation=one.id,
            team=one.team,
            queue=one.queue,
            image=clients.config.placeholder_image,
            until=one.until,
            now=clients.now(),
            resource=one.resource,
            placement=where,
        )
        try:
            await clients.cluster.create(manifest)
        except ApiError as error:
            if not error.exists:
                raise


async def _delete(namespace: str, jobs: Iterable[Placeholder], clients: Clients) -> None:
    for job in jobs:
        await clients.cluster.delete(Ref("Job", namespace, job.name), uid=job.uid)
