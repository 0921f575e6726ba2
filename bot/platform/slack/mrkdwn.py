"""Format text for Slack mrkdwn, so that user input can't format, link, or mention: code, links, mentions,
local times, commits, findings with their fix, and cuts of long texts.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from bot.core.finding import Finding
from bot.core.request import TEAM, is_team
from bot.text.terminal import as_shown

# Characters that change the direction of the text after them.
BIDI = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
LOOKALIKES = str.maketrans({"*": "∗", "`": "ˋ", "~": "∼"})
UNDERSCORE = re.compile(r"(?<![a-zA-Z0-9])_|_(?![a-zA-Z0-9])")  # one within a word formats nothing
SHORT_COMMIT, MAX_SUBJECT_SHOWN = 8, 80  # characters
MAX_CODE_SIZE = 2500  # characters
MAX_DETAIL = 500  # characters
MENTION = re.compile(r"<@([UW][A-Z0-9]{2,})>")
MAX_MESSAGE = 4_000  # characters: Slack rejects a longer edit, and recommends this limit for posts


def plain(text: str) -> str:
    """Escape Slack's three control characters, so that the text has no mentions or links."""
    return BIDI.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quoted(text: str, most: int = 300) -> str:
    """Return user input for use within a sentence: on one line, without formatting."""
    line = " ".join(BIDI.sub("", text).split())
    return plain(UNDERSCORE.sub("ˍ", clipped(line, most).translate(LOOKALIKES)))


def clipped(text: str, most: int) -> str:
    """Cut the text to at most `most` characters after escaping."""
    if len(plain(text)) <= most:
        return text
    text = text[:most]
    while (over := len(plain(text)) + 1 - most) > 0:
        text = text[: -max(1, over // len("&amp;"))]
    return f"{text}…"


def code(text: str, most: int = 600) -> str:
    """Format as inline code; replace backticks and line breaks, which would end it early."""
    line = " ".join(clipped(BIDI.sub("", text), most).splitlines())
    return f"`{plain(line).replace('`', 'ˋ')}`" if line.strip() else ""


def finding_text(one: Finding) -> str:
    """Return what is wrong, the fix, and the quoted detail on lines of their own; backticks mark code."""
    fix = f"\n*Fix:* {plain(one.fix)}" if one.fix else ""
    detail = f"\n> {quoted(one.detail, MAX_DETAIL)}" if one.detail else ""
    return f"{plain(one.text)}{fix}{detail}"


def commit_text(commit: str, subject: str) -> str:
    """`4f2c0a1b` “Try a larger batch”; only the hash of a commit without a message."""
    subject = quoted(subject, MAX_SUBJECT_SHOWN)
    return f"{code(commit[:SHORT_COMMIT])} “{subject}”" if subject else code(commit[:SHORT_COMMIT])


def block(text: str) -> str:
    """Format as a code block, as a terminal would show it; keep the last lines if it is too long."""
    text = as_shown(text).strip("\n")
    if len(text) > MAX_CODE_SIZE:
        end = text[-MAX_CODE_SIZE:]
        text = "…\n" + (end.partition("\n")[2] or end)
    return f"```\n{plain(text).replace('```', 'ˋˋˋ')}\n```" if text else ""


def cut(text: str, most: int = MAX_MESSAGE) -> str:
    """Cut finished mrkdwn to at most `most` characters; leave no entity, link, or code open."""
    if len(text) <= most:
        return text
    text = text[: most - len("`\n```\n…")]
    line = text.rfind("\n", len(text) * 3 // 4)
    text = text[:line] if line > 0 else _whole(text)
    if text.count("```") % 2:
        return f"{text}\n```\n…"
    last_line = text.rpartition("\n")[2].replace("```", "")
    return f"{text}{'`' * (last_line.count('`') % 2)}\n…"


def _whole(text: str) -> str:
    """Remove an incomplete link or entity from the end."""
    return re.sub(r"(?:<[^>]*|&[a-z]{0,3})$", "", text).rstrip("`")


def link(url: str, label: str) -> str:
    return f"<{url}|{plain(label).replace('|', '¦')}>"


def place(channel: str) -> str:
    """Link a channel; Slack has no link for direct messages."""
    return "direct messages" if direct(channel) else f"<#{channel}>"


def direct(channel: str) -> bool:
    """Return whether this is no channel: Slack sends `app_mention` events for channels only."""
    return channel[:1] not in {"C", "G"}


def mention(user: str) -> str:
    """Mention a Slack user; a team, whose CI jobs act, is only named."""
    return f"team {user.removeprefix(TEAM)}" if is_team(user) else f"<@{user}>"


def unmentioned(text: str, names: Mapping[str, str]) -> str:
    """Return mrkdwn, also within JSON, with names in place of the mentions of these users."""
    safe = {user: re.sub(r"[^\w .-]", "", name) for user, name in names.items()}
    return MENTION.sub(lambda found: safe.get(found[1], found[0]), text)


def local_time(when: datetime) -> str:
    """Return a Slack date token: each reader sees their own time zone; `when` is UTC."""
    return f"<!date^{round(when.timestamp())}^{{date_short_pretty}} {{time}}|{when:%Y-%m-%d %H:%M} UTC>"
