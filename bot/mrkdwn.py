"""Slack's mrkdwn: what people and machines wrote is shown as written and can't ping anybody."""

CODE_LIMIT = 2500  # characters; a message's text is cut by Slack at 4,000


def plain(text: str) -> str:
    """No mentions, no links: Slack's three control characters escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """A word in `code`; a backtick in it would end the code early."""
    return f"`{plain(text).replace('`', 'ˋ')}`" if text else ""


def block(text: str) -> str:
    """Lines in a code block as a terminal shows them, the last ones when there are too many."""
    # A progress bar overwrites its line again and again.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.replace("\0", "").strip("\n").split("\n")]
    text = "\n".join(lines)
    if len(text) > CODE_LIMIT:
        end = text[-CODE_LIMIT:]
        text = "…\n" + (end.partition("\n")[2] or end)
    return f"```\n{plain(text).replace('```', 'ˋˋˋ')}\n```" if text else ""


def link(url: str, label: str) -> str:
    return f"<{url}|{plain(label).replace('|', '¦')}>"


def mention(user: str) -> str:
    return f"<@{user}>"
