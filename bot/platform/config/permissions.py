"""Decide who can use Sweepbot at all, and start, approve, or change sweeps of which size, for handlers and
workers alike; word each refusal. Pure.

Each `*_denial` returns why the user can't do it and who can, as a sentence; "" if allowed.
"""

from dataclasses import dataclass

from bot.core.commands import Action
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.request import is_team
from bot.platform.config.policy import Config
from bot.platform.config.queues import Member
from bot.platform.config.teams import granted_team, team_of
from bot.platform.slack.mrkdwn import mention
from bot.text.wording import counted, listed

MAX_NAMED = 5  # people in one sentence
BY_A_PERSON = "A person must decide about `{}` in Slack: its message has the buttons."  # not by a token


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """A Slack user and their workspace, "" where Slack doesn't report it."""

    user: str
    team: str = ""  # the workspace
    enterprise: str = ""  # the organization of that
    guest: bool = False
    deactivated: bool = False  # can only still have tokens of the HTTP API
    name: str = ""  # in Slack, once it was looked up


@dataclass(frozen=True, kw_only=True)
class OtherPeaks:
    """Peak GPUs of other active sweeps, as far as they count for a limit."""

    person: int = 0
    team: int = 0  # including the person's


def entry_denial(who: Visitor, home: Visitor, config: Config) -> str:
    """Return why this user can't use Sweepbot at all, not even to read; "" if they can.

    `home` is the app's own workspace. Users named in the configuration always can.
    """
    if who.deactivated:
        return "Your Slack account is deactivated."
    if config.names(who.user):
        return ""
    theirs = {who.team, who.enterprise} - {""}
    ours = {home.team, home.enterprise} - {""}
    if theirs and ours and not theirs & (ours | {*config.workspaces}):
        team = f" (`{who.team or who.enterprise}`)"
        return (
            f"Sweepbot can't be used from another Slack workspace{team}. *Fix:* Ask {_admins(config)} to add "
            "yours to `workspaces:`."
        )
    if who.guest and not config.guests:
        return f"Guests can't use Sweepbot here. *Fix:* Ask {_admins(config)} to set `guests: true`."
    return ""


def doctor_denial(user: str, config: Config) -> str:
    """Return why `user` can't use the commands for admins; "" if allowed."""
    if user in config.admins:
        return ""
    if not config.admins:
        return "No admins are configured. Add them under `admins:` in the SWEEPBOT_CONFIG file."
    return f"Only admins can do that: {_admins(config)}."


def launch_denial(user: str, channel: str, config: Config) -> str:
    """Return why `user` can't start sweeps in this channel, whatever their size; "" if allowed."""
    if refused := start_denial(user, config):
        return refused
    team = granted_team(config.teams, user, config.self_assigned)
    allowed = (team.channels if team else ()) or config.launch.channels
    if allowed and channel not in allowed and user not in config.admins:
        channels = listed([f"<#{each}>" for each in allowed], "or")
        return f"Sweeps can only be started in {channels}."
    return ""


def start_denial(user: str, config: Config) -> str:
    """Return why `user` can't start sweeps in any channel, or run their ended ones again; "" if allowed."""
    people = config.launch.people
    if not people or user in people or user in config.admins or is_team(user):  # which `api.ci` admits
        return ""
    fix = f"Ask {_admins(config)} to add you to `launch.people`."
    return f"You don't have permission to start sweeps. {fix}"


def peak_gpus(plan: SweepPlan) -> int:
    """Return the GPUs that a sweep can use without asking again: one trial's with `parallel=auto`."""
    return plan.trial_gpus * plan.space.first_parallel


def most_parallel(user: str, plan: SweepPlan, config: Config, others: OtherPeaks) -> int:
    """Return how many trials of a `parallel=auto` sweep fit within the limits next to other sweeps."""
    most, team = plan.space.parallel, granted_team(config.teams, user, config.self_assigned)
    if user in config.admins:
        return most
    limits = (
        (_sweep_limit(user, config), 0),
        (person_limit(user, config), others.person),
        (team.gpus_total if team else None, others.team),
    )
    counts = [(limit - used) // plan.trial_gpus for limit, used in limits if limit is not None]
    return max(1, min([most, *counts]))


def size_denial(user: str, plan: SweepPlan, config: Config, others: OtherPeaks | None = None) -> str:
    """Return why `user` can't run a plan with this many peak GPUs; "" if allowed."""
    others = others or OtherPeaks()
    if user in config.admins:
        return ""
    return (
        _sweep_denial(user, plan, config)
        or _user_denial(user, plan, others.person, config)
        or _team_denial(user, plan, others.team, config)
    )


def person_limit(user: str, config: Config) -> int | None:
    """Return the maximum peak GPUs of all active sweeps of a user; None: no limit."""
    team = granted_team(config.teams, user, config.self_assigned)
    own = team.gpus_per_person if team else None
    return config.launch.gpus_per_person if own is None else own


def _user_denial(user: str, plan: SweepPlan, others: int, config: Config) -> str:
    most, peak = person_limit(user, config), peak_gpus(plan)
    if most is None or peak + others <= most:
        return ""
    also = f"your other sweeps can use up to {others}, and " if others else ""
    return (
        f"This sweep can use up to {peak} GPUs, {also}one person can use {most}. *Fix:* Set a smaller "
        f"{_sizes(plan)}, cancel a sweep, or ask {_admins(config)}."
    )


def _team_denial(user: str, plan: SweepPlan, others: int, config: Config) -> str:
    team, peak = granted_team(config.teams, user, config.self_assigned), peak_gpus(plan)
    if team is None or team.gpus_total is None or peak + others <= team.gpus_total:
        return ""
    also = f"other sweeps of team {team.name} can use up to {others}, and " if others else ""
    return (
        f"This sweep can use up to {peak} GPUs, {also}team {team.name} can use {team.gpus_total}. *Fix:* Set "
        f"a smaller {_sizes(plan)}, wait until a sweep ends, or ask {_admins(config)}."
    )


def _sweep_denial(user: str, plan: SweepPlan, config: Config) -> str:
    peak, most = peak_gpus(plan), _sweep_limit(user, config)
    if most is None or peak <= most:
        return ""
    team = granted_team(config.teams, user, frozenset())
    whose = f" of team {team.name}" if team and team.gpus is not None else ""
    nodes = f" × {plan.nodes} nodes" if plan.nodes > 1 else ""
    factors = f"{plan.space.first_parallel} parallel{nodes} × {counted(plan.gpus, 'GPU')}"
    return (
        f"This sweep needs {counted(peak, 'GPU')} ({factors}); the limit is {most} per sweep{whose}. "
        f"Lower {_sizes(plan)}, or ask {_admins(config)}."
    )


def _sizes(plan: SweepPlan) -> str:
    return "parallel=, nodes=, or gpus=" if plan.nodes > 1 else "parallel= or gpus="


def _sweep_limit(user: str, config: Config) -> int | None:
    """Return the maximum peak GPUs of one sweep; None: no limit."""
    team = granted_team(config.teams, user, frozenset())
    most = config.launch.gpus if team is None or team.gpus is None else team.gpus
    if user in config.self_assigned and most is not None and config.launch.gpus is not None:
        return min(most, config.launch.gpus)
    return most


def denial(user: str, action: Action, sweep: SweepRecord, config: Config) -> str:
    """Return why `user` can't act on a sweep; "" for its owner, admins, and teammates where configured."""
    owner = sweep.requester.user
    is_own = action is Action.STOP_IDLE  # no person can give it
    if action.is_read_only or action.is_approval or is_own or controls(user, owner, config):
        return ""
    has_teammates = config.teammates_can_act and team_of(config.teams, "", owner)
    who = f"{mention(owner)} (owner){', a teammate,' if has_teammates else ''} or an admin"
    denied = f"Only {who} can {action.label} `{sweep.id}`."
    own = f" You picked your own team: {_admins(config)} must add you under `teams:`."
    return denied + (own if _are_teammates(user, owner, config) else "")


def approvers(owner: str, config: Config) -> tuple[str, ...]:
    """Return who can approve what the owner starts above a limit; admins always can."""
    team = granted_team(config.teams, owner, config.self_assigned)
    named = (*(team.approvers if team else ()), *config.budgets.approvers)
    return tuple(dict.fromkeys(each for each in named if each != owner)) or config.admins


def approval_denial(user: str, sweep: SweepRecord, config: Config, *, by_owner: bool) -> str:
    """Return why `user` can't approve or decline a sweep; "" if allowed.

    Args:
        by_owner: whether the owner can, too: only the budget of their own token is exceeded.
    """
    owner = sweep.requester.user
    named = (owner,) if by_owner else approvers(owner, config)
    if user in config.admins or user in named:
        return ""
    who = listed([mention(each) for each in named[:MAX_NAMED]], "or") or "an admin"
    what = "You can't approve your own sweep." if user == owner else "You can't approve this sweep."
    return f"{what} Ask {who}."


def namespace_denial(user: str, namespace: str, config: Config) -> str:
    """Return why `user` can't change what runs in a namespace; "" for admins and the namespace's team."""
    team = granted_team(config.teams, user, config.self_assigned)
    if user in config.admins or (team and namespace in team.namespaces):
        return ""
    return f"Only admins, and the team with the namespace `{namespace}`, can do this. Ask {_admins(config)}."


def queue_member(user: str, config: Config) -> Member:
    """Return the user as queues and priorities see them: a team that they chose themselves isn't a right."""
    team = granted_team(config.teams, user, config.self_assigned)
    own = {"team": team.name, "team_queue": team.queue} if team else {}
    return Member(user=user, admin=user in config.admins, **own)


def controls(user: str, owner: str, config: Config) -> bool:
    """Return whether `user` can act on the owner's sweeps."""
    mate = _are_teammates(user, owner, config) and user not in config.self_assigned
    return user == owner or user in config.admins or mate


def _are_teammates(user: str, owner: str, config: Config) -> bool:
    team = team_of(config.teams, "", owner)
    can_act = config.teammates_can_act or is_team(owner)
    return can_act and bool(team) and team_of(config.teams, "", user) == team


def _admins(config: Config) -> str:
    return listed([mention(admin) for admin in config.admins], "or") or "an admin"
