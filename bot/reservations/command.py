"""Parse `/gpus reserve`, and build the texts about reservations. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.capacity.quotas import Queues, has_quota
from bot.config.policy import Config
from bot.core.errors import UserError
from bot.reservations.machines import profile_of
from bot.reservations.models import MAX_GPUS, Reservation, reservation_id, team_queue
from bot.reservations.until import EXAMPLES, parse_until
from bot.slack.mrkdwn import code, local_time, mention, quoted
from bot.text.wording import did_you_mean, shortened
from k8s.objects import GPU

VIEWS = ("reserve", "reservations", "release")
USAGE = f"Usage: `/gpus reserve team=vision gpus=16 until=Fri`, also with profile=. Ends: {EXAMPLES}."
REQUIRED = ("team", "gpus", "until")
KEYS = (*REQUIRED, "profile")


@dataclass(frozen=True, kw_only=True)
class ReserveRequest:
    team: str
    gpus: int
    until: datetime
    profile: str
    resource: str


def parse_reserve(text: str, config: Config, now: datetime, zone: ZoneInfo) -> ReserveRequest:
    """Parse what follows `reserve`. Raises UserError."""
    options = _options(text)
    if missing := [key for key in REQUIRED if key not in options]:
        raise UserError(f"Missing {missing[0]}=. {USAGE}")
    team = options["team"].lower()
    if team not in (teams := [each.name for each in config.teams]):
        raise UserError(f"Unknown team {shortened(team)}.{did_you_mean(team, teams)}")
    if not team_queue(team, config)[1]:
        raise UserError(
            f"Reservations need a Kueue queue, and team {team} has none. *Fix:* Set `teams.{team}.queue`."
        )
    gpus = options["gpus"]
    if not re.fullmatch(r"[0-9]{1,4}", gpus) or not 1 <= int(gpus) <= MAX_GPUS:
        raise UserError(f'gpus= must be a whole number from 1 to {MAX_GPUS}; got "{shortened(gpus)}".')
    profile = profile_of(options.get("profile"), config)
    return ReserveRequest(
        team=team,
        gpus=int(gpus),
        until=parse_until(options["until"], now, zone),
        profile=profile.name if profile else "",
        resource=profile.resource if profile else GPU,
    )


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        key = key.lower()
        if not equals or key not in KEYS or key in found or not value:
            raise UserError(f'"{shortened(word)}" isn\'t an option of reserve. {USAGE}')
        found[key] = value
    return found


def made(
    asked: ReserveRequest, user: str, seed: str, home: str, config: Config, now: datetime
) -> Reservation:
    """Return the reservation of a request. `home`: K8S_NAMESPACE; `seed`: of its ID."""
    namespace, queue = team_queue(asked.team, config)
    return Reservation(
        id=reservation_id(asked.team, seed),
        team=asked.team,
        gpus=asked.gpus,
        until=asked.until,
        by=user,
        namespace=namespace or home,
        queue=queue,
        profile=asked.profile,
        resource=asked.resource,
        created=now,
    )


def size_denial(asked: ReserveRequest, others: Iterable[Reservation], now: datetime) -> str:
    """Return why there can't be another reservation of this size; "" if there can."""
    total = sum(one.gpus for one in others if one.active(now))
    if total + asked.gpus <= MAX_GPUS:
        return ""
    return f"All reservations together can have up to {MAX_GPUS} GPUs; {total} are reserved."


def made_text(one: Reservation) -> str:
    return (
        f"Reserved {one.size} for team {one.team} until {local_time(one.until)} "
        f"({code(one.id)}). They are allocated as they become free; no trial is stopped for them. "
        f"To release them: `/gpus release {one.id}`."
    )


def released_text(one: Reservation) -> str:
    return f"Released {code(one.id)}: {one.size} of team {one.team}."


def unknown_text(name: str, known: Sequence[Reservation]) -> str:
    return f"Unknown reservation {code(shortened(name))}.{did_you_mean(name, [one.id for one in known])}"


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
    return f"Queue {one.queue} has no quota of {one.resource}. *Fix:* {fix}"
