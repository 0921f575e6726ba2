"""Read the end of a reservation: a weekday, a date, a date with a time, or a duration. Pure."""

import re
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from bot.core.errors import UserError
from bot.reservations.models import MAX_TIME
from bot.text.wording import shortened

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DURATION = re.compile(r"([0-9]{1,4})([hd])")
_DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:t([0-9]{2}:[0-9]{2}))?")
EXAMPLES = "until=Fri, until=2026-11-27, until=2026-11-27T18:00, or until=48h"


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
