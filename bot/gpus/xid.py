"""Errors of GPUs, NVIDIA's Xids: which are new, and what they mean for who runs the machines. Pure.

A gauge holds the last one until the exporter starts anew, so only what changes is news.
"""

from collections.abc import Iterable, Mapping

from bot.gpus.models import Xid
from bot.slack.message import Message
from bot.slack.mrkdwn import code, plain

LISTED = 15
PROGRAM = "usually the program that ran there"
MACHINE = "the machine: look at it, and keep others away with"
# After NVIDIA's catalogue of Xids; the words for each are its own, shortened.
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
    119: ("GSP does not answer", MACHINE),
    120: ("GSP error", MACHINE),
}


def news(before: Mapping[str, int], now: Iterable[Xid]) -> tuple[list[Xid], dict[str, int]]:
    """Those that are new, and what to remember. A GPU that is not seen keeps what was known of it."""
    # Each slice repeats it, held or not.
    seen = {xid.device: xid for xid in sorted(now, key=lambda each: (each.code, _holder(each)))}
    new = [xid for device, xid in sorted(seen.items()) if xid.code and before.get(device, 0) != xid.code]
    return new, {**before, **{device: xid.code for device, xid in seen.items()}}


def message(new: list[Xid]) -> Message:
    lines = [_line(xid) for xid in new[:LISTED]]
    rest = [f"… and {len(new) - LISTED} more"] if len(new) > LISTED else []
    return Message(text="\n".join([":warning: Errors of GPUs:", *lines, *rest]))


def _line(xid: Xid) -> str:
    words, whose = MEANINGS.get(xid.code, ("not one that I know", "NVIDIA's catalogue of Xids has it"))
    cordon = f" {code(f'kubectl cordon {xid.node}')}" if whose is MACHINE else ""
    held = f", held by {code(_holder(xid))}" if _holder(xid) else ""
    gpu = f"{code(xid.device[:40])} {plain(xid.model)}".strip()
    return f"• {code(xid.node)} {gpu}{held}: Xid {xid.code}, {words}. {whose[0].upper()}{whose[1:]}{cordon}."


def _holder(xid: Xid) -> str:
    """Nobody's GPU may have its exporter's name on it, by the way it is scraped."""
    return f"{xid.namespace}/{xid.pod}" if xid.pod and "dcgm-" not in xid.pod else ""
