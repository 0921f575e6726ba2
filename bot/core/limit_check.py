"""A check of a sweep against a GPU limit that it shares with other sweeps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LimitCheck:
    """Holds as long as no other sweep of the group has been checked and saved since (bot.storage.sweeps)."""

    group: str  # the team or person whose sweeps count together
    last: str  # the sweep that was checked last, with its version; "": none for a day
