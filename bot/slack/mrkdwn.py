"""Slack's mrkdwn: what people and machines wrote is shown as written and can't ping anybody."""

import re
from datetime import datetime

from bot.core.terminal import as_shown

# Turn the direction of what comes after them.
BIDI = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
LOOKALIKES = str.maketrans({"*": "∗", "`": "ˋ", "~": "∼", "_": "ˍ"})
CODE_LIMIT = 2500  # characters
TEXT_MOST = 4_000  # characters of a message: Slack refuses a longer edit, and recommends no more of a post


def plain(text: str) -> str:
    """No mentions, no links: Slack's three control characters escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quoted(text: str, most: int = 300) -> str:
    """What somebody wrote, within a sentence: in one line, and nothing in it is formatting."""
    line = " ".join(BIDI.sub("", text).split())
    return plain(clipped(line, most).translate(LOOKALIKES))


def clipped(text: str, most: int) -> str:
    """So that it has at most so many characters once it is escaped."""
    if len(plain(text)) <= most:
        return text
    text = text[:most]
    while (over := len(plain(text)) + 1 - most) > 0:
        text = text[: -max(1, over // len("&amp;"))]
    return f"{text}…"


def code(text: str, most: int = 600) -> str:
    """A word in `code`; a backtick in it, or the end of the line, would end the code early."""
    line = " ".join(clipped(BIDI.sub("", text), most).splitlines())
    return f"`{plain(line).replace('`', 'ˋ')}`" if line.strip() else ""


def block(text: str) -> str:
    """Lines in a code block as a terminal shows them, the last ones when there are too many."""
    text = as_shown(text).strip("\n")
    if len(text) > CODE_LIMIT:
        end = text[-CODE_LIMIT:]
        text = "…\n" + (end.partition("\n")[2] or end)
    return f"```\n{plain(text).replace('```', 'ˋˋˋ')}\n```" if text else ""


def cut(text: str, most: int = TEXT_MOST) -> str:
    """At most so many characters of finished mrkdwn, with no entity, link, or code left open."""
    if len(text) <= most:
        return text
    text = text[: most - len("`\n```\n…")]
    line = text.rfind("\n", len(text) * 3 // 4)
    text = text[:line] if line > 0 else _whole(text)
    if text.count("```") % 2:
        return f"{text}\n```\n…"
    return f"{text}{'`' * (text.rpartition(chr(10))[2].count('`') % 2)}\n…"


def _whole(text: str) -> str:
    """Without the beginning of a link or an entity at its end."""
    link, entity = text.rfind("<"), text.rfind("&")
    ends = [link] if link > text.rfind(">") else []
    ends += [entity] if entity > text.rfind(";") else []
    return text[: min(ends, default=len(text))].rstrip("`")


def link(url: str, label: str) -> str:
    return f"<{url}|{plain(label).replace('|', '¦')}>"


def place(channel: str) -> str:
    """Slack has no name to show for direct messages."""
    return "direct messages" if direct(channel) else f"<#{channel}>"


def direct(channel: str) -> bool:
    """Where no words reach the bot: Slack tells it of mentions in channels only, by `app_mention`."""
    return channel[:1] not in {"C", "G"}


def mention(user: str) -> str:
    return f"<@{user}>"


def local_time(when: datetime) -> str:
    """Return a Slack date token: each reader sees their own time zone; `when` is UTC."""
    return f"<!date^{round(when.timestamp())}^{{date_short_pretty}} {{time}}|{when:%Y-%m-%d %H:%M} UTC>"
