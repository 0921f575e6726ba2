"""Decide who can start, use, and change environments, and how many. Pure.

Each `*_denial` returns why the user can't do it and who can, as a sentence; "" if allowed.
"""

from collections.abc import Iterable

from bot.platform.config.environments import EnvironmentLimits
from bot.platform.config.permissions import controls
from bot.platform.config.policy import Config
from bot.platform.config.teams import team_of
from bot.platform.slack.mrkdwn import code, mention
from bot.text.wording import counted, listed
from bot.workspaces.environments.record import EnvironmentRecord, Wanted
from bot.workspaces.environments.requests import Verb
from bot.workspaces.services.snippet import limit_denial

NOT_CONFIGURED = (
    "Environments aren't configured. *Fix:* Ask an admin to add `environments:` to Sweepbot's configuration."
)


NO_SERVICES = (
    "Services aren't configured. *Fix:* Ask an admin to add `environments.services` to Sweepbot's "
    "configuration."
)


def service_start_denial(user: str, channel: str, config: Config) -> str:
    """Return why `user` can't start services here, whatever their size."""
    if config.environments and config.environments.services is None:
        return NO_SERVICES
    return start_denial(user, channel, config, "services")


def start_denial(user: str, channel: str, config: Config, things: str = "environments") -> str:
    """Return why `user` can't start environments here, whatever their size."""
    if config.environments is None:
        return NOT_CONFIGURED
    launch = config.launch
    if user in config.admins:
        return ""
    if launch.people and user not in launch.people:
        return f"You don't have permission to start {things}. {_ask(config)} to add you to `launch.people`."
    if launch.channels and channel not in launch.channels:
        channels = listed([f"<#{each}>" for each in launch.channels], "or")
        return f"{things.capitalize()} can only be started in {channels}."
    return ""


def denial(user: str, verb: Verb, environment: EnvironmentRecord, config: Config) -> str:
    """Return why `user` can't do this with the environment. Only its owner can open it."""
    name, owner = environment.name, mention(environment.owner)
    if user == environment.owner or (verb is not Verb.OPEN and controls(user, environment.owner, config)):
        return ""
    if verb is Verb.OPEN:
        return f"Only {owner} (owner) can open `{name}`: its credentials are personal."
    mates = config.teammates_can_act and team_of(config.teams, "", environment.owner)
    return f"Only {owner} (owner){', a teammate,' if mates else ''} or an admin can {verb.value} `{name}`."


def home_denial(user: str, home: str, owner: str) -> str:
    """Return why `user` can't delete the home with its files: only its owner can."""
    return "" if user == owner else f"Only {mention(owner)} (owner) can delete home {code(home)}."


def size_denial(
    user: str, wanted: EnvironmentRecord, others: Iterable[EnvironmentRecord], config: Config
) -> str:
    """Return why this environment or service exceeds a limit of its owner, which only admins can exceed.

    Args:
        user: who wants to start it.
        others: all existing ones but this one.
    """
    if user in config.admins or config.environments is None:
        return ""
    limits, there = config.environments.limits, [each for each in others if each.wanted is not Wanted.DELETED]
    own = [each for each in there if each.owner == wanted.owner]
    team = [each for each in there if wanted.team and each.team == wanted.team]
    services = config.environments.services
    if wanted.service:
        names = [each.name for each in own if each.service]
        refusal = limit_denial(wanted.service, names, services.limits) if services else NO_SERVICES
    else:
        refusal = _environment_denial(wanted, own, team, config, limits)
    refusal = refusal or _gpu_denial(wanted, own, limits.gpus_per_person, "person")
    return refusal or _gpu_denial(wanted, team, limits.gpus_per_team, "team")


def _environment_denial(
    wanted: EnvironmentRecord,
    own: list[EnvironmentRecord],
    team: list[EnvironmentRecord],
    config: Config,
    limits: EnvironmentLimits,
) -> str:
    own, team = ([each for each in some if not each.service] for some in (own, team))
    if wanted.gpus > limits.gpus:
        what = f"The limit is {counted(limits.gpus, 'GPU')} per environment; got gpus={wanted.gpus}."
        return f"{what} {_ask(config)}, or request fewer."
    if len(own) >= limits.per_person:
        names = listed([f"`{each.name}`" for each in own])
        return f"{_most(limits.per_person, 'environment', 'person')} *Fix:* Delete one of yours ({names})."
    if limits.per_team is not None and len(team) >= limits.per_team:
        return f"{_most(limits.per_team, 'environment', 'team')} *Fix:* Delete one (`/env list team`)."
    return ""


def _gpu_denial(
    wanted: EnvironmentRecord, others: list[EnvironmentRecord], most: int | None, whose: str
) -> str:
    gpus = wanted.gpus
    running = [each for each in others if each.gpus and each.wanted is Wanted.RUNNING]
    used = sum(each.gpus for each in running)
    if most is None or not gpus or used + gpus <= most:
        return ""
    names = listed([f"`{each.name}` ({each.gpus})" for each in running])
    also = f"; in use: {names}" if running else ""
    fix = "Stop one, or request fewer GPUs" if running else "Request fewer GPUs"
    return f"{_most(most, 'GPU', whose)} This {wanted.noun} requests {gpus}{also}. *Fix:* {fix}."


def _most(number: int, thing: str, whose: str) -> str:
    where = "" if thing == "environment" else " in running environments"
    return f"The limit is {counted(number, thing)}{where} per {whose}."


def _ask(config: Config) -> str:
    admins = listed([mention(admin) for admin in config.admins], "or") or "an admin"
    return f"*Fix:* Ask {admins}"
