"""Teams and GPU prices: `teams:` and `prices:` of the configuration file."""

import re
from dataclasses import dataclass
from functools import lru_cache

from bot.config.keys import NAMESPACE_NAME, Key, Keys, integer, list_of, string
from bot.config.yaml_reader import Node, entries
from bot.core.wording import shortened

MEMBER = re.compile(r"[UW][A-Z0-9]{2,}")
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
CHANNEL = re.compile(r"[CG][A-Z0-9]{2,}")
SLICE = re.compile(r" MIG (\d+)g\.")
QUARTERED = re.compile(r".*\b(A30|RTX PRO 6000)\b")  # largest MIG profile 4g; 7g for all others
ANYTHING = re.compile(r"(?<!\\)(\.[*+]\??)+$")  # `.*` and the like at a pattern's end
USER_ID = string("Slack member ID", MEMBER.pattern)
CHANNEL_ID = string("Slack channel ID", CHANNEL.pattern)
TEAM_KEYS: Keys = {
    "namespaces": Key(
        meaning="Namespaces whose GPUs count as this team's.",
        type=list_of(string("namespace", NAMESPACE_NAME.pattern)),
        default="none",
        example="[vision, vision-dev]",
    ),
    "members": Key(
        meaning="Slack users, or the email addresses that identify new users.",
        type=list_of(string("Slack member ID or email address", f"{MEMBER.pattern}|{MAIL.pattern}")),
        default="none",
        example="[U012ABC, ada@lab.example]",
    ),
    "channel": Key(
        meaning="Slack channel for warnings about idle GPUs that no sweep allocated.",
        type=CHANNEL_ID,
        default="none",
        example="C012ABC",
    ),
    "gpus": Key(
        meaning="Maximum peak GPUs of one sweep of this team; replaces `launch.gpus`.",
        type=integer(0),
        default="`launch.gpus`",
        example="16",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Team:
    name: str
    namespaces: tuple[str, ...] = ()
    members: tuple[str, ...] = ()  # Slack user ids, or email addresses that identify new users
    channel: str = ""  # Slack channel id for warnings about idle GPUs that no sweep allocated
    gpus: int | None = None  # peak of one of their sweeps; None: launch.gpus


@dataclass(frozen=True, kw_only=True)
class Price:
    model: str  # a regular expression for whole words at the start of a GPU's model name
    hourly: float  # of one GPU, in the configured currency


def team_of(teams: tuple[Team, ...], namespace: str, owner: str) -> str:
    """Return the team of a namespace; in a shared namespace the owner's team. "" if there is none."""
    by_place = next((team.name for team in teams if namespace in team.namespaces), "")
    return by_place or next((team.name for team in teams if owner and owner in team.members), "")


@lru_cache(maxsize=1024)
def price_of(prices: tuple[Price, ...], model: str) -> float | None:
    """Return the price of one GPU for an hour, or None if no pattern matches.

    The pattern that matches most of the name wins. A MIG slice costs its share of the card's compute slices,
    unless a pattern names the slice itself.
    """
    fits = [(_matched(price.model, model), len(price.model), price.hourly) for price in prices]
    known = [(size, length, hourly) for size, length, hourly in fits if size is not None]
    if not known:
        return None
    size, _, hourly = max(known, key=lambda fit: fit[:2])
    found = SLICE.search(model)
    return hourly * _share(model, int(found[1])) if found and size <= found.start() else hourly


def _matched(pattern: str, model: str) -> int | None:
    """Return how many characters the pattern matches without a final `.*`; None if it doesn't match."""
    if not re.match(rf"(?:{pattern})(?!\w)", model):
        return None
    start = re.match(ANYTHING.sub("", pattern), model)
    return start.end() if start else 0


def _share(model: str, slices: int) -> float:
    return min(1.0, slices / (4 if QUARTERED.match(model) else 7))


def read_teams(node: Node | None) -> tuple[Team, ...]:
    """Read the teams. A namespace or person in two teams is an error: GPU-hours would count twice."""
    teams = tuple(_team(name, each) for name, each in node.mapping().items()) if node else ()
    for what in ("namespaces", "members"):
        claimed: dict[str, str] = {}
        for team in teams:
            for each in getattr(team, what):
                first = claimed.setdefault(each, team.name)
                if node and first != team.name:
                    node.value[team.name].error(f"{each} is already in {what} of team {first}")
    return teams


def _team(name: str, node: Node) -> Team:
    if not NAMESPACE_NAME.fullmatch(name):
        node.error(
            f'name must have only lowercase letters, digits, and dashes, at most 63; got "{shortened(name)}"'
        )
    keys = node.mapping(TEAM_KEYS)
    return Team(
        name=name,
        namespaces=tuple(each.text() for each in entries(keys.get("namespaces"))),
        members=tuple(_member(each) for each in entries(keys.get("members"))),
        channel=read_channel(keys.get("channel")),
        gpus=keys["gpus"].whole() if "gpus" in keys else None,
    )


def _member(node: Node) -> str:
    member = node.text()
    if member and not (MEMBER.fullmatch(member) or MAIL.fullmatch(member)):
        node.error(f'must be a Slack member ID such as U012ABC or an email address; got "{member}"')
    return member


def read_channel(node: Node | None) -> str:
    channel = node.text() if node else ""
    if node and channel and not CHANNEL.fullmatch(channel):
        node.error(f'must be a Slack channel ID such as C012ABC (at the end of its details); got "{channel}"')
    return channel


def read_prices(node: Node | None) -> tuple[Price, ...]:
    pairs = node.mapping().items() if node else ()
    return tuple(_price(model, each) for model, each in pairs)


def _price(model: str, node: Node) -> Price:
    try:
        re.compile(model)
    except re.error as error:
        node.error(f"invalid regular expression: {error}")
    if (hourly := float(node.number())) < 0:
        node.error(f"must be at least 0; got {hourly:g}")
    return Price(model=model, hourly=hourly)
