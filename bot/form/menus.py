"""Options of the form's menus, filtered by the typed text. Pure."""

from collections.abc import Iterable

from bot.config.policy import Config
from bot.repos.catalog import GitNames
from bot.slack.blocks import MAX_OPTIONS, MAX_VALUE, NOTHING, Option, option

MAIN_BRANCHES = ("main", "master")  # listed first


def repositories(config: Config, typed: str) -> list[Option]:
    address = typed.strip()
    fitting = [each for each in config.repositories if address.lower() in f"{each.name} {each.url}".lower()]
    found = [option(each.name, _without_scheme(each.url)) for each in fitting if len(each.name) <= MAX_VALUE]
    if config.allowed_urls and address.startswith("https://") and len(address) <= MAX_VALUE:
        found.append(option(address))
    return found[:MAX_OPTIONS]


def names(known: GitNames, typed: str, *, first: Iterable[str] = ()) -> list[Option]:
    """Return the matching names, and the typed text: it can be a tag, or git can be unreachable."""
    typed = typed.strip()
    ahead = {name: place for place, name in enumerate([*first, *MAIN_BRANCHES])}
    fitting = [one for one in known.names if typed.lower() in one.name.lower() and len(one.name) <= MAX_VALUE]
    fitting.sort(key=lambda one: (ahead.get(one.name, len(ahead)), not one.name.startswith(typed), one.name))
    found = [option(one.name, one.about) for one in fitting[: MAX_OPTIONS - 2]]
    if typed and len(typed) <= MAX_VALUE and typed not in {one.name for one in known.names}:
        found.append(option(typed, "Not in the list; used as typed"))
    if note := _note(known):
        found.append(option(NOTHING, text=f"⚠ {note}"))
    return found


def _note(known: GitNames) -> str:
    if known.error:
        since = f" (list from {known.at:%H:%M} UTC)" if known.at else ""
        return f"{known.error}{since}"
    return "" if known.at else "No answer from git yet. Type a name or reopen the menu"


def _without_scheme(url: str) -> str:
    return url.partition("://")[2].removesuffix(".git")
