"""Who may do what: one pure answer for every door and every turn.

Each answer is empty when it is allowed, else the sentence that says why not and who could.
"""

from dataclasses import dataclass

from bot.config.policy import Config
from bot.config.teams import team_of
from bot.core.commands import Action
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.wording import counted, listed
from bot.slack.mrkdwn import mention


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """Who comes from Slack; "" where Slack does not say."""

    user: str
    team: str = ""  # the workspace
    enterprise: str = ""  # the organization of that
    guest: bool = False


def may_enter(who: Visitor, home: Visitor, config: Config) -> str:
    """Return why this person can't use Sweepbot at all, not even to read; empty if they can.

    `home`: the app's own workspace. People whom the configuration names always can.
    """
    if config.names(who.user):
        return ""
    said = {who.team, who.enterprise} - {""}
    ours = {home.team, home.enterprise} - {""}
    if said and ours and not said & (ours | {*config.workspaces}):
        team = f" (`{who.team or who.enterprise}`)"
        return (
            f"Sweepbot can't be used from another Slack workspace{team}. *Fix:* Ask {_admins(config)} to add "
            "yours to `workspaces:`."
        )
    if who.guest and not config.guests:
        return f"Guests can't use Sweepbot here. *Fix:* Ask {_admins(config)} to set `guests: true`."
    return ""


def doctor_denial(user: str, config: Config) -> str:
    """Of looking at the whole installation."""
    if user in config.admins:
        return ""
    nobody = (
        "" if config.admins else "; nobody is one yet: `admins:` in the file of SWEEPBOT_CONFIG names them"
    )
    return f"Only {_admins(config)} may do that{nobody}."


def launch_denial(user: str, channel: str, config: Config) -> str:
    """Of starting a sweep there, whatever its size."""
    launch = config.launch
    if user in config.admins:
        return ""
    if launch.people and user not in launch.people:
        return f"You may not start sweeps here; ask {_admins(config)} to add you (`launch.people`)."
    if launch.channels and channel not in launch.channels:
        return f"Sweeps may be started in {listed([f'<#{each}>' for each in launch.channels], 'or')} only."
    return ""


def peak_gpus(plan: SweepPlan) -> int:
    return plan.gpus * plan.space.parallel


def size_denial(user: str, plan: SweepPlan, config: Config, others: int = 0) -> str:
    """Of so many GPUs at the peak. `others`: peak GPUs of this person's other live sweeps."""
    return _may_hold(user, plan, config) or _may_hold_in_all(user, peak_gpus(plan), others, config)


def _may_hold_in_all(user: str, peak: int, others: int, config: Config) -> str:
    most = config.launch.gpus_per_person
    if user in config.admins or most is None or peak + others <= most:
        return ""
    before = f"your other sweeps can use up to {others}, and " if others else ""
    return (
        f"This sweep can use up to {peak} GPUs, {before}one person can use {most}. *Fix:* Set a smaller "
        f"parallel= or gpus=, cancel a sweep, or ask {_admins(config)}."
    )


def _may_hold(user: str, plan: SweepPlan, config: Config) -> str:
    peak = peak_gpus(plan)
    team = next((t for t in config.teams if t.name == team_of(config.teams, "", user)), None)
    own = team.gpus if team else None
    most = config.launch.gpus if own is None else own
    if user in config.self_assigned and most is not None and config.launch.gpus is not None:
        most = min(most, config.launch.gpus)
    if user in config.admins or most is None or peak <= most:
        return ""
    whose = f" of team {team.name}" if team and own is not None else ""
    return (
        f"This sweep needs {counted(peak, 'GPU')} ({plan.space.parallel} parallel × {plan.gpus}); the limit "
        f"is {most} per sweep{whose}. Lower parallel= or gpus=, or ask {_admins(config)}."
    )


def denial(user: str, action: Action, sweep: SweepRecord, config: Config) -> str:
    """Of acting on a sweep: its owner, team-mates where the configuration lets them, administrators."""
    owner = sweep.requester.user
    if action.is_read_only or controls(user, owner, config):
        return ""
    team = team_of(config.teams, "", owner)
    mate = _mates(user, owner, config)
    mates = ", somebody of the same team" if config.teammates_can_act and team else ""
    told = f"Only {mention(owner)}, who started `{sweep.id}`{mates}, or an administrator may {action} it."
    return f"{told} You chose your team yourself: an administrator has to name you in it." if mate else told


def controls(user: str, owner: str, config: Config) -> bool:
    """Whether this person can act on the owner's sweeps."""
    mate = _mates(user, owner, config) and user not in config.self_assigned
    return user == owner or user in config.admins or mate


def _mates(user: str, owner: str, config: Config) -> bool:
    team = team_of(config.teams, "", owner)
    return config.teammates_can_act and bool(team) and team_of(config.teams, "", user) == team


def _admins(config: Config) -> str:
    return listed([mention(admin) for admin in config.admins], "or") or "an administrator"
