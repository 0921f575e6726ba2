"""Who may do what: one pure answer for every door."""

from bot.config import Config
from bot.models import Act, SweepRecord


def may(user: str, act: Act, sweep: SweepRecord, config: Config) -> str:
    """Empty when allowed, else the sentence that says why not and who could."""
    owner = sweep.asker.user
    if user == owner or user in config.admins:
        return ""
    return f"Only <@{owner}>, who started `{sweep.id}`, or an administrator may {act} it."
