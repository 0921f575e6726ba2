"""Say why a sweep can't start trials yet: it waits for nodes, or for its first trial. Pure."""

from collections.abc import Mapping

from bot.core.events import HealthStatus
from bot.core.gangs import ACTIVE
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.slack.mrkdwn import plain
from bot.text.wording import counted, listed

NEVER_FITS = "never-fits"  # key of a diagnosis: bot.health.rules_scheduling
WAITING = ":hourglass_flowing_sand:", "Waiting for nodes"
# States of a sweep that is ahead: trials have run, the first one hasn't yet, or it waits for nodes, too.
RUNS, STARTS, WAITS = "running", "starting", "waiting"


def waiting_text(plan: SweepPlan, ahead: Mapping[str, str]) -> str:
    """Return what the sweep waits for.

    Args:
        ahead: the sweeps before it, in order, with their states.
    """
    nodes = f"{counted(plan.nodes, 'node')} with {counted(plan.gpus, 'free GPU')} each"
    names = (f"{sweep} ({state})" for sweep, state in ahead.items())
    return f"Waiting for {nodes}. Sweeps ahead: {listed(names)}."


def waiting_phase(sweep: SweepRecord) -> tuple[str, str] | None:
    """Return the emoji and the name of its state while it waits for nodes; else None."""
    return WAITING if sweep.start_wait and sweep.phase in ACTIVE else None


def never_fits(sweep: SweepRecord) -> bool:
    """Return whether the first trial requests more than the nodes have."""
    health = sweep.health
    return bool(health and health.key == NEVER_FITS and health.status is HealthStatus.UNHEALTHY)


def first_trial_line(sweep: SweepRecord) -> str:
    """Return what the first trial means for the others; "" if nothing waits for it."""
    if sweep.phase is Phase.HELD or sweep.phase.final:
        return ""
    if sweep.health and never_fits(sweep):
        return f":warning: The first trial can't run: {plain(sweep.health.text.partition(': ')[2])}"
    return "One trial runs first. The others start once it is healthy." if sweep.gated else ""
