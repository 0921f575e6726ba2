"""Answer `/gpus reserve`, `release`, and `reservations` from a worker: the time zone that counts, refusals
without Kueue or a quota, and the line for `/gpus` and the digest.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from bot.core.commands import Action, AuditEntry
from bot.core.errors import UserError
from bot.measure.capacity.quotas import read_queues
from bot.measure.gpus.command import GROUP, Later
from bot.platform.clients import Clients
from bot.platform.commands.grammar import Command, Option
from bot.platform.config.permissions import doctor_denial
from bot.platform.config.policy import Config
from bot.platform.runtime.audit import write_entry
from bot.platform.slack.mrkdwn import code, local_time, plain
from bot.text.wording import did_you_mean, shortened
from bot.workspaces.reservations.command import (
    EXAMPLES,
    RELEASE,
    RESERVE,
    USAGE,
    list_text,
    quota_denial,
    reservation,
    size_denial,
    summary,
    typed_text,
)
from bot.workspaces.reservations.models import ITEM, Reservation
from bot.workspaces.reservations.store import ReservationStore
from k8s.api.errors import ApiError, UnreachableError
from k8s.reservations import PRIORITY_CLASS

MAX_AUDIT = 200  # characters of a command
GRANT = "*Fix:* Run `/sweep doctor`: it shows what is missing and how to add it."


def zone_of(config: Config, channel: str) -> ZoneInfo:
    """Return the time zone of a channel's digest, else of the first one, else UTC."""
    mine = (each.zone for each in config.digests if each.channel == channel)
    return next(mine, config.digests[0].zone if config.digests else ZoneInfo("UTC"))


async def answer_reservations(
    view: str, values: Mapping[str, Any], *, user: str, channel: str, asked_at: datetime, clients: Clients
) -> str:
    """Return the answer. Repeating a request with the same `asked_at` changes nothing.

    Raises ApiError, UnreachableError, RedisError.
    """
    config = clients.config
    if not config.reservations:
        return "Reservations aren't enabled. *Fix:* Ask an admin to set `reservations: true`."
    store = ReservationStore(clients)
    stored = await store.read()
    known = stored.reservations
    if view == "reservations":
        return list_text(known, clients.now(), stored.rejections)
    if refused := doctor_denial(user, config):
        return refused
    about = typed_text(values)[:MAX_AUDIT]
    entry = AuditEntry(at=clients.now(), user=user, action=Action.OPERATE, about=about)
    write_entry(f"gpus {view}", entry)
    if view == "release":
        return await _release(values["name"].lower(), clients)
    try:
        home = clients.settings.k8s_namespace
        one = reservation(values, user, home, config, asked_at, zone_of(config, channel))
    except UserError as error:
        return plain(str(error))
    if refused := await _kueue_denial(clients):
        return refused
    others = [each for each in known if each.id != one.id]
    if refused := size_denial(one, others, clients.now()) or await _quota_denial(one, clients):
        return refused
    if not any(each.id == one.id for each in known):
        await store.save(one)
    await clients.queue.add(ITEM)
    return (
        f"Reserved {one.size} for team {one.team} until {local_time(one.until)} "
        f"({code(one.id)}). GPUs are reserved as they become free; no trials are stopped. "
        f"To release them: `/gpus release {one.id}`."
    )


async def _release(name: str, clients: Clients) -> str:
    store = ReservationStore(clients)
    known = [one for one in (await store.read()).reservations if one.active(clients.now())]
    one = next((each for each in known if each.id == name), None)
    if one is None:
        return (
            f"Unknown reservation {code(shortened(name))}.{did_you_mean(name, [each.id for each in known])}"
        )
    await store.save(replace(one, released=True))
    await clients.queue.add(ITEM)
    return f"Released {code(one.id)}: {one.size} of team {one.team}."


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
    if not clients.config.reservations:
        return ""
    try:
        stored = await ReservationStore(clients).read()
    except (ApiError, UnreachableError):
        return ""
    return summary(stored.reservations, clients.now())


def _command(
    name: str, ack: str, meaning: str, said: str = "", options: tuple[Option, ...] = (), usage: str = ""
) -> Command:
    later = Later(ack=ack, admins_only=bool(options), answer=answer_reservations)
    return Command(name, later, options, GROUP, meaning, usage=usage, said=said, answers=not options)


RESULT = "The result appears here in a moment."
RESERVES = f"reserve GPUs, optionally with profile= (admins only). Ends: {EXAMPLES}"
RELEASES = "end a reservation (admins only)"
LISTS = "GPUs that are reserved for teams"
GPU_COMMANDS = (
    _command(
        "reserve",
        f"Reserving… {RESULT}",
        RESERVES,
        "reserve book-gpu block-gpu set-aside (book block)",
        RESERVE,
        USAGE,
    ),
    _command(
        "reservations",
        "Reading reservations…",
        LISTS,
        "reserved has-reserved who-reserved (who team which have list any)",
    ),
    _command("release", f"Releasing… {RESULT}", RELEASES, "", RELEASE),
)
