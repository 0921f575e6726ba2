"""Logs as a terminal shows them. Pure."""

import re

COLOR = re.compile(r"\x1b\[[0-9;]*m")


def uncolored(text: str) -> str:
    return COLOR.sub("", text) if "\x1b[" in text else text


def as_shown(log: str) -> str:
    """Without colors and NULs; of each line what follows its last carriage return, as of progress bars."""
    lines = uncolored(log.replace("\0", "")).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
