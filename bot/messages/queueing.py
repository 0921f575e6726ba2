"""Build the messages about interrupted trials and changes of a sweep's place in its queue. Pure."""

from bot.core.events import Event
from bot.core.record import SweepRecord
from bot.messages.parent import display_name
from bot.slack.mrkdwn import code, plain
from bot.text.wording import counted, time_text

CHECKPOINT = "last checkpoint if the training saves one, else from the beginning"


def interrupted(sweep: SweepRecord, event: Event) -> str:
    also = f"; {counted(event.more, 'more trial')} stopped for the same reason" if event.more else ""
    who, whose = ("they start", "their") if event.more else ("it starts", "its")
    nodes = sweep.plan.nodes if sweep.plan else 1
    if nodes > 1:
        who = f"all {nodes} workers of each start" if event.more else f"all of its {nodes} workers start"
    room = f"{nodes} nodes have room" if nodes > 1 else "a node has room"
    quota = f"{whose} queue has quota"
    if event.queued and nodes > 1:  # a drained node leaves the quota as it is
        quota += f" and {room}"
    place = quota if event.queued else room
    return (
        f":hourglass_flowing_sand: Trial {code(event.trial)} stopped running: {plain(event.text)}{also}. "
        f"This isn't a failure: {who} again once {place}, from {whose} {CHECKPOINT}."
    )


def runs_again(_: SweepRecord, event: Event) -> str:
    trials = f"{code(event.trial)}{_more(event)}"
    after = f", after {time_text(round((event.seconds or 0) / 60))}" if (event.seconds or 0) >= 60 else ""
    return f":runner: Running again{after}: trial {trials}."


def queue_changed(sweep: SweepRecord, event: Event) -> str:
    who = display_name(sweep, event.by)
    if event.text == "held":
        return (
            f":hourglass_flowing_sand: {who} held this sweep's waiting trials. Running trials continue. To "
            f"release them: `/sweep queue release {sweep.id}`."
        )
    if event.text == "released":
        return f":runner: {who} released this sweep's waiting trials. They're back in the queue."
    what = plain(event.text)
    running = " Running trials stay in their queue." if event.text.startswith("queue ") else ""
    return f":runner: {who} changed this sweep to {what}.{running}"


def _more(event: Event) -> str:
    return f" and {counted(event.more, 'more trial')}" if event.more else ""
