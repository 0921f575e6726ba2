"""Check the permission and the limits on GPUs when a sweep that didn't count toward them runs again: resumed,
or extended. Pure.
"""

from bot.core.commands import Command
from bot.core.record import SweepRecord
from bot.platform.config.permissions import size_denial, start_denial
from bot.platform.config.policy import Config
from bot.sweep.model.observation import Observation


def restart_denial(sweep: SweepRecord, command: Command, seen: Observation, config: Config) -> str:
    """Return why the user can't start sweeps, or why its owner's GPUs would exceed a limit; "" if allowed.

    Admins can exceed it.
    """
    if sweep.plan is None or command.user in config.admins:
        return ""
    return start_denial(command.user, config) or size_denial(
        sweep.requester.user, sweep.plan, config, seen.others
    )
