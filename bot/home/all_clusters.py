"""Answer `/gpus` views of pods and nodes for all clusters: one answer, then a line for each cluster."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from bot.clusters.snapshots import Snapshots
from bot.core.plan import HOME_CLUSTER
from bot.gpus.command import answer, summary
from bot.gpus.models import Snapshot
from bot.slack.mrkdwn import code
from bot.text.wording import counted


def answer_of_all(view: str, home: Snapshot, others: Snapshots, user: str, now: datetime) -> str:
    """Return the answer about all clusters together, then a line for each."""
    parts = [home, *filter(None, others.values())]
    nodes = tuple(node for each in parts for node in each.nodes)
    pods = tuple(pod for each in parts for pod in each.pods)
    text = answer(view, replace(home, nodes=nodes, pods=pods), user, now)
    lines = _lines(view, {HOME_CLUSTER: home, **others}, user)
    return "\n".join([text, "*By cluster*", *lines])


def _lines(view: str, snapshots: Snapshots, user: str) -> Iterator[str]:
    for name, found in snapshots.items():
        if found is None:
            yield f"• {code(name)}: no GPU data"
            continue
        shown = [pod for pod in found.pods if view != "mine" or pod.owner == user]
        free, total = sum(node.free for node in found.nodes), sum(node.allocatable for node in found.nodes)
        of_all = "" if view == "mine" else f"{free} of {counted(total, 'GPU')} free, "
        yield f"• {code(name)}: {of_all}{summary(shown, found.at)}"
