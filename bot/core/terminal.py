"""Convert logs and Slack mrkdwn to the text that a terminal shows. Pure."""

import re

from bot.core.wording import printable

# Each pattern ends within its line and excludes its own first character, so that matching is linear.
LINK = re.compile(r"<(https?://[^<>|\s]*)(?:\|([^<>|\n]*))?>")
BOLD = re.compile(r"(?<![\w*])\*(?![\s*])([^*\n]*[^*\s])\*(?![\w*])")
CODE = re.compile(r"`([^`\n]+)`")
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def uncolored(text: str) -> str:
    return COLOR.sub("", text) if "\x1b[" in text else text


def as_shown(log: str) -> str:
    """Remove colors and NULs, and keep what follows a line's last carriage return, as for progress bars."""
    lines = uncolored(log.replace("\0", "")).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def without_markup(mrkdwn: str) -> str:
    """Return a message as plain text: without bold, code, links, entities, and control characters."""
    text = LINK.sub(_address, CODE.sub(r"\1", BOLD.sub(r"\1", mrkdwn)))
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")  # Slack's only entities
    return "\n".join(map(printable, text.split("\n")))


def _address(link: re.Match[str]) -> str:
    url, label = link.groups()
    return f"{label} ({url})" if label else url
