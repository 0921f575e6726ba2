"""When which channel gets its digest: `digests:` of the configuration file."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from bot.config.teams import Team, read_channel
from bot.config.yaml_reader import Node
from bot.core.wording import did_you_mean


@dataclass(frozen=True, kw_only=True)
class DigestSchedule:
    """One channel's, at most one a day: about the day before."""

    channel: str  # Slack channel id
    hour: int = 9
    timezone: str = "UTC"
    team: str = ""  # whose figures; "" is everybody's

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def day(self, now: datetime) -> date:
        """The last that is over there."""
        return now.astimezone(self.zone).date() - timedelta(days=1)

    def window(self, day: date) -> tuple[datetime, datetime]:
        """From midnight to midnight, UTC: 23 or 25 hours when the clocks change."""
        begin, end = (
            datetime.combine(each, time(), self.zone).astimezone(UTC)
            for each in (day, day + timedelta(days=1))
        )
        return begin, end


def read_digests(node: Node | None, teams: tuple[Team, ...]) -> tuple[DigestSchedule, ...]:
    found: dict[str, DigestSchedule] = {}
    for each in node.items() if node else ():
        read = _appointment(each, [team.name for team in teams])
        if read.channel in found:
            each.wrong(f"{read.channel} is there twice; a channel gets one digest a day")
        found.setdefault(read.channel, read)
    return tuple(found.values())


def _appointment(node: Node, teams: list[str]) -> DigestSchedule:
    keys = node.mapping(("channel", "hour", "timezone", "team"), must=("channel",))
    channel = read_channel(keys.get("channel"))
    hour = keys["hour"].whole() if "hour" in keys else 9
    if not 0 <= hour <= 23:
        keys["hour"].wrong("must be from 0 to 23")
    zone = keys["timezone"].text() if "timezone" in keys else "UTC"
    if zone and not is_zone(zone):
        keys["timezone"].wrong(f'"{zone}" is not a timezone such as Europe/Berlin')
    team = keys["team"].text() if "team" in keys else ""
    if team and team not in teams:
        keys["team"].wrong(f"{team} is not one of the teams.{did_you_mean(team, teams)}")
    return DigestSchedule(channel=channel, hour=hour, timezone=zone or "UTC", team=team)


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, no name, a folder of some
        return False
    return True
