"""Queues and priorities of trials (`queues:` and `priorities:` of the configuration), and who can use them.

With `queues:`, Kueue admits the trials, and a priority is a WorkloadPriorityClass. Without, the scheduler
places them, and a priority is a PriorityClass. Pure.
"""

import re
from dataclasses import dataclass

from bot.config.keys import NAMESPACE_NAME, OBJECT_NAME, Key, Keys, list_of, string
from bot.config.teams import USER_ID, Team, read_member
from bot.config.yaml_reader import Node, entries, matching
from bot.core.errors import UserError
from bot.text.wording import did_you_mean, listed, shortened

PRIORITIES = ("low", "normal", "high")  # rising
QUEUE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # a label's value holds it
_TEAMS = Key(
    meaning="Teams that can use it.",
    type=list_of(string("team", NAMESPACE_NAME.pattern)),
    default="everyone",
    example="[vision]",
)
_PEOPLE = Key(
    meaning="Slack users who can use it.", type=list_of(USER_ID), default="everyone", example="[U012ABC]"
)
QUEUE_KEYS: Keys = {"teams": _TEAMS, "people": _PEOPLE}
PRIORITY_KEYS: Keys = {
    "class": Key(
        meaning="The WorkloadPriorityClass; without `queues:`, the PriorityClass.",
        type=string("name", OBJECT_NAME.pattern),
        example="sweeps-high",
        required=True,
    ),
    "teams": _TEAMS,
    "people": _PEOPLE,
}


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A queue or a priority, and who can use it in addition to admins. Neither teams nor people: everyone."""

    name: str
    teams: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    class_name: str = ""  # of a priority

    def allows(self, user: str, team: str) -> bool:
        is_open = not (self.teams or self.people) and self.name != PRIORITIES[-1]
        return is_open or user in self.people or (bool(team) and team in self.teams)


@dataclass(frozen=True, kw_only=True)
class QueuePolicy:
    queues: tuple[Grant, ...] = ()  # LocalQueues; the first is the default. None: no Kueue
    priorities: tuple[Grant, ...] = ()  # rising

    @property
    def default_priority(self) -> str:
        return "normal" if any(each.name == "normal" for each in self.priorities) else ""

    def priority_class(self, name: str) -> str:
        return next((each.class_name for each in self.priorities if each.name == name), "")

    def priority_of(self, class_name: str) -> str:
        """Return the priority of a class, "" if unknown."""
        return next((each.name for each in self.priorities if each.class_name == class_name), "")


@dataclass(frozen=True, kw_only=True)
class Member:
    """Who wants to use a queue or a priority."""

    user: str
    team: str = ""
    team_queue: str = ""  # which its members can use
    admin: bool = False


def queue_option(value: str, policy: QueuePolicy, teams: tuple[Team, ...] = ()) -> str:
    """Return the name of a configured queue, also of a team's. Raises UserError."""
    names = [*(each.name for each in policy.queues), *(team.queue for team in teams if team.queue)]
    if not names:
        raise UserError("queue= needs Kueue. Ask an admin to add `queues:` to Sweepbot's configuration.")
    if value not in names:
        raise UserError(
            f'queue= must be a configured queue; got "{shortened(value)}".{did_you_mean(value, names)}'
        )
    return value


def priority_option(value: str, policy: QueuePolicy) -> str:
    """Return the name of a configured priority. Raises UserError."""
    names = [each.name for each in policy.priorities]
    if not names:
        raise UserError("No priorities are configured. Ask an admin to add `priorities:`.")
    if value.lower() not in names:
        raise UserError(f'priority= must be {listed(names, "or")}; got "{shortened(value)}".')
    return value.lower()


def queue_denial(name: str, who: Member, policy: QueuePolicy) -> str:
    """Return why they can't use this queue; "" if they can."""
    found = next((each for each in policy.queues if each.name == name), None)
    if name and name == who.team_queue:
        return ""
    if found is None:
        return f"Queue `{shortened(name)}` isn't configured.{did_you_mean(name, _names(policy.queues))}"
    if who.admin or found.allows(who.user, who.team):
        return ""
    allowed = [each.name for each in policy.queues if each.allows(who.user, who.team)]
    instead = f" You can use {listed(f'`{each}`' for each in allowed)}." if allowed else ""
    return f"Queue `{name}` is for {_who(found)}.{instead}"


def priority_denial(name: str, who: Member, policy: QueuePolicy) -> str:
    """Return why they can't use this priority; "" if they can."""
    found = next((each for each in policy.priorities if each.name == name), None)
    if found is None:
        return f"Priority {name} isn't configured. Ask an admin to add it to `priorities:`."
    if who.admin or found.allows(who.user, who.team):
        return ""
    return f"Priority {name} is for {_who(found)}. *Fix:* Use a lower priority, or ask an admin."


def read_queues(queues: Node | None, priorities: Node | None) -> QueuePolicy:
    found = {name: _priority(name, each) for name, each in _pairs(priorities)}
    return QueuePolicy(
        queues=tuple(_queue(name, each) for name, each in _pairs(queues)),
        priorities=tuple(found[name] for name in PRIORITIES if name in found),
    )


def _pairs(node: Node | None) -> list[tuple[str, Node]]:
    return list(node.mapping().items()) if node else []


def _queue(name: str, node: Node) -> Grant:
    if not QUEUE_NAME.fullmatch(name):
        node.error(f'must be the name of a LocalQueue; got "{shortened(name)}"')
    return _grant(name, node, QUEUE_KEYS)


def _priority(name: str, node: Node) -> Grant:
    if name not in PRIORITIES:
        node.error(f'name must be {listed(PRIORITIES, "or")}; got "{shortened(name)}"')
    return _grant(name, node, PRIORITY_KEYS)


def _grant(name: str, node: Node, known: Keys) -> Grant:
    keys = node.mapping(known) if node.value is not None else {}
    if node.value is None and known is PRIORITY_KEYS:
        node.error("missing key: class")
    return Grant(
        name=name,
        teams=tuple(each.text() for each in entries(keys.get("teams"))),
        people=tuple(read_member(each) for each in entries(keys.get("people"))),
        class_name=matching(keys.get("class"), OBJECT_NAME, "the name of a priority class"),
    )


def _names(grants: tuple[Grant, ...]) -> list[str]:
    return [each.name for each in grants]


def _who(grant: Grant) -> str:
    teams = [f"team {name}" for name in grant.teams]
    people = ["people listed in the configuration"] if grant.people else []
    return listed([*teams, *people, "admins"])
