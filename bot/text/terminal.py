"""Convert logs (escape sequences, progress bars) and Slack mrkdwn to the text that a terminal shows, align
columns, and read what is typed there. Pure.
"""

import re
import shlex
from collections.abc import Iterable

from bot.text.wording import printable

# Each pattern ends within its line and excludes its own first character, so that matching is linear.
LINK = re.compile(r"<(https?://[^<>|\s]*)(?:\|([^<>|\n]*))?>")
BOLD = re.compile(r"(?<![\w*])\*(?![\s*])([^*\n]*[^*\s])\*(?![\w*])")
CODE = re.compile(r"`([^`\n]+)`")
# Of ECMA-48 and xterm. `tput sgr0` also selects a character set, or shifts back to the first one.
ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colors, cursor movements, and erasures
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # titles, links, and other strings
    r"|\x1b(?:[ -/]{1,3}[0-~]|[78=>])|[\x0e\x0f]"  # character sets, a saved cursor, and shifts
)
INTRODUCERS = ("\x1b", "\x9b", "\x0e", "\x0f")


def without_escapes(text: str) -> str:
    return ESCAPE.sub("", text) if any(each in text for each in INTRODUCERS) else text


def as_shown(log: str) -> str:
    """Remove escape sequences and NULs; keep what follows a line's last carriage return (progress bars)."""
    lines = without_escapes(log.replace("\0", "")).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def without_markup(mrkdwn: str) -> str:
    """Return a message as plain text: without bold, code, links, entities, and control characters."""
    text = LINK.sub(_address, CODE.sub(r"\1", BOLD.sub(r"\1", mrkdwn)))
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")  # Slack's only entities
    return "\n".join(map(printable, text.split("\n")))


def _address(link: re.Match[str]) -> str:
    url, label = link.groups()
    return f"{label} ({url})" if label else url


def aligned(rows: Iterable[Iterable[str]]) -> str:
    """Return the cells in columns, a line for each row."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, each, widths)).rstrip() for each in cells)


def typed(words: list[str]) -> str:
    """Return arguments of a shell as what follows /sweep in Slack, with the quotes that the shell removed."""
    if len(words) > 1:  # else it was quoted as a whole
        pairs = (re.fullmatch(r"([\w-]+)=(.*)", word, re.DOTALL) for word in words)
        words = [
            f"{pair[1]}={shlex.quote(pair[2])}" if pair else word
            for pair, word in zip(pairs, words, strict=True)
        ]
    return " ".join(words).removeprefix("/sweep ").strip()
