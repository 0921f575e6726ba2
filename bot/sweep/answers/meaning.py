"""Say which command a sentence means, with which options, for whoever said it. Pure."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain

from bot.core.commands import Action
from bot.core.ids import is_meant
from bot.core.sweep_summary import SweepSummary
from bot.platform.commands.grammar import HELP, Command, Parsed, Table
from bot.platform.commands.phrases import Names, negated, ranked, read_sentence
from bot.platform.config.policy import Config
from bot.sweep.answers.command_parser import COMPARE, FOR_ACTIVE, LISTING, OF_ENDED, RERUN, STATUS, TABLE
from bot.sweep.launch.options import LAUNCH

PAST = re.compile(
    r"(?:did|has|have|was|were|is|are|why|when"
    r"|(?:i|we)(?: have|'ve)?(?: just| never)? (?!need)(?:\w+ed|ran))\b",
    re.IGNORECASE,
)
SURE = 3  # words of a command that outweigh a branch and a space
# What a sentence means that names a sweep, this option, and no command; by option, and whether it has ended.
BY_OPTION = {
    ("trials", True): "extend",
    ("trials", False): "extend",
    ("queue", False): "queue move",
    ("budget", False): "raise",
}


@dataclass(frozen=True, kw_only=True)
class Meaning:
    table: Table
    parsed: Parsed
    note: str = ""  # what wasn't understood
    adds: bool = False  # its number of trials is on top of what the sweep has

    @property
    def command(self) -> Command:
        return self.parsed.command

    @property
    def missing(self) -> list[str]:
        options = self.parsed.options
        return [f"{each.key}=" for each in self.command.options if each.required and each.key not in options]

    @property
    def typed(self) -> str:
        return f"{self.command.name} {self.parsed.typed}".strip()


def sweep_names(sweeps: list[SweepSummary]) -> dict[str, str]:
    """Return what a sentence can call each sweep; not only its space or its adjective, which are words."""
    found = dict[str, str]()
    for each in sweeps:
        ends = each.id.rsplit("-", 2)
        found |= {each.id: each.id, ends[-1]: ends[-1], "-".join(ends[-2:]): "-".join(ends[-2:])}
    return found


def space_names(spaces: list[str]) -> dict[str, str]:
    """Return what a sentence can call each space."""
    forms = ("{}", "{}.yaml", "sweeps/{}.yaml")
    found = {form.format(each): each for each in spaces for form in forms}
    return {each.replace("-", " ").replace("_", " "): each for each in spaces} | found


def meaning(
    text: str,
    tables: list[Table],
    names: Names,
    last: Mapping[str, str],
    sweeps: Sequence[SweepSummary] = (),
    here: str = "",
) -> Meaning | None:
    """Return the command that a text means, with its options; None if it means nothing.

    `last`: options of the person's last launch. `here`: the sweep in whose thread it was said.
    """
    config: Config = names.config
    start = read_sentence(text, TABLE, LAUNCH, names)
    named = _named_sweep(text, names, start.parsed.options, sweeps)
    like = {each.name.lower(): "gpu" for each in config.profiles if each.gpus}
    order = ranked(text, tables, like, {*chain(*names.known.values())})
    is_named = bool(named or (here and order and "sweep" in order[0][2].by_key))
    if order and order[0][2] is HELP and order[0][0] >= SURE and (not is_named or " if " in text.lower()):
        return Meaning(table=order[0][1], parsed=Parsed(command=HELP))
    if is_named and order and order[0][2].answers:
        several = read_sentence(text, TABLE, COMPARE, names).parsed.options.get("sweep", "")
        order = [(SURE, TABLE, COMPARE), *order] if " " in several else order
    if is_named:
        found = [each for each in sweeps if is_meant(each.id, named or here)]
        order = _of_a_sweep(order, start.parsed.options.keys() - {"from"}, found)
    targets = start.parsed.options.keys() & {"branch", "space"}
    order.sort(
        key=lambda each: (-each[0] - _asks_about(each[2], targets), not targets & each[2].by_key.keys())
    )
    if not targets and order and order[0][0] == 1:  # `the status of my sweep` is no new one
        order.sort(key=lambda each: (-each[0], each[2] is LAUNCH))
    score, table, command = order[0] if order else (0, TABLE, LAUNCH)
    best = [each[2] for each in order if each[0] == score]
    is_launch = not is_named and (
        command is LAUNCH
        or RERUN in best
        or (len(targets) == 2 and score <= SURE)
        or (len(targets) == 1 and score < SURE - 1 and not targets & command.by_key.keys())
        or (bool(targets) and LAUNCH in best)
    )
    if is_launch:
        if PAST.match(text):  # `I started lr on main yesterday`, `is it running?`
            return Meaning(table=TABLE, parsed=Parsed(command=LISTING))
        is_empty = not (order or start.parsed.options) or (negated(text) and not order)
        return None if is_empty else Meaning(table=TABLE, parsed=start.parsed, note=start.note)
    if command is HELP:
        return Meaning(table=table, parsed=Parsed(command=HELP))
    equal = [each for each in order if each[0] == score and each[2] not in (LAUNCH, HELP)]
    found_all = [_read(text, each[1], each[2], names, last) for each in equal or [(0, table, command)]]
    return next((each for each in found_all if not each.missing), found_all[0])


def _asks_about(command: Command, targets: AbstractSet[str]) -> bool:
    return command.answers and bool(targets & command.by_key.keys())


def _named_sweep(text: str, names: Names, launch: Mapping[str, str], sweeps: Sequence[SweepSummary]) -> str:
    """Return the existing sweep that a text is about; "" if what it names is what a launch needs."""
    named = read_sentence(text, TABLE, STATUS, names).parsed.options.get("sweep", "")
    targets = {launch.get("branch"), launch.get("space")}
    is_complete = None not in targets
    if named in names.known["sweep"]:
        return "" if is_complete and named == launch.get("from") else named
    if is_complete or named.lower() in targets:  # `lr sweep`
        return ""
    return named if any(is_meant(each.id, named.lower()) for each in sweeps) else ""  # not of `team sweeps`


def _of_a_sweep(
    order: list[tuple[int, Table, Command]], changed: set[str], sweeps: Sequence[SweepSummary]
) -> list[tuple[int, Table, Command]]:
    """Return the commands that can apply to these sweeps; without one, what the other words mean."""
    fits = [each for each in order if "sweep" in each[2].by_key]
    states = {not each.live for each in sweeps}
    is_ended = states.pop() if len(states) == 1 else None
    wrong = (
        {True: FOR_ACTIVE, False: OF_ENDED - {Action.EXTEND}}.get(is_ended, set())
        if is_ended is not None
        else set()
    )
    left = [each for each in fits if each[2].does not in wrong]
    if left:
        return left
    [option] = changed if len(changed) == 1 else [""]
    name = BY_OPTION.get((option, bool(is_ended)), "")
    again = changed or any(each[2].does is Action.RETRY for each in fits)
    asked = next((each for each in TABLE.commands if name and each.name == name), RERUN if again else STATUS)
    return [(1, TABLE, asked)]


def _read(text: str, table: Table, command: Command, names: Names, last: Mapping[str, str]) -> Meaning:
    """Read a text as a command; what an answer needs and the text doesn't name is as in the last launch."""
    found = read_sentence(text, table, command, names)
    missing = {
        each.key: last[each.key]
        for each in command.options
        if command.answers and each.required and each.key in last
    }
    parsed = replace(found.parsed, options={**missing, **found.parsed.options})
    return Meaning(table=table, parsed=parsed, note=found.note, adds=found.adds)
