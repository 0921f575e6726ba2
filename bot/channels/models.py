"""What people have set up in Slack: what holds in a channel, and who is in which team. Pure.

Kept in the ConfigMap `sweepbot-setup`, an entry for each channel and person, and laid over the configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from bot.config.digest_times import DigestSchedule
from bot.config.policy import Config
from bot.config.teams import MEMBER, Team, team_of


@dataclass(frozen=True, kw_only=True)
class ChannelSetup:
    """A channel as an administrator set it up; "" is not said."""

    repo: str = ""
    namespace: str = ""  # of the trials; "": that of the installation
    team: str = ""
    hour: int | None = None  # of its digest; None: none
    timezone: str = "UTC"


@dataclass(frozen=True, kw_only=True)
class Person:
    """Who was greeted."""

    team: str = ""
    chosen: bool = False  # by this person, not found by the e-mail address


@dataclass(frozen=True, kw_only=True)
class Setup:
    places: Mapping[str, ChannelSetup] = field(default_factory=dict)  # by channel
    people: Mapping[str, Person] = field(default_factory=dict)  # by user


_CHANNEL: TypeAdapter[ChannelSetup] = TypeAdapter(ChannelSetup)
_PERSON: TypeAdapter[Person] = TypeAdapter(Person)


def entry(said: ChannelSetup | Person) -> str:
    text = _CHANNEL.dump_json(said) if isinstance(said, ChannelSetup) else _PERSON.dump_json(said)
    return text.decode()


def read(entries: Mapping[str, str]) -> Setup:
    """What can't be read, an older or a newer Sweepbot's, counts as not said."""
    places: dict[str, ChannelSetup] = {}
    people: dict[str, Person] = {}
    for key, text in entries.items():
        try:
            if MEMBER.fullmatch(key):
                people[key] = _PERSON.validate_json(text)
            else:
                places[key] = _CHANNEL.validate_json(text)
        except ValueError:
            continue
    return Setup(places=places, people=people)


def applied(config: Config, setup: Setup) -> Config:
    """The configuration with what was set up; names that it no longer knows count as not said."""
    teams, repos = {team.name for team in config.teams}, {each.name for each in config.repositories}
    digests = {each.channel: each for each in config.digests}
    for channel, place in setup.places.items():
        if place.hour is not None:
            team = place.team if place.team in teams else ""
            digests[channel] = DigestSchedule(
                channel=channel, hour=place.hour, timezone=place.timezone, team=team
            )
    channel_repos = {channel: place.repo for channel, place in setup.places.items() if place.repo in repos}
    channel_namespaces = {
        c: place.namespace for c, place in setup.places.items() if place.namespace in config.namespaces
    }
    mapped = tuple(_with_members(team, config, setup) for team in config.teams)
    said = (user for user, person in setup.people.items() if person.chosen)
    self_assigned = frozenset(user for user in said if not team_of(config.teams, "", user))
    dated = tuple(digests.values())
    return replace(
        config,
        teams=mapped,
        digests=dated,
        channel_repos=channel_repos,
        channel_namespaces=channel_namespaces,
        self_assigned=self_assigned,
    )


def _with_members(team: Team, config: Config, setup: Setup) -> Team:
    """What the file says of a person goes before what was chosen."""
    more = [
        user
        for user, person in setup.people.items()
        if person.team == team.name and not team_of(config.teams, "", user)
    ]
    return replace(team, members=(*team.members, *more))


def team_by_mail(mail: str, config: Config) -> str:
    """The team that names this address among its members; "" when none does."""
    named = (team.name for team in config.teams if mail.lower() in {each.lower() for each in team.members})
    return next(named, "") if mail else ""
