"""Settings made in Slack: channel settings, team choices, and user groups. Pure.

Stored in the ConfigMap `sweepbot-setup`, one entry per channel, person, and group, and one for a person's own
settings, and merged into the configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bot.core.stored_format import late_adapter
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.personal import Personal
from bot.platform.config.policy import Config
from bot.platform.config.teams import Team, team_of
from bot.platform.config.value_types import GROUP, MEMBER


@dataclass(frozen=True, kw_only=True)
class ChannelSetup:
    """A channel's settings; "" means not set."""

    repo: str = ""
    namespace: str = ""  # of its trials; "": K8S_NAMESPACE
    team: str = ""
    hour: int | None = None  # of the daily digest; None: no digest
    timezone: str = "UTC"


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person who was greeted. Whom the file names by their ID needs no team here."""

    team: str = ""
    chosen: bool = False  # by this person, not matched by email address
    mail: str = ""  # the address that matched; without it in the file, the person isn't in the team anymore

    @property
    def is_outdated(self) -> bool:
        """Return whether a former version stored it, which kept no address."""
        return bool(self.team) and not (self.chosen or self.mail)


@dataclass(frozen=True, kw_only=True)
class Group:
    """A user group of Slack that a team names."""

    members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Setup:
    channels: Mapping[str, ChannelSetup] = field(default_factory=dict)  # by channel
    people: Mapping[str, Person] = field(default_factory=dict)  # by user
    groups: Mapping[str, Group] = field(default_factory=dict)  # by their ID
    own: Mapping[str, Personal] = field(default_factory=dict)  # what people set with /sweep me, by user


_CHANNEL = late_adapter(ChannelSetup)
_PERSON = late_adapter(Person)
_GROUP = late_adapter(Group)
_OWN = late_adapter(Personal)
OWN = "own-"  # begins the key of a person's own settings, beside which a greeting writes the Person


def entry(value: ChannelSetup | Person | Group | Personal) -> str:
    if isinstance(value, Personal):
        return _OWN.dump_json(value, exclude_defaults=True).decode()
    if isinstance(value, ChannelSetup):
        return _CHANNEL.dump_json(value).decode()
    if isinstance(value, Group):
        return _GROUP.dump_json(value).decode()
    return _PERSON.dump_json(value, exclude_defaults=True).decode()


def read(entries: Mapping[str, str]) -> Setup:
    """Read the ConfigMap's entries; unreadable ones, of another version of Sweepbot, are ignored."""
    channels: dict[str, ChannelSetup] = {}
    people: dict[str, Person] = {}
    groups: dict[str, Group] = {}
    own: dict[str, Personal] = {}
    for key, text in entries.items():
        try:
            if key.startswith(OWN):
                own[key.removeprefix(OWN)] = _OWN.validate_json(text)
            elif MEMBER.fullmatch(key):
                people[key] = _PERSON.validate_json(text)
            elif GROUP.fullmatch(key):
                groups[key] = _GROUP.validate_json(text)
            else:
                channels[key] = _CHANNEL.validate_json(text)
        except ValueError:
            continue
    return Setup(channels=channels, people=people, groups=groups, own=own)


def with_groups(config: Config, setup: Setup) -> Config:
    """Add the members of user groups to their teams, as if the file named them; an ID in the file wins."""
    named, teams = {user for team in config.teams for user in team.members}, list[Team]()
    for team in config.teams:
        users = [user for each in team.members if each in setup.groups for user in setup.groups[each].members]
        more = tuple(user for user in dict.fromkeys(users) if user not in named)
        named |= set(more)
        teams.append(replace(team, members=(*team.members, *more)))
    return replace(config, teams=tuple(teams))


def applied(config: Config, setup: Setup) -> Config:
    """Merge the settings into the configuration; names it no longer has are ignored."""
    config = with_groups(config, setup)
    teams, repos = {team.name for team in config.teams}, {each.name for each in config.repositories}
    digests = {each.channel: each for each in config.digests}
    for channel, settings in setup.channels.items():
        if settings.hour is not None:
            team = settings.team if settings.team in teams else ""
            weekly = channel in digests and digests[channel].weekly
            digests[channel] = DigestSchedule(
                channel=channel, hour=settings.hour, timezone=settings.timezone, team=team, weekly=weekly
            )
    channel_repos = {
        channel: settings.repo for channel, settings in setup.channels.items() if settings.repo in repos
    }
    channel_namespaces = {
        c: settings.namespace
        for c, settings in setup.channels.items()
        if settings.namespace in config.namespaces
    }
    mapped = tuple(_with_members(team, config, setup) for team in config.teams)
    chosen = (user for user, person in setup.people.items() if person.chosen)
    self_assigned = frozenset(user for user in chosen if not team_of(config.teams, "", user))
    dated = tuple(digests.values())
    return replace(
        config,
        teams=mapped,
        digests=dated,
        channel_repos=channel_repos,
        channel_namespaces=channel_namespaces,
        self_assigned=self_assigned,
        people=setup.own,
    )


def _with_members(team: Team, config: Config, setup: Setup) -> Team:
    """Add who chose this team, or has an address among its members, unless the file puts them in one."""
    mails = {each.lower() for each in team.members}
    more = [
        user
        for user, person in setup.people.items()
        if person.team == team.name
        and (person.chosen or person.is_outdated or person.mail in mails)
        and not team_of(config.teams, "", user)
    ]
    return replace(team, members=(*team.members, *more))


def team_by_mail(mail: str, config: Config) -> str:
    """Return the team with this email address among its members; "" if there is none."""
    named = (team.name for team in config.teams if mail.lower() in {each.lower() for each in team.members})
    return next(named, "") if mail else ""
