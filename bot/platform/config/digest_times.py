"""Daily digest schedules: `digests:` of the configuration file, with hour and time zone, and which hours of
UTC a day has.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

from bot.platform.config.rules import Key
from bot.platform.config.section import Section
from bot.platform.config.value_types import Channel, Flag, TeamName, Text, Whole
from bot.text.wording import shortened


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a name, a directory of zones
        return False
    return True


def _zone(name: str) -> str:
    if not is_zone(name):
        raise ValueError(f'must be a time zone such as Europe/Berlin; got "{shortened(name)}"')
    return name


@dataclass(frozen=True, kw_only=True)
class DigestSchedule(Section):
    """The daily digest of one channel, about the previous day."""

    channel: Annotated[Channel, Key("C012ABC")]
    """Slack channel."""
    hour: Annotated[Whole, Key("8", least=0, most=23)] = 9
    """Hour of the day."""
    timezone: Annotated[Text, AfterValidator(_zone), Key("Europe/Berlin")] = "UTC"
    """Time zone of `hour` and of the day."""
    team: Annotated[TeamName, Key("vision", "all teams")] = ""
    """Team that the digest covers."""
    weekly: Annotated[Flag, Key("true")] = False
    """Post a page about the past week on Mondays."""

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def day(self, now: datetime) -> date:
        """Return the last full day in the time zone."""
        return now.astimezone(self.zone).date() - timedelta(days=1)

    def window(self, day: date) -> tuple[datetime, datetime]:
        """Return the start and end, in UTC, of the day's hours: 23 or 25 when the clocks change.

        Figures are stored by hours of UTC. Where midnight is within one, the day begins with the next one: it
        is from 00:30 to 00:30 in India.
        """
        begin, end = (
            _full_hour_from(datetime.combine(each, time(), self.zone).astimezone(UTC))
            for each in (day, day + timedelta(days=1))
        )
        return begin, end


def _full_hour_from(when: datetime) -> datetime:
    return when + timedelta(minutes=-when.minute % 60)
