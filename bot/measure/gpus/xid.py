"""Report GPU errors (NVIDIA Xids): which are new, and what an admin should do about each. Pure.

The gauge holds the last error until the exporter restarts, so only a change is a new error.
"""

from collections.abc import Iterable, Mapping

from bot.core.plan import HOME_CLUSTER
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, plain
from k8s.nodes.dcgm import Xid

MAX_CODES = 15
PROGRAM = "Usually caused by the program."
MACHINE = "Hardware fault: check the node, and cordon it with"
# Descriptions shortened from NVIDIA's Xid catalog.
MEANINGS = {
    13: ("graphics engine exception", PROGRAM),
    31: ("memory page fault", PROGRAM),
    43: ("stopped processing", PROGRAM),
    45: ("preemptive cleanup, after an earlier error", PROGRAM),
    48: ("double bit ECC error", MACHINE),
    63: ("row remapping or page retirement", MACHINE),
    64: ("row remapping or page retirement failed", MACHINE),
    74: ("NVLink error", MACHINE),
    79: ("fallen off the bus", MACHINE),
    92: ("many single bit ECC errors", MACHINE),
    94: ("contained ECC error", MACHINE),
    95: ("uncontained ECC error", MACHINE),
    119: ("GSP timeout", MACHINE),
    120: ("GSP error", MACHINE),
}


def news(before: Mapping[str, int], now: Iterable[Xid]) -> tuple[list[Xid], dict[str, int]]:
    """Return new errors, and the last error of each GPU; a GPU without data keeps its last known one."""
    # Each MIG slice reports the error, allocated or not.
    seen = {xid.device: xid for xid in sorted(now, key=lambda each: (each.code, _holder(each)))}
    new = [xid for device, xid in sorted(seen.items()) if xid.code and before.get(device, 0) != xid.code]
    return new, {**before, **{device: xid.code for device, xid in seen.items()}}


def message(new: list[Xid], cluster: str = HOME_CLUSTER) -> Message:
    where = "" if cluster == HOME_CLUSTER else f" in cluster {code(cluster)}"
    lines = [_line(xid) for xid in new[:MAX_CODES]]
    rest = [f"… and {len(new) - MAX_CODES} more"] if len(new) > MAX_CODES else []
    return Message(text="\n".join([f":warning: GPU errors{where}:", *lines, *rest]))


def _line(xid: Xid) -> str:
    meaning, action = MEANINGS.get(xid.code, ("unknown", "See NVIDIA's Xid catalog."))
    cordon = f" {code(f'kubectl cordon {xid.node}')}." if action is MACHINE else ""
    held = f", allocated to {code(_holder(xid))}" if _holder(xid) else ""
    gpu = f"{code(xid.device[:40])} {plain(xid.model)}".strip()
    return f"• {code(xid.node)} {gpu}{held}: Xid {xid.code}, {meaning}. {action}{cordon}"


def _holder(xid: Xid) -> str:
    """Return the pod; empty for the exporter's own, which some scrapes report for free GPUs."""
    return f"{xid.namespace}/{xid.pod}" if xid.pod and "dcgm-" not in xid.pod else ""
