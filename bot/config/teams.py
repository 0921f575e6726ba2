"""Teams and GPU prices: `teams:` and `prices:` of the configuration file."""

import re
from dataclasses import dataclass, field
from functools import lru_cache

from bot.config.keys import (
    LIST,
    NAMED,
    NAMESPACE_NAME,
    OBJECT_NAME,
    SCALAR,
    Key,
    Keys,
    integer,
    list_of,
    number,
    string,
)
from bot.config.trial_pods import TOLERATION_KEYS, read_labels, read_name, read_toleration
from bot.config.yaml_reader import Node, entries, matching
from bot.text.wording import shortened

MEMBER = re.compile(r"[UW][A-Z0-9]{2,}")
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
MEMBER_OR_MAIL = re.compile(f"{MEMBER.pattern}|{MAIL.pattern}")
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
    "namespace": Key(
        meaning="Namespace for the trials of its members, one of `namespaces`. What `/sweep setup` sets for "
        "the channel replaces it.",
        type=string("namespace", NAMESPACE_NAME.pattern),
        default="`K8S_NAMESPACE`",
        example="vision",
    ),
    "queue": Key(
        meaning="Kueue LocalQueue of its members' trials, in their namespace.",
        type=string("name", OBJECT_NAME.pattern),
        default="none",
        example="vision",
    ),
    "nodes": Key(
        meaning="Labels of the machines reserved for the team, to run only there.",
        type={"type": "object", "additionalProperties": SCALAR},
        default="none",
        example="{team: vision}",
    ),
    "tolerations": Key(
        meaning="Tolerations for the taints of the machines reserved for the team.",
        type=LIST,
        default="none",
        example="[{key: team, value: vision, effect: NoSchedule}]",
        keys=TOLERATION_KEYS,
    ),
    "channels": Key(
        meaning="Slack channels where its members can start sweeps; replaces `launch.channels`.",
        type=list_of(CHANNEL_ID),
        default="`launch.channels`",
        example="[C012ABC]",
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
    "gpus_per_person": Key(
        meaning="Maximum peak GPUs of all active sweeps of one member; replaces `launch.gpus_per_person`.",
        type=integer(0),
        default="`launch.gpus_per_person`",
        example="16",
    ),
    "gpus_total": Key(
        meaning="Maximum peak GPUs of all active sweeps of its members together.",
        type=integer(0),
        default="no limit",
        example="64",
    ),
    "prices": Key(
        meaning="Price of one GPU-hour by model, for the team; replaces `prices`.",
        type=NAMED | {"additionalProperties": number(0)},
        default="`prices`",
        example='{"NVIDIA H100": 1.8}',
    ),
}


@dataclass(frozen=True, kw_only=True)
class Team:
    name: str
    namespaces: tuple[str, ...] = ()
    members: tuple[str, ...] = ()  # Slack user ids, or email addresses that identify new users
    channel: str = ""  # Slack channel id for warnings about idle GPUs that no sweep allocated
    gpus: int | None = None  # peak of one of their sweeps; None: launch.gpus
    gpus_per_person: int | None = None  # peak of all active sweeps of a member; None: launch.gpus_per_person
    gpus_total: int | None = None  # peak of all active sweeps of its members; None: no limit
    namespace: str = ""  # of their trials; "": K8S_NAMESPACE
    queue: str = ""  # Kueue LocalQueue of their trials
    nodes: dict[str, str] = field(default_factory=dict)  # labels of the machines that are theirs alone
    tolerations: tuple[dict[str, str], ...] = ()  # for the taints of those
    channels: tuple[str, ...] = ()  # where they can start sweeps; empty: launch.channels


@dataclass(frozen=True, kw_only=True)
class Price:
    model: str  # a regular expression for whole words at the start of a GPU's model name
    hourly: float  # of one GPU, in the configured currency
    team: str = ""  # that pays it; "": every team without prices of its own


def granted_team(teams: tuple[Team, ...], user: str, self_assigned: frozenset[str]) -> Team | None:
    """Return the team whose machines, queue, and limits a user has; None if they chose it themselves."""
    if user in self_assigned:
        return None
    return next((team for team in teams if user in team.members), None)


def team_of(teams: tuple[Team, ...], namespace: str, owner: str) -> str:
    """Return the team of a namespace; in a shared namespace the owner's team. "" if there is none."""
    by_place = next((team.name for team in teams if namespace in team.namespaces), "")
    return by_place or next((team.name for team in teams if owner and owner in team.members), "")


def prices_for(prices: tuple[Price, ...], team: str) -> tuple[Price, ...]:
    """Return the prices that a team pays; `""`: no team."""
    own = tuple(price for price in prices if team and price.team == team)
    return own or tuple(price for price in prices if not price.team)


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
        gpus=_most(keys.get("gpus")),
        gpus_per_person=_most(keys.get("gpus_per_person")),
        gpus_total=_most(keys.get("gpus_total")),
        namespace=read_namespace(keys.get("namespace")),
        queue=read_name(keys.get("queue"), "a LocalQueue"),
        nodes=read_labels(keys.get("nodes")),
        tolerations=tuple(read_toleration(each) for each in entries(keys.get("tolerations"))),
        channels=tuple(read_channel(each) for each in entries(keys.get("channels"))),
    )


def _most(node: Node | None) -> int | None:
    if node is None:
        return None
    before, most = len(node.errors), node.whole()
    if most < 0 and len(node.errors) == before:
        node.error(f"must be at least 0; got {most}")
    return most


def read_namespace(node: Node | None) -> str:
    return matching(node, NAMESPACE_NAME, "a namespace name (lowercase letters, digits, dashes)")


def _member(node: Node) -> str:
    return matching(node, MEMBER_OR_MAIL, "a Slack member ID such as U012ABC or an email address")


def read_member(node: Node) -> str:
    """Return a Slack user id."""
    return matching(node, MEMBER, "a Slack member ID such as U012ABC (Profile > More > Copy member ID)")


def read_channel(node: Node | None) -> str:
    return matching(node, CHANNEL, "a Slack channel ID such as C012ABC (at the end of its details)")


def read_prices(node: Node | None, teams: Node | None = None) -> tuple[Price, ...]:
    """Read the prices of everyone, and those of teams."""
    return _prices(node, "") + tuple(
        price
        for team, each in (teams.mapping().items() if teams else ())
        if isinstance(each.value, dict)
        for price in _prices(each.value.get("prices"), team)
    )


def _prices(node: Node | None, team: str) -> tuple[Price, ...]:
    pairs = node.mapping().items() if node else ()
    return tuple(_price(model, each, team) for model, each in pairs)


def _price(model: str, node: Node, team: str) -> Price:
    try:
        re.compile(model)
    except re.error as error:
        node.error(f"invalid regular expression: {error}")
    if (hourly := float(node.number())) < 0:
        node.error(f"must be at least 0; got {hourly:g}")
    return Price(model=model, hourly=hourly, team=team)
