"""Check the permission and the limits on GPUs when a sweep that didn't count toward them runs again. Pure."""

from bot.config.permissions import size_denial, start_denial
from bot.config.policy import Config
from bot.core.commands import Action, Command
from bot.core.record import SweepRecord
from bot.lifecycle.observation import Observation

COUNTED_AGAIN = {Action.RESUME, Action.EXTEND}  # of a paused sweep, and of one that has ended


def restart_denial(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> str:
    """Return why the user can't start sweeps, or why its owner's GPUs would exceed a limit; "" if allowed.

    Admins can exceed it.
    """
    if sweep.plan is None or command.user in config.admins:
        return ""
    return start_denial(command.user, config) or size_denial(
        sweep.requester.user, sweep.plan, config, seen.others
    )
