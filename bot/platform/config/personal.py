"""What a person sets for themselves with `/sweep me`: notifications, quiet hours, and whether they last now,
and muted sweeps. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from bot.platform.config.digest_times import is_zone

TIME = r"([01]?[0-9]|2[0-3])(?::([0-5][0-9]))?"
QUIET = re.compile(f"{TIME}-{TIME}", re.ASCII)
MAX_MUTED = 20  # sweeps of one person


@dataclass(frozen=True, kw_only=True)
class Personal:
    """`""`: not set."""

    name: str = ""  # in Slack, which stands for a mention
    notify: str = ""  # of the sweeps that they start, as in `Notify`
    quiet: str = ""  # hours without mentions and direct messages, such as 22:00-07:00, as `QUIET` reads it
    zone: str = ""  # of these hours
    muted: tuple[str, ...] = ()  # IDs of sweeps that don't mention them, the latest last

    def changed(self, values: Mapping[str, str]) -> Self:
        """Return the settings with these values, by the names of the options of `/sweep me`.

        Those of a newer version are ignored.
        """
        own = {name: values[name] for name in ("name", "notify", "quiet", "zone") if name in values}
        mute = values.get("mute")
        muted = tuple(each for each in self.muted if each not in {mute, values.get("unmute")})
        return replace(self, muted=(*muted, *([mute] if mute else ()))[-MAX_MUTED:], **own)

    def quiet_for(self, now: datetime) -> timedelta:
        """Return the time until the quiet hours end; 0 if they don't last now."""
        found = QUIET.fullmatch(self.quiet)
        if found is None:
            return timedelta(0)
        # UTC for an unknown zone: every mention of the person asks for it.
        here = now.astimezone(ZoneInfo(self.zone if is_zone(self.zone) else "UTC"))
        first, last = (60 * int(found[hour]) + int(found[hour + 1] or 0) for hour in (1, 3))
        minute = 60 * here.hour + here.minute
        if not ((first <= minute or minute < last) if first > last else first <= minute < last):
            return timedelta(0)
        end = here.replace(hour=last // 60, minute=last % 60, second=0, microsecond=0)
        end += timedelta(days=minute >= last)
        return max(end.astimezone(UTC) - now, timedelta(minutes=1))  # a clock that is put forward
