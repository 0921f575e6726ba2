"""Convert logs to the text that a terminal shows. Pure."""

import re

COLOR = re.compile(r"\x1b\[[0-9;]*m")


def uncolored(text: str) -> str:
    return COLOR.sub("", text) if "\x1b[" in text else text


def as_shown(log: str) -> str:
    """Remove colors and NULs, and keep what follows a line's last carriage return, as for progress bars."""
    lines = uncolored(log.replace("\0", "")).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
