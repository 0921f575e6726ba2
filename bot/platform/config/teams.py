"""Teams and GPU prices: `teams:` and `prices:` of the configuration file; which team a person or a namespace
has, and what a model, a MIG slice, or a share of a GPU costs.
"""

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated

from pydantic import WithJsonSchema

from bot.core.request import team_account
from bot.platform.config.rules import Key, Name, Reads, Several
from bot.platform.config.section import Section
from bot.platform.config.trial_pods import Tolerations
from bot.platform.config.value_types import (
    NAMESPACE_NAME,
    AmountText,
    Channel,
    Labels,
    Member,
    Namespace,
    TeamMember,
    Text,
    Whole,
    object_name,
)
from bot.platform.config.yaml_reader import Node
from k8s.nodes.gpus import SHARE

SLICE = re.compile(r"[ -]MIG[ -](\d+)g\.")
QUARTERED = re.compile(r".*\b(A30|RTX[ -]PRO[ -]6000)\b")  # largest MIG profile 4g; 7g for all others
ANYTHING = re.compile(r"(?<!\\)(\.[*+]\??)+$")  # `.*` and the like at a pattern's end
BLANK = re.compile(r"\\? (?![^\[]*\])")  # outside of brackets


@dataclass(frozen=True, kw_only=True)
class Price:
    model: str  # a regular expression for whole words at the start of a GPU's model name
    hourly: float  # of one GPU, in the configured currency
    team: str = ""  # that pays it; "": every team without prices of its own


def _prices(node: Node) -> tuple[Price, ...]:
    return tuple(_price(model, each) for model, each in node.mapping().items())


def _price(model: str, node: Node) -> Price:
    try:
        re.compile(model)
    except re.error as error:
        node.error(f"invalid regular expression: {error}")
    if (hourly := float(node.number())) < 0:
        node.error(f"must be at least 0; got {hourly:g}")
    return Price(model=model, hourly=hourly)


Prices = Annotated[
    tuple[Price, ...],
    Reads(_prices),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}),
]


@dataclass(frozen=True, kw_only=True)
class Team(Section):
    name: Annotated[str, Name(NAMESPACE_NAME, "have only lowercase letters, digits, and dashes, at most 63")]
    namespaces: Annotated[Several[Namespace], Key("[vision, vision-dev]")] = ()
    """Namespaces whose GPUs count as this team's."""
    members: Annotated[Several[TeamMember], Key("[U012ABC, S012ABC, ada@lab.example]")] = ()
    """Slack users, user groups (their ID is behind the three dots of the group), or the email addresses that
    identify new users."""
    namespace: Annotated[Namespace, Key("vision", "`K8S_NAMESPACE`")] = ""
    """Namespace for the trials of its members, one of `namespaces`. What `/sweep setup` sets for the
    channel replaces it."""
    queue: Annotated[Text, object_name("a LocalQueue"), Key("vision")] = ""
    """Kueue LocalQueue of its members' trials, in their namespace."""
    nodes: Annotated[Labels, Key("{team: vision}")] = field(default_factory=dict)
    """Labels of the machines reserved for the team, to run only there."""
    tolerations: Annotated[Tolerations, Key("[{key: team, value: vision, effect: NoSchedule}]")] = ()
    """Tolerations for the taints of the machines reserved for the team."""
    channels: Annotated[Several[Channel], Key("[C012ABC]", "`launch.channels`")] = ()
    """Slack channels where its members can start sweeps; replaces `launch.channels`."""
    channel: Annotated[Channel, Key("C012ABC")] = ""
    """Slack channel for warnings about idle GPUs that no sweep allocated."""
    gpus: Annotated[Whole | None, Key("16", "`launch.gpus`", least=0)] = None
    """Maximum peak GPUs of one sweep of this team; replaces `launch.gpus`."""
    gpus_per_person: Annotated[Whole | None, Key("16", "`launch.gpus_per_person`", least=0)] = None
    """Maximum peak GPUs of all active sweeps of one member; replaces `launch.gpus_per_person`."""
    gpus_total: Annotated[Whole | None, Key("64", "no limit", least=0)] = None
    """Maximum peak GPUs of all active sweeps of its members together."""
    budget: Annotated[AmountText, Key("2000", "`budgets.team`")] = ""
    """What its members' sweeps can use in a month without approval; replaces `budgets.team`."""
    approvers: Annotated[Several[Member], Key("[U012ABC]", "`budgets.approvers`")] = ()
    """Slack users who, beside `budgets.approvers`, can approve a member's sweep above a budget."""
    prices: Annotated[Prices, Key('{"NVIDIA H100": 1.8}', "`prices`")] = ()
    """Price of one GPU-hour by model, for the team; replaces `prices`."""

    @property
    def users(self) -> tuple[str, ...]:
        """Its members, and the account of its CI jobs."""
        return (*self.members, team_account(self.name))


def all_prices(prices: tuple[Price, ...], teams: tuple[Team, ...]) -> tuple[Price, ...]:
    """Return the prices of everyone, and those of teams."""
    return prices + tuple(replace(price, team=team.name) for team in teams for price in team.prices)


def granted_team(teams: tuple[Team, ...], user: str, self_assigned: frozenset[str]) -> Team | None:
    """Return the team whose machines, queue, and limits a user has; None if they chose it themselves."""
    if user in self_assigned:
        return None
    return next((team for team in teams if user in team.users), None)


def team_of(teams: tuple[Team, ...], namespace: str, owner: str) -> str:
    """Return the team of a namespace; in a shared namespace the owner's team. "" if there is none."""
    by_place = next((team.name for team in teams if namespace in team.namespaces), "")
    return by_place or next((team.name for team in teams if owner and owner in team.users), "")


def prices_for(prices: tuple[Price, ...], team: str) -> tuple[Price, ...]:
    """Return the prices that a team pays; `""`: no team."""
    own = tuple(price for price in prices if team and price.team == team)
    return own or tuple(price for price in prices if not price.team)


@lru_cache(maxsize=1024)
def price_of(prices: tuple[Price, ...], model: str) -> float | None:
    """Return the price of one GPU for an hour, or None if no pattern matches.

    The pattern that matches most of the name wins; its blanks match dashes, too, which node labels have in
    their place. A MIG slice costs its share of the card's compute slices, unless a pattern names the slice
    itself, and a shared GPU is divided by the number of its shares.
    """
    if shared := SHARE.search(model):
        whole = price_of(prices, model[: shared.start()])
        return None if whole is None else whole / int(shared[1])
    fits = [(_matched(price.model, model), len(price.model), price.hourly) for price in prices]
    known = [(size, length, hourly) for size, length, hourly in fits if size is not None]
    if not known:
        return None
    size, _, hourly = max(known, key=lambda fit: fit[:2])
    found = SLICE.search(model)
    return hourly * _share(model, int(found[1])) if found and size <= found.start() else hourly


def _matched(pattern: str, model: str) -> int | None:
    """Return how many characters the pattern matches without a final `.*`; None if it doesn't match."""
    pattern = BLANK.sub("[ -]", pattern)
    if not re.match(rf"(?:{pattern})(?!\w)", model):
        return None
    start = re.match(ANYTHING.sub("", pattern), model)
    return start.end() if start else 0


def _share(model: str, slices: int) -> float:
    return min(1.0, slices / (4 if QUARTERED.match(model) else 7))
