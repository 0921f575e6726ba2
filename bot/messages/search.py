"""Text about a search that its suggestion service lost. Pure."""

from bot.core.events import Event
from bot.core.record import SweepRecord
from bot.slack.mrkdwn import code


def search_lost(sweep: SweepRecord, _: Event) -> str:
    algorithm = code(sweep.plan.space.algorithm) if sweep.plan else "the algorithm"
    return (
        f":warning: No new trials start: Katib's suggestion service restarted, and {algorithm} lost the "
        "state of its search. Running trials finish.\n"
        f"*Fix:* Run `/sweep drain {sweep.id}` to end this sweep with its results, then `/sweep rerun "
        f"{sweep.id}` to search again."
    )
