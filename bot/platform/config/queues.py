"""Queues and priorities of trials (`queues:` and `priorities:` of the configuration), and who can use them.

With `queues:`, Kueue admits the trials, and a priority is a WorkloadPriorityClass. Without, the scheduler
places them, and a priority is a PriorityClass. Pure.
"""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from bot.platform.config.rules import Key, Name, Several
from bot.platform.config.section import Section
from bot.platform.config.value_types import Member as SlackMember
from bot.platform.config.value_types import TeamName, Text, object_name
from bot.text.wording import did_you_mean, listed, shortened

PRIORITIES = ("low", "normal", "high")  # rising
QUEUE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # a label's value holds it
PRIORITY_NAME = re.compile("|".join(PRIORITIES))


@dataclass(frozen=True, kw_only=True)
class Grant(Section):
    """A queue or a priority, and who can use it in addition to admins. Neither teams nor people: everyone."""

    name: str
    teams: Annotated[Several[TeamName], Key("[vision]", "everyone")] = ()
    """Teams that can use it."""
    people: Annotated[Several[SlackMember], Key("[U012ABC]", "everyone")] = ()
    """Slack users who can use it."""

    def allows(self, user: str, team: str) -> bool:
        is_open = not (self.teams or self.people) and self.name != PRIORITIES[-1]
        return is_open or user in self.people or (bool(team) and team in self.teams)


@dataclass(frozen=True, kw_only=True)
class Queue(Grant):
    nullable: ClassVar = True
    name: Annotated[str, Name(QUEUE_NAME, "be that of a LocalQueue")]


@dataclass(frozen=True, kw_only=True)
class Priority(Grant):
    nullable: ClassVar = True
    name: Annotated[str, Name(PRIORITY_NAME, f"be {listed(PRIORITIES, 'or')}")]
    class_: Annotated[Text, object_name("a priority class"), Key("sweeps-high")]
    """The WorkloadPriorityClass; without `queues:`, the PriorityClass."""


@dataclass(frozen=True, kw_only=True)
class QueuePolicy:
    queues: tuple[Queue, ...] = ()  # LocalQueues; the first is the default. None: no Kueue
    priorities: tuple[Priority, ...] = ()  # rising

    @property
    def default_priority(self) -> str:
        return "normal" if any(each.name == "normal" for each in self.priorities) else ""

    def priority_class(self, name: str) -> str:
        return next((each.class_ for each in self.priorities if each.name == name), "")

    def priority_of(self, class_name: str) -> str:
        """Return the priority of a class, "" if unknown."""
        return next((each.name for each in self.priorities if each.class_ == class_name), "")


@dataclass(frozen=True, kw_only=True)
class Member:
    """Who wants to use a queue or a priority."""

    user: str
    team: str = ""
    team_queue: str = ""  # which its members can use
    admin: bool = False


def queue_denial(name: str, who: Member, policy: QueuePolicy) -> str:
    """Return why they can't use this queue; "" if they can."""
    found = next((each for each in policy.queues if each.name == name), None)
    if name and name == who.team_queue:
        return ""
    if found is None:
        hint = did_you_mean(name, [each.name for each in policy.queues])
        return f"Queue `{shortened(name)}` isn't configured.{hint}"
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


def _who(grant: Grant) -> str:
    teams = [f"team {name}" for name in grant.teams]
    people = ["people listed in the configuration"] if grant.people else []
    return listed([*teams, *people, "admins"])
