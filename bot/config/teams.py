"""Whose GPUs they are and what an hour of one costs: `teams:` and `prices:` of the configuration file."""

import re
from dataclasses import dataclass
from functools import lru_cache

from bot.config.yaml_reader import Node

MEMBER = re.compile(r"[UW][A-Z0-9]{2,}")
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
CHANNEL = re.compile(r"[CG][A-Z0-9]{2,}")
SLICE = re.compile(r" MIG (\d+)g\.")
QUARTERED = re.compile(r".*\b(A30|RTX PRO 6000)\b")  # whose largest MIG profile is 4g; of all others it is 7g
ANYTHING = re.compile(r"(?<!\\)(\.[*+]\??)+$")  # at a pattern's end


@dataclass(frozen=True, kw_only=True)
class Team:
    name: str
    namespaces: tuple[str, ...] = ()
    members: tuple[str, ...] = ()  # Slack user ids, or the e-mail addresses by which new people are known
    channel: str = ""  # Slack channel id: where idle GPUs are told that no sweep holds
    gpus: int | None = None  # that one sweep of theirs may hold at its peak; None: as everybody's


@dataclass(frozen=True, kw_only=True)
class Price:
    model: str  # a regular expression for whole words at the start of a GPU's model name
    hourly: float  # of one GPU, in the currency of the house


def team_of(teams: tuple[Team, ...], namespace: str, owner: str) -> str:
    """A namespace of one team speaks for itself; in a shared one it is the owner's team. "" is nobody's."""
    by_place = next((team.name for team in teams if namespace in team.namespaces), "")
    return by_place or next((team.name for team in teams if owner and owner in team.members), "")


@lru_cache(maxsize=1024)
def price_of(prices: tuple[Price, ...], model: str) -> float | None:
    """Return the price of one GPU for an hour, or None where no pattern fits.

    The pattern that says most of the name wins. A MIG slice costs its share of the card's compute slices,
    unless a pattern names the slice itself.
    """
    fits = [(_said(price.model, model), len(price.model), price.hourly) for price in prices]
    known = [(said, length, hourly) for said, length, hourly in fits if said is not None]
    if not known:
        return None
    said, _, hourly = max(known, key=lambda fit: fit[:2])
    found = SLICE.search(model)
    return hourly * _share(model, int(found[1])) if found and said <= found.start() else hourly


def _said(pattern: str, model: str) -> int | None:
    """Return how many characters of the name it says, "anything" at its end aside; None: it does not fit."""
    if not re.match(rf"(?:{pattern})(?!\w)", model):
        return None
    start = re.match(ANYTHING.sub("", pattern), model)
    return start.end() if start else 0


def _share(model: str, slices: int) -> float:
    return min(1.0, slices / (4 if QUARTERED.match(model) else 7))


def read_teams(node: Node | None) -> tuple[Team, ...]:
    """Complains about a namespace or a person that two teams claim: hours may not count twice."""
    teams = tuple(_team(name, each) for name, each in node.mapping().items()) if node else ()
    for what in ("namespaces", "members"):
        claimed: dict[str, str] = {}
        for team in teams:
            for each in getattr(team, what):
                first = claimed.setdefault(each, team.name)
                if node and first != team.name:
                    node.value[team.name].wrong(f"{each} already belongs to {first}, see {what} there")
    return teams


def _team(name: str, node: Node) -> Team:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        node.wrong(f'"{name}" is not a name: use small letters, digits and dashes, 63 at most')
    keys = node.mapping(("namespaces", "members", "channel", "gpus"))
    namespaces, members = ([*keys[key].items()] if key in keys else [] for key in ("namespaces", "members"))
    return Team(
        name=name,
        namespaces=tuple(each.text() for each in namespaces),
        members=tuple(_member(each) for each in members),
        channel=read_channel(keys.get("channel")),
        gpus=keys["gpus"].whole() if "gpus" in keys else None,
    )


def _member(node: Node) -> str:
    member = node.text()
    if member and not (MEMBER.fullmatch(member) or MAIL.fullmatch(member)):
        node.wrong(f'"{member}" is neither a Slack member id such as U012ABC nor an e-mail address')
    return member


def read_channel(node: Node | None) -> str:
    channel = node.text() if node else ""
    if node and channel and not CHANNEL.fullmatch(channel):
        node.wrong(f'"{channel}" is not a channel id such as C012ABC (at the end of its details in Slack)')
    return channel


def read_prices(node: Node | None) -> tuple[Price, ...]:
    pairs = node.mapping().items() if node else ()
    return tuple(_price(model, each) for model, each in pairs)


def _price(model: str, node: Node) -> Price:
    try:
        re.compile(model)
    except re.error as error:
        node.wrong(f'"{model}" is not a regular expression: {error}')
    if (hourly := float(node.number())) < 0:
        node.wrong("a price can't be below zero")
    return Price(model=model, hourly=hourly)
