"""Say why a sweep with several nodes per trial hasn't started. Pure."""

from bot.core.plan import SweepPlan
from bot.core.wording import counted


def waiting_text(plan: SweepPlan) -> str:
    """Return what the sweep waits for."""
    nodes = f"{counted(plan.nodes, 'node')} with {counted(plan.gpus, 'free GPU')} each"
    return f"Waiting for {nodes}, because another sweep runs trials on several nodes."
