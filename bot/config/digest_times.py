"""Daily digest schedules: `digests:` of the configuration file."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from bot.config.keys import BOOLEAN, STRING, Key, Keys, integer
from bot.config.teams import CHANNEL_ID, Team, read_channel
from bot.config.yaml_reader import Node, entries
from bot.text.wording import did_you_mean, shortened


@dataclass(frozen=True, kw_only=True)
class DigestSchedule:
    """The daily digest of one channel, about the previous day."""

    channel: str  # Slack channel id
    hour: int = 9
    timezone: str = "UTC"
    team: str = ""  # "": all teams
    weekly: bool = False  # whether Monday's digest also has a page about the week

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def day(self, now: datetime) -> date:
        """Return the last full day in the time zone."""
        return now.astimezone(self.zone).date() - timedelta(days=1)

    def window(self, day: date) -> tuple[datetime, datetime]:
        """Return the day's start and end in UTC: 23 or 25 hours when the clocks change."""
        begin, end = (
            datetime.combine(each, time(), self.zone).astimezone(UTC)
            for each in (day, day + timedelta(days=1))
        )
        return begin, end


DEFAULT_HOUR = 9
DIGEST_KEYS: Keys = {
    "channel": Key(meaning="Slack channel.", type=CHANNEL_ID, example="C012ABC", required=True),
    "hour": Key(meaning="Hour of the day.", type=integer(0, 23), default=str(DEFAULT_HOUR), example="8"),
    "timezone": Key(
        meaning="Time zone of `hour` and of the day.", type=STRING, default="UTC", example="Europe/Berlin"
    ),
    "team": Key(meaning="Team that the digest covers.", type=STRING, default="all teams", example="vision"),
    "weekly": Key(
        meaning="Post a page about the past week on Mondays.", type=BOOLEAN, default="false", example="true"
    ),
}


def read_digests(node: Node | None, teams: tuple[Team, ...]) -> tuple[DigestSchedule, ...]:
    found: dict[str, DigestSchedule] = {}
    for each in entries(node):
        read = _schedule(each, [team.name for team in teams])
        if read.channel in found:
            each.error(f"duplicate channel {read.channel}; one digest per channel")
        found.setdefault(read.channel, read)
    return tuple(found.values())


def _schedule(node: Node, teams: list[str]) -> DigestSchedule:
    keys = node.mapping(DIGEST_KEYS)
    channel = read_channel(keys.get("channel"))
    hour = keys["hour"].whole() if "hour" in keys else DEFAULT_HOUR
    if not 0 <= hour <= 23:
        keys["hour"].error(f"must be from 0 to 23; got {hour}")
    zone = keys["timezone"].text() if "timezone" in keys else "UTC"
    if zone and not is_zone(zone):
        keys["timezone"].error(f'must be a time zone such as Europe/Berlin; got "{shortened(zone)}"')
    team = keys["team"].text() if "team" in keys else ""
    if team and team not in teams:
        keys["team"].error(f"unknown team {shortened(team)}.{did_you_mean(team, teams)}")
    weekly = keys["weekly"].flag() if "weekly" in keys else False
    return DigestSchedule(channel=channel, hour=hour, timezone=zone or "UTC", team=team, weekly=weekly)


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a name, a directory of zones
        return False
    return True
