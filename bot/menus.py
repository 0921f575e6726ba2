"""The options of the form's menus: what is known of a repository, narrowed by what is typed. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bot.config import Config

MOST = 100  # options of a menu
TEXT, VALUE = 75, 150  # characters of an option
NOTHING = "-"  # the value of an option that only tells something
HOME = ("main", "master")  # where people usually begin

Option = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Name:
    name: str
    about: str = ""  # a line for people


@dataclass(frozen=True, kw_only=True)
class GitNames:
    """What git said, when it last said something."""

    names: tuple[Name, ...] = ()
    at: datetime | None = None  # None: never
    trouble: str = ""  # why it does not say more


def option(value: str, about: str = "", *, text: str = "") -> Option:
    """One whose text is cut in its middle, where names differ least."""
    shown: Option = {"text": _plain(_cut(text or value)), "value": value}
    return shown | ({"description": _plain(about[: TEXT - 1].rstrip())} if about.strip() else {})


def repositories(config: Config, typed: str) -> list[Option]:
    address = typed.strip()
    fitting = [each for each in config.repositories if address.lower() in f"{each.name} {each.url}".lower()]
    found = [option(each.name, _without_scheme(each.url)) for each in fitting if len(each.name) <= VALUE]
    if config.allowed_urls and address.startswith("https://") and len(address) <= VALUE:
        found.append(option(address))
    return found[:MOST]


def names(known: GitNames, typed: str, *, first: Iterable[str] = ()) -> list[Option]:
    """What is typed can always be taken as it is: there are tags, and hosts that don't answer."""
    typed = typed.strip()
    ahead = {name: place for place, name in enumerate([*first, *HOME])}
    fitting = [one for one in known.names if typed.lower() in one.name.lower() and len(one.name) <= VALUE]
    fitting.sort(key=lambda one: (ahead.get(one.name, len(ahead)), not one.name.startswith(typed), one.name))
    found = [option(one.name, one.about) for one in fitting[: MOST - 2]]
    if typed and len(typed) <= VALUE and typed not in {one.name for one in known.names}:
        found.append(option(typed, "not in the list; taken as you typed it"))
    if note := _note(known):
        found.append(option(NOTHING, text=f"⚠ {note}"))
    return found


def _note(known: GitNames) -> str:
    if known.trouble:
        since = f"; the list is of {known.at:%H:%M} UTC" if known.at else ""
        return f"{known.trouble}{since}"
    return "" if known.at else "git has not answered yet: type the name, or look again"


def _cut(text: str) -> str:
    half = TEXT // 2
    return text if len(text) <= TEXT else f"{text[:half]}…{text[-half:]}"


def _without_scheme(url: str) -> str:
    return url.partition("://")[2].removesuffix(".git")


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}
