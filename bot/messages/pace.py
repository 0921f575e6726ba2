"""Build the line of the parent message about a `parallel=auto` sweep. Pure."""

from bot.core.pace import PaceChange
from bot.core.record import Phase, SweepRecord
from bot.slack.mrkdwn import plain
from bot.text.wording import counted


def pace_line(sweep: SweepRecord) -> str:
    """Return how many trials run at once, and why; "" without `parallel=auto` and while nothing changes."""
    plan = sweep.plan
    if plan is None or not plan.space.auto or sweep.phase not in {Phase.PENDING, Phase.RUNNING}:
        return ""
    if sweep.gated or sweep.draining or sweep.paused_at:
        return ""
    pace, active = sweep.pace, sweep.progress.running + sweep.progress.waiting
    up_to = f"Running up to {counted(pace.target, 'trial')} (auto)"
    gpus = counted(pace.gpus, "GPU")
    match pace.change:
        case PaceChange.GREW:
            return f"{up_to}: {counted(pace.gpus, 'more GPU')} became free"
        case PaceChange.YIELDS if active > pace.target:
            return f"Letting trials finish, down to {pace.target} (auto): {plain(pace.who)} waits for {gpus}"
        case PaceChange.YIELDS:
            return f"{up_to}: {plain(pace.who)} was waiting for {gpus}"
        case PaceChange.FULL:
            return f"{up_to}: no more GPUs are free"
        case PaceChange.LIMITED:
            return f"{up_to}: the GPU limit is reached"
        case PaceChange.UNKNOWN:
            return f"{up_to}: free GPUs are unknown. *Fix:* Ask an admin to run `/sweep doctor`"
        case _:
            return f"{up_to}: more start once GPUs are free, up to {plan.space.parallel}"
