"""Settings made in Slack (channels, chosen teams, user groups, `/sweep me`): how they are stored, and merged
into the configuration file, and which team an email address is in. Pure.

Stored in the ConfigMap `sweepbot-setup`, one entry per channel, person, and group, and one for a person's own
settings.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

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


_ADAPTERS: dict[type, TypeAdapter[Any]] = {
    each: late_adapter(each) for each in (ChannelSetup, Person, Group, Personal)
}
OWN = "own-"  # begins the key of a person's own settings, beside which a greeting writes the Person


def entry(value: ChannelSetup | Person | Group | Personal) -> str:
    is_short = isinstance(value, Personal | Person)
    return _ADAPTERS[type(value)].dump_json(value, exclude_defaults=is_short).decode()


def read(entries: Mapping[str, str]) -> Setup:
    """Read the ConfigMap's entries; unreadable ones, of another version of Sweepbot, are ignored."""
    found: dict[type, dict[str, Any]] = {kind: {} for kind in _ADAPTERS}
    for key, text in entries.items():
        kind: type = Person if MEMBER.fullmatch(key) else Group if GROUP.fullmatch(key) else ChannelSetup
        kind = Personal if key.startswith(OWN) else kind
        with suppress(ValueError):
            found[kind][key.removeprefix(OWN)] = _ADAPTERS[kind].validate_json(text)
    return Setup(channels=found[ChannelSetup], people=found[Person], groups=found[Group], own=found[Personal])


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
    chosen = (user for user, person in setup.people.items() if person.chosen)
    homes, channels = config.namespaces, setup.channels.items()
    return replace(
        config,
        teams=tuple(_with_members(team, config, setup) for team in config.teams),
        digests=tuple(digests.values()),
        channel_repos={channel: each.repo for channel, each in channels if each.repo in repos},
        channel_namespaces={channel: each.namespace for channel, each in channels if each.namespace in homes},
        self_assigned=frozenset(user for user in chosen if not team_of(config.teams, "", user)),
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
