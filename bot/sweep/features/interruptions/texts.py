"""Texts about interrupted trials: that one stopped and why, runs again, or was restarted, and the line of the
parent message. Pure.
"""

from datetime import timedelta

from bot.core.events import Event
from bot.core.record import ACTIVE, SweepRecord
from bot.platform.slack.mrkdwn import block, code, plain
from bot.sweep.features.interruptions.state import Interruption, InterruptionState
from bot.text.wording import counted, time_text

CHECKPOINT = "last checkpoint if the training saves one, else from the beginning"


def interrupted(interruption: Interruption, nodes: int) -> Event:
    """Report a trial with this number of nodes; one message counts those that stopped for the same reason."""
    also = "; {more} stopped for the same reason"
    return Event(
        kind="interrupted",
        text=_interrupted(interruption, nodes, "its", f"all of its {nodes} workers start", "it starts"),
        many=_interrupted(
            interruption, nodes, "their", f"all {nodes} workers of each start", "they start", also
        ),
        group=f"interrupted/{interruption.why}",
    )


def _interrupted(
    interruption: Interruption, nodes: int, whose: str, workers: str, trial: str, also: str = ""
) -> str:
    who, room = (workers, f"{nodes} nodes have room") if nodes > 1 else (trial, "a node has room")
    quota = f"{whose} queue has quota"
    if interruption.queued and nodes > 1:  # a drained node leaves the quota as it is
        quota += f" and {room}"
    place = quota if interruption.queued else room
    return (
        f":hourglass_flowing_sand: Trial {code(interruption.trial)} stopped running: "
        f"{plain(interruption.why)}{also}. This isn't a failure: {who} again once {place}, from {whose} "
        f"{CHECKPOINT}."
    )


def runs_again(trial: str, waited: timedelta) -> Event:
    minutes = round(waited.total_seconds() / 60)
    after = f", after {time_text(minutes)}" if waited >= timedelta(minutes=1) else ""
    text = f":runner: Running again{after}: trial {code(trial)}"
    return Event(kind="runs_again", text=f"{text}.", many=f"{text} and {{more}}.", group="runs_again")


def restarted(trial: str, detail: str) -> Event:
    """Report a trial whose metrics collector gave up.

    `detail`: the error of the failed pull; "" if unknown.
    """
    why = (
        "restarted. The image couldn't be pulled at first, and Katib's metrics collector gave up before the "
        "training started. Katib starts a new pod."
    )
    cause = f"\n{block(detail)}" if detail else ""
    text = f":hourglass_flowing_sand: Trial {code(trial)}"
    return Event(
        kind="trial_restarted",
        text=f"{text} {why}{cause}",
        many=f"{text} and {{more}} {why}{cause}",
        group="trial_restarted",
    )


def lines(sweep: SweepRecord) -> list[str]:
    """Return how many trials will start again; Katib doesn't count one whose turn comes after others."""
    number = len(sweep.of(InterruptionState).interrupted)
    if not number or sweep.phase not in ACTIVE or sweep.holds or sweep.draining:
        return []
    return [f"{counted(number, 'interrupted trial')} will start again."]
