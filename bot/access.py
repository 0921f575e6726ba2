"""Who may do what: one pure answer for every door."""

from bot.config import Config
from bot.hints import listed
from bot.models import Act, SweepRecord


def may_examine(user: str, config: Config) -> str:
    """As `may`, of looking at the whole installation."""
    if user in config.admins:
        return ""
    who = listed([f"<@{admin}>" for admin in config.admins], "or") or "an administrator"
    nobody = (
        "" if config.admins else "; nobody is one yet: `admins:` in the file of SWEEPBOT_CONFIG names them"
    )
    return f"Only {who} may do that{nobody}."


def may(user: str, act: Act, sweep: SweepRecord, config: Config) -> str:
    """Empty when allowed, else the sentence that says why not and who could."""
    owner = sweep.asker.user
    if user == owner or user in config.admins:
        return ""
    return f"Only <@{owner}>, who started `{sweep.id}`, or an administrator may {act} it."
