"""Read `/gpus reserve` (`until=`, `profile=`), and build the texts about reservations: the list, and refusals
of sizes, times, and quotas. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bot.core.errors import UserError
from bot.measure.capacity.quotas import Queues, has_quota
from bot.platform.commands.grammar import Option
from bot.platform.commands.option_types import Choice, Number, typed
from bot.platform.config.policy import Config
from bot.platform.slack.mrkdwn import code, local_time, mention, quoted
from bot.text.wording import shortened
from bot.workspaces.reservations.models import (
    MAX_GPUS,
    MAX_TIME,
    Reservation,
    profile_of,
    reservation_id,
    team_queue,
)
from k8s.objects import GPU

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DURATION = re.compile(r"([0-9]{1,4})([hd])")
_DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:t([0-9]{2}:[0-9]{2}))?")
USAGE = "team=vision gpus=16 until=Fri"
EXAMPLES = "until=Fri, until=2026-11-27, until=2026-11-27T18:00, or until=48h"
RESERVE = (
    Option("team", Choice("teams", "team"), required=True, after=("for",)),
    Option("gpus", Number(1, MAX_GPUS), required=True),
    Option("until", typed, required=True, after=("until", "till")),
    Option("profile", typed),
)
RELEASE = (Option("name", typed, word=True, required=True),)


def reservation(
    options: Mapping[str, Any], user: str, home: str, config: Config, now: datetime, zone: ZoneInfo
) -> Reservation:
    """Return the reservation that a command asks for, by the values of `RESERVE`. Raises UserError.

    The same command at the same time is the same reservation: a delivery can be repeated. `home`:
    K8S_NAMESPACE.
    """
    team, profile_name = options["team"], options.get("profile")
    namespace, queue = team_queue(team, config)
    if not queue:
        raise UserError(
            f"Reservations need a Kueue queue, and team {team} has none. *Fix:* Set `teams.{team}.queue`."
        )
    profile = profile_of(profile_name and profile_name.lower(), config)
    return Reservation(
        id=reservation_id(team, f"{user} {now.timestamp()} {typed_text(options)}"),
        team=team,
        gpus=options["gpus"],
        until=parse_until(options["until"], now, zone),
        by=user,
        namespace=namespace or home,
        queue=queue,
        profile=profile.name if profile else "",
        resource=profile.resource if profile else GPU,
        created=now,
    )


def typed_text(options: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items())


def size_denial(asked: Reservation, others: Iterable[Reservation], now: datetime) -> str:
    """Return why there can't be another reservation of this size; "" if there can."""
    total = sum(one.gpus for one in others if one.active(now))
    if total + asked.gpus <= MAX_GPUS:
        return ""
    return f"All reservations together can have up to {MAX_GPUS} GPUs; {total} are reserved."


def list_text(known: Iterable[Reservation], now: datetime, rejected: Mapping[str, str]) -> str:
    """Return all reservations. `rejected`: why the cluster rejects placeholders, by ID."""
    lines = [line(one, rejected.get(one.id, "")) for one in known if one.active(now)]
    return "\n".join(["*Reservations*", *lines]) if lines else "No GPUs are reserved."


def line(one: Reservation, rejected: str = "") -> str:
    problem = f". The cluster rejects its placeholders: {quoted(rejected)}" if rejected else ""
    return (
        f"• {code(one.id)}: {one.size} for team {one.team} until {local_time(one.until)}, "
        f"by {mention(one.by)}{problem}"
    )


def summary(known: Iterable[Reservation], now: datetime) -> str:
    """Return one line for `/gpus` and the digest; "" without reservations."""
    found = [
        f"{one.size} for team {one.team} until {local_time(one.until)}" for one in known if one.active(now)
    ]
    return f"Reserved: {', '.join(found)}." if found else ""


def quota_denial(one: Reservation, queues: Queues) -> str:
    """Return why its queue can never admit placeholders; "" if it can, or if that is unknown."""
    if has_quota(one.namespace, one.queue, one.resource, queues) is not False:
        return ""
    fix = "Add the resource to its ClusterQueue, or reserve GPUs of another profile."
    return f"Queue {one.queue} has no quota for {one.resource}. *Fix:* {fix}"


def parse_until(text: str, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the end, in UTC or the zone. A weekday or a date is its whole day in the zone.

    Raises UserError for what isn't a time, or isn't in the next 31 days.
    """
    end = _end(text.lower(), now, zone)
    if end is None:
        allowed = "a weekday, a date, or a duration"
        raise UserError(f'until= must be {allowed}; got "{shortened(text)}". Use {EXAMPLES}.')
    if end <= now:
        raise UserError(f'until= must be in the future; got "{shortened(text)}".')
    if end - now > MAX_TIME:
        raise UserError(f'until= can be up to {MAX_TIME.days} days from now; got "{shortened(text)}".')
    return end


def _end(text: str, now: datetime, zone: ZoneInfo) -> datetime | None:
    if found := _DURATION.fullmatch(text):
        unit = timedelta(hours=1) if found[2] == "h" else timedelta(days=1)
        return now + int(found[1]) * unit
    today = now.astimezone(zone).date()
    if len(text) >= 3 and (named := [n for n, day in enumerate(DAYS) if day.startswith(text)]):
        return _midnight_after(today + timedelta(days=(named[0] - today.weekday()) % 7), zone)
    if not (found := _DATE.fullmatch(text)):
        return None
    try:
        day = date.fromisoformat(found[1])
        if not found[2]:
            return _midnight_after(day, zone)
        return datetime.combine(day, time.fromisoformat(found[2]), zone)
    except (ValueError, OverflowError):
        return None


def _midnight_after(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day + timedelta(days=1), time(), zone)
