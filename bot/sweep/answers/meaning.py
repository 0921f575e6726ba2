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
from bot.platform.commands.intents import MUSING, Scored, negated, ranked
from bot.platform.commands.sentence import Names, read_sentence
from bot.platform.config.policy import Config
from bot.sweep.answers.command_parser import COMPARE, FOR_ACTIVE, LISTING, OF_ENDED, RERUN, STATUS, TABLE
from bot.sweep.launch.options import LAUNCH

PAST = re.compile(
    r"(?:(?:yesterday|earlier|last \w+|this \w+),? )?(?:did|has|have|was|were|is|are|why|when"
    r"|(?:i|we)(?: have|'ve)?(?: just| never)? (?!need)(?:\w+ed|ran))\b",
    re.IGNORECASE,
)
CHAT = re.compile(
    r"\b(?:you(?:'?re| r| are| rock)|(?:good|nice|great|best|cool|bad) (?:bot|job|work)|love (?:you|it))\b",
    re.IGNORECASE,
)
SURE = 3  # the score of words that ask for help and not for what they name
NAMED = 2  # what a value that a command needs counts for it
TARGET = 3  # what a branch or a space counts for a new sweep


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
    typed = {key for key in ("branch", "space") if re.search(rf"\b{key} ?[=:]|--{key}\b", text.lower())}
    unknown = {key for key in ("branch", "space") if not names.known.get(key)} - typed
    options = {key: value for key, value in start.parsed.options.items() if key not in unknown}
    targets = options.keys() & {"branch", "space"}
    named = _named_sweep(text, names, options, sweeps)
    like = {each.name.lower(): "gpu" for each in config.profiles if each.gpus}
    order = ranked(text, tables, like, {*chain(*names.known.values())})
    is_named = bool(named or (here and order and "sweep" in order[0].command.by_key))
    if (
        order
        and order[0].command is HELP
        and order[0].score >= SURE
        and (not is_named or " if " in text.lower())
    ):
        return Meaning(table=order[0].table, parsed=Parsed(command=HELP))
    if is_named:
        changed = set[str]() if MUSING.search(text) else options.keys() - {"from"}
        order = _of_a_sweep(order, changed, [each for each in sweeps if is_meant(each.id, named or here)])
        order = _compared(text, names) + order if order[0].command.answers else order
    elif CHAT.search(text) and not targets:
        return None
    else:
        order = _with_launch(order, options, targets)
    if not order:
        return None
    if order[0].command is LAUNCH or (targets and not (is_named or order[0].command.answers)):
        if PAST.match(text):  # `I started lr on main yesterday`, `is it running?`
            return Meaning(table=TABLE, parsed=Parsed(command=LISTING))
        if negated(text):
            return None
    score, table, command = order[0]
    best = [each for each in order if each.score == score]
    if not is_named and (command is LAUNCH or RERUN in [each.command for each in best]):
        return Meaning(table=TABLE, parsed=start.parsed, note=start.note)
    if command is HELP:
        return Meaning(table=table, parsed=Parsed(command=HELP))
    found = [
        _read(text, each.table, each.command, names, last)
        for each in best
        if each.command not in (LAUNCH, HELP)
    ]
    return next((each for each in found if not each.missing), found[0])


def _with_launch(order: list[Scored], options: Mapping[str, str], targets: AbstractSet[str]) -> list[Scored]:
    """Add what a branch, a space, and other options count for a new sweep, and a space for its history."""
    score = sum(each.score for each in order if each.command is LAUNCH)
    score += TARGET * len(targets) + bool(options.keys() - targets)
    scored = [
        each._replace(score=each.score + TARGET * (each.command.answers and _takes(each.command, targets)))
        for each in order
        if each.command is not LAUNCH
    ]
    return sorted([Scored(score, TABLE, LAUNCH)] * bool(score) + scored, key=lambda each: -each.score)


def _takes(command: Command, keys: AbstractSet[str]) -> bool:
    return not keys.isdisjoint(each.key for each in command.options if each.required)


def _compared(text: str, names: Names) -> list[Scored]:
    """Return the comparison of the sweeps that a text names, if they are several."""
    several = read_sentence(text, TABLE, COMPARE, names).parsed.options.get("sweep", "")
    return [Scored(SURE, TABLE, COMPARE)] if " " in several else []


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
    order: list[Scored], changed: AbstractSet[str], sweeps: Sequence[SweepSummary]
) -> list[Scored]:
    """Return the commands that can apply to these sweeps; without one, what the other words mean."""
    states, wrong = {each.live for each in sweeps}, set[Action]()
    if len(states) == 1:
        wrong = OF_ENDED - {Action.EXTEND} if True in states else FOR_ACTIVE
    fits = [each for each in order if "sweep" in each.command.by_key]
    left = [
        each._replace(score=each.score + NAMED * _takes(each.command, changed))
        for each in fits
        if each.command.does not in wrong
    ]
    if left:
        return sorted(left, key=lambda each: -each.score)
    needed = [each for each in TABLE.commands if _takes(each, changed) and each.does not in wrong]
    is_again = changed or any(each.command.does is Action.RETRY for each in fits)
    asked = needed[0] if len(changed) == len(needed) == 1 else RERUN if is_again else STATUS
    return [Scored(1, TABLE, asked)]


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
