"""Who may do what: one pure answer for every door and every turn.

Each answer is empty when it is allowed, else the sentence that says why not and who could.
"""

from bot.config import Config
from bot.hints import counted, listed
from bot.models import Act, SweepPlan, SweepRecord
from bot.mrkdwn import mention
from bot.teams import team_of


def may_examine(user: str, config: Config) -> str:
    """Of looking at the whole installation."""
    if user in config.admins:
        return ""
    nobody = (
        "" if config.admins else "; nobody is one yet: `admins:` in the file of SWEEPBOT_CONFIG names them"
    )
    return f"Only {_admins(config)} may do that{nobody}."


def may_launch(user: str, channel: str, config: Config) -> str:
    """Of starting a sweep there, whatever its size."""
    launch = config.launch
    if user in config.admins:
        return ""
    if launch.people and user not in launch.people:
        return f"You may not start sweeps here; ask {_admins(config)} to add you (`launch.people`)."
    if launch.channels and channel not in launch.channels:
        return f"Sweeps may be started in {listed([f'<#{each}>' for each in launch.channels], 'or')} only."
    return ""


def may_hold(user: str, plan: SweepPlan, config: Config) -> str:
    """Of so many GPUs at the peak."""
    peak = plan.gpus * plan.space.parallel
    team = next((t for t in config.teams if t.name == team_of(config.teams, "", user)), None)
    own = team.gpus if team else None
    most = config.launch.gpus if own is None else own
    if user in config.chosen and most is not None and config.launch.gpus is not None:
        most = min(most, config.launch.gpus)
    if user in config.admins or most is None or peak <= most:
        return ""
    whose = f" of team {team.name}" if team and own is not None else ""
    return (
        f"This sweep needs {counted(peak, 'GPU')} ({plan.space.parallel} parallel × {plan.gpus}); the limit "
        f"is {most} per sweep{whose}. Lower parallel= or gpus=, or ask {_admins(config)}."
    )


def may(user: str, act: Act, sweep: SweepRecord, config: Config) -> str:
    """Of acting on a sweep: its owner, team-mates where the configuration lets them, administrators."""
    owner = sweep.asker.user
    if act.leaves_alone or controls(user, owner, config):
        return ""
    team = team_of(config.teams, "", owner)
    mate = _mates(user, owner, config)
    mates = ", somebody of the same team" if config.teammates_may and team else ""
    told = f"Only {mention(owner)}, who started `{sweep.id}`{mates}, or an administrator may {act} it."
    return f"{told} You chose your team yourself: an administrator has to name you in it." if mate else told


def controls(user: str, owner: str, config: Config) -> bool:
    """Whether this person can act on the owner's sweeps."""
    mate = _mates(user, owner, config) and user not in config.chosen
    return user == owner or user in config.admins or mate


def _mates(user: str, owner: str, config: Config) -> bool:
    team = team_of(config.teams, "", owner)
    return config.teammates_may and bool(team) and team_of(config.teams, "", user) == team


def _admins(config: Config) -> str:
    return listed([mention(admin) for admin in config.admins], "or") or "an administrator"
