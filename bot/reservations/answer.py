"""Answer `/gpus reserve`, `release`, and `reservations`: a worker's part of these commands."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.capacity.quotas import read_queues
from bot.clients import Clients
from bot.config.permissions import doctor_denial
from bot.config.policy import Config
from bot.core.commands import Action, AuditEntry
from bot.core.errors import UserError
from bot.core.work_item import RESERVATIONS
from bot.reservations.command import (
    list_text,
    made,
    made_text,
    parse_reserve,
    quota_denial,
    released_text,
    size_denial,
    summary,
    unknown_text,
)
from bot.reservations.hold import load, save
from bot.reservations.models import Reservation, read, ref, rejections
from bot.runtime.audit import write_entry
from k8s.api.errors import ApiError, UnreachableError
from k8s.reservations import PRIORITY_CLASS

MAX_AUDIT = 200  # characters of a command
GRANT = "*Fix:* Run `/sweep doctor`: it shows what is missing and how to add it."


def zone_of(config: Config, channel: str) -> ZoneInfo:
    """Return the time zone of a channel's digest, else of the first one, else UTC."""
    mine = (each.zone for each in config.digests if each.channel == channel)
    return next(mine, config.digests[0].zone if config.digests else ZoneInfo("UTC"))


async def answer_reservations(
    view: str, rest: str, *, user: str, channel: str, asked_at: datetime, clients: Clients
) -> str:
    """Return the answer. Repeating a request with the same `asked_at` changes nothing.

    Raises ApiError, UnreachableError, RedisError.
    """
    config = clients.config
    if not config.reservations:
        return "Reservations aren't enabled. *Fix:* Ask an admin to set `reservations: true`."
    stored = await clients.cluster.get(ref(clients.settings.k8s_namespace))
    known = read(stored)
    if view == "reservations":
        return list_text(known, clients.now(), rejections(stored))
    if refused := doctor_denial(user, config):
        return refused
    entry = AuditEntry(at=clients.now(), user=user, action=Action.OPERATE, about=rest[:MAX_AUDIT])
    write_entry(f"gpus {view}", entry)
    if view == "release":
        return await _release(rest.strip("` "), clients)
    try:
        asked = parse_reserve(rest, config, asked_at, zone_of(config, channel))
    except UserError as error:
        return str(error)
    if refused := await _kueue_denial(clients):
        return refused
    seed, home = f"{user} {asked_at.timestamp()} {rest}", clients.settings.k8s_namespace
    one = made(asked, user, seed, home, config, asked_at)
    others = [each for each in known if each.id != one.id]
    if refused := size_denial(asked, others, clients.now()) or await _quota_denial(one, clients):
        return refused
    if not any(each.id == one.id for each in known):
        await save(clients, one, one.id)
    await clients.queue.add(RESERVATIONS)
    return made_text(one)


async def _release(name: str, clients: Clients) -> str:
    known = [one for one in await load(clients) if one.active(clients.now())]
    one = next((each for each in known if each.id == name), None)
    if one is None:
        return unknown_text(name, known)
    await save(clients, replace(one, released=True), one.id)
    await clients.queue.add(RESERVATIONS)
    return released_text(one)


async def _kueue_denial(clients: Clients) -> str:
    """Return why reservations can't work in this cluster; "" if they can."""
    try:
        found = await clients.cluster.list("WorkloadPriorityClass", "")
    except ApiError as error:
        if not error.permanent:
            raise
        missing = "isn't installed" if error.status == 404 else "can't be read"
        return f"Reservations need Kueue, which {missing}. {GRANT}"
    names = {each["metadata"]["name"] for each in found}
    return (
        "" if PRIORITY_CLASS in names else f"The WorkloadPriorityClass `{PRIORITY_CLASS}` is missing. {GRANT}"
    )


async def _quota_denial(one: Reservation, clients: Clients) -> str:
    try:
        above = await clients.cluster.list("ClusterQueue", "")
        local = await clients.cluster.list("LocalQueue", one.namespace)
    except ApiError as error:
        if not error.permanent:
            raise
        return ""  # `/sweep doctor` reports the permission
    return quota_denial(one, read_queues(local, above, ()))


async def reserved_line(clients: Clients) -> str:
    """Return one line about all reservations, for `/gpus` and the digest; "" if they can't be read."""
    try:
        return summary(await load(clients), clients.now()) if clients.config.reservations else ""
    except (ApiError, UnreachableError):
        return ""
