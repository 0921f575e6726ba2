"""Say which command a sentence means, with which sweep, branch, space, and options, or that it is chat,
without its struck-through parts; refuse to change what a running sweep keeps, such as `gpus=`. Pure.
"""

import re
from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain

from bot.core.commands import Action
from bot.core.errors import UserError
from bot.core.ids import is_meant
from bot.core.sweep_summary import SweepSummary
from bot.platform.commands.grammar import HELP, Command, Parsed, Table, unescape
from bot.platform.commands.intents import ENOUGH, Scored, is_denied, ranked
from bot.platform.commands.sentence import Names, read_sentence
from bot.platform.commands.speech import (
    ASKING,
    first_word,
    gist,
    is_beyond,
    is_chat,
    is_idle,
    is_past,
    is_question,
    is_request,
    is_story,
    is_told,
)
from bot.platform.commands.words import clean, stem, words_of
from bot.platform.config.policy import Config
from bot.sweep.answers.command_parser import (
    COMPARE,
    FOR_ACTIVE,
    HISTORY,
    LISTING,
    OF_ENDED,
    RERUN,
    STATUS,
    TABLE,
)
from bot.sweep.launch.options import LAUNCH

TRIAL = re.compile(r"\btrial (?:#|no\.? |number )?[0-9]", re.IGNORECASE)  # one of a sweep
STRUCK = re.compile(r"(?<!\S)~[^\s~]+ [^~\n]+~(?=\W.*\w)")  # struck through, before other words
SEVERAL = re.compile(
    r"\b(?:(?:sweep|experiment|job|run|training|thing)s|(?:any|every)(?:thing|one)|all of them|overall)\b",
    re.IGNORECASE,
)
NEW = re.compile(
    r"(?:^|[,.;:!?] ?|\b(?:and|then|so) )(?:run|start|launch|train|try|kick off|submit)\b", re.IGNORECASE
)
TARGETS = {"branch", "space"}
FIXED = {"gpus", "nodes", "parallel", "profile"}  # options that a running sweep keeps
MAX_ASIDE = 2  # marks of unknown words beside one name; more are chat: `who broke main again`
MAX_NICKNAMED = 300  # branches of a repository; of more, parts of names take long to look up
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


def branch_names(branches: list[str]) -> dict[str, str]:
    """Return what a sentence can call each branch: `ada/longer-warmup` is also Ada's branch."""
    found = dict[str, str]()
    for each in branches if len(branches) <= MAX_NICKNAMED else []:
        last, parts = each.rpartition("/")[2].lower(), re.split("[/_.-]+", each.lower())
        forms = [last, re.sub("[-_]", " ", last)] if re.search("[-_]", last) else []
        forms += [f"{part} branch" for part in parts] + [
            f"{' '.join(parts[at:])} branch" for at in range(len(parts))
        ]
        for form in forms:
            found[form] = "" if found.get(form, each) != each else each
    return {form: each for form, each in found.items() if each} | {each.lower(): each for each in branches}


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
    text = STRUCK.sub(" ", unescape(text))
    start = read_sentence(text, TABLE, LAUNCH, replace(names, last=last))
    typed = {key for key in ("branch", "space") if re.search(rf"\b{key} ?[=:]|--{key}\b", text.lower())}
    unknown = {key for key in ("branch", "space") if not names.known.get(key)} - typed
    options = {key: value for key, value in start.parsed.options.items() if key not in unknown}
    targets = options.keys() & {"branch", "space"}
    named = _named_sweep(text, names, options, sweeps)
    like = {each.name.lower(): "gpu" for each in config.profiles if each.gpus}
    like |= {each.name: "cluster" for each in config.clusters if not targets}
    every = {*chain(*names.known.values())}
    order = ranked(f"{text} {tables[0].about}", tables, like, every)
    is_meant_here = here and order and "sweep" in order[0].command.by_key
    is_meant_here = is_meant_here and (order[0].command.answers or not is_beyond(text))
    is_named = bool(named or is_meant_here)
    if named and targets == TARGETS and NEW.search(text) and RERUN not in [each.command for each in order]:
        if order and not order[0].command.answers and order[0].command is not LAUNCH:
            each = f"`/sweep {order[0].command.name} {named}` or `/sweep {start.parsed.typed}`"
            raise UserError(f"That asks for two commands. Run each alone: {each}.")
        is_named = False  # `after fox, run lr on main`
    is_help = bool(order) and order[0].command is HELP
    if is_help and order[0].score >= SURE and (not is_named or " if " in f" {text.lower()}"):
        return Meaning(table=_topic(text, tables), parsed=Parsed(command=HELP))
    if not (gist(text) or is_help) or not (is_named or _wants(text, order, targets, every)):
        return None
    if is_named:
        kept = {"from", "priority", "notify", "trials" if TRIAL.search(text) else ""}  # not to be changed
        is_asked = not (is_question(text) or is_told(text))
        changed = options.keys() - kept if is_asked else set[str]()
        meant = [each for each in sweeps if is_meant(each.id, named or here)]
        order = _of_a_sweep(order, changed, meant, first_word(text), adds=start.adds and is_asked)
        order = _compared(text, names) + order if order[0].command.answers else order
    else:
        is_launch = is_request(text) or LAUNCH in [each.command for each in order]
        order = _about_none(text, _with_launch(order, options, targets), options)
        is_aside = start.note.count("`") > MAX_ASIDE and len(targets) == len(options) < 2
        if is_aside and not is_launch and order and order[0].command is LAUNCH:
            return None
    if not order:
        return None
    command = order[0].command
    best = [each for each in order if each.score == order[0].score]
    if not is_named and (command is LAUNCH or RERUN in [each.command for each in best]):
        return Meaning(table=TABLE, parsed=_with_source(start.parsed, sweeps), note=start.note)
    if command is HELP:
        return Meaning(table=_topic(text, tables), parsed=Parsed(command=HELP))
    found = [
        _read(text, each.table, each.command, names, last, here)
        for each in best
        if each.command not in (LAUNCH, HELP)
    ]
    return next((each for each in found if not each.missing), found[0])


def _about_none(text: str, order: list[Scored], options: Mapping[str, str]) -> list[Scored]:
    """Return the commands that a text about no sweep means: the list where it tells of sweeps, or none."""
    command = order[0].command if order else None
    targets = options.keys() & {"branch", "space"}
    if command and (command is LAUNCH or (targets and not command.answers)):
        if is_idle(text):
            return []
        if is_past(text):
            known = HISTORY if "space" in targets and HISTORY in [each.command for each in order] else LISTING
            return [Scored(1, TABLE, known)] * bool(targets or is_question(text))
        if is_story(text) and options.keys() <= targets:
            return []
    return [Scored(1, TABLE, LISTING)] if command is STATUS and SEVERAL.search(text) else order


def _with_source(parsed: Parsed, sweeps: Sequence[SweepSummary]) -> Parsed:
    """Complete the name of the sweep to start from; a word that is none isn't meant: `from my notebook`."""
    source = parsed.options.get("from", "")
    ids = [each.id for each in sweeps if is_meant(each.id, source)]
    options = {key: value for key, value in parsed.options.items() if key != "from"}
    if source in {"", "auto", "none"} or len(ids) > 1 or (not ids and "-" in source):
        return parsed
    return replace(parsed, options=options | ({"from": ids[0]} if ids else {}))


def _wants(text: str, order: list[Scored], targets: AbstractSet[str], names: Container[str]) -> bool:
    """Return whether a text that names no sweep wants anything that a command does."""
    if is_beyond(text) or (not targets and (is_chat(text) or is_idle(text) or is_told(text))):
        return False
    is_change = bool(order) and not order[0].command.answers and order[0].command is not LAUNCH
    return is_change or is_question(text) or "?" in text or not is_denied(text, names)


def _topic(text: str, tables: list[Table]) -> Table:
    """Return the table whose help a text asks for: that of its subject, unless it is about a sweep."""
    stems = [stem(clean(word)) for word in words_of(text)]
    about = {each.about: each for each in tables if each.about}
    is_of_sweep = not {"sweep", "run", "train", "trial"}.isdisjoint(stems)
    return next((about[each] for each in stems if each in about and not is_of_sweep), tables[0])


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
        is_source = named == launch.get("from") or re.search(rf"\b(?:as|like|than) (?:in |of )?{named}", text)
        return "" if is_complete and is_source else named
    if is_complete or named.lower() in targets:  # `lr sweep`
        return ""
    return named if any(is_meant(each.id, named.lower()) for each in sweeps) else ""  # not of `team sweeps`


def _of_a_sweep(
    order: list[Scored], changed: AbstractSet[str], sweeps: Sequence[SweepSummary], verb: str, *, adds: bool
) -> list[Scored]:
    """Return the commands that can apply to these sweeps; without one, what the other words mean."""
    states, wrong = {each.live for each in sweeps}, set[Action]()
    if states == {True} and changed & FIXED and RERUN not in [each.command for each in order]:
        key = min(changed & FIXED)
        again = f"`/sweep rerun {sweeps[0].id} {key}=…` starts another one."
        raise UserError(f"`{key}=` of a running sweep can't be changed. {again}")
    if len(states) == 1:
        wrong = OF_ENDED - {Action.EXTEND} if True in states else FOR_ACTIVE
        wrong = wrong - {
            each.does for each in TABLE.commands if verb in {each.name, *each.verbs} and each.does in OF_ENDED
        }
    fits = [
        each
        for each in order
        if "sweep" in each.command.by_key or ("mute" in each.command.by_key and each.score >= SURE)
    ]
    if changed - {"space"} and verb not in ASKING:  # what only supporting words ask for isn't meant
        fits = [
            each
            for each in fits
            if each.score > ENOUGH
            or _takes(each.command, changed)
            or verb in {each.command.name, *each.command.words}
        ]
    left = [
        each._replace(score=each.score + NAMED * _takes(each.command, changed))
        for each in fits
        if each.command.does not in wrong
    ]
    if left:
        return sorted(left, key=lambda each: -each.score)
    changed = changed or ({"trials"} if adds else set())
    needed = [each for each in TABLE.commands if _takes(each, changed) and each.does not in wrong]
    is_again = changed or any(each.command.does is Action.RETRY for each in fits)
    asked = needed[0] if len(changed) == len(needed) == 1 else RERUN if is_again else STATUS
    return [Scored(1, TABLE, asked)]


def _read(
    text: str, table: Table, command: Command, names: Names, last: Mapping[str, str], here: str
) -> Meaning:
    """Read a text as a command; what an answer needs and the text doesn't name is as in the last launch."""
    found = read_sentence(text, table, command, names)
    missing = {
        each.key: last[each.key]
        for each in command.options
        if command.answers and each.required and last.get(each.key)
    }
    options = {**missing, **found.parsed.options}
    verb = first_word(text)
    is_own = not re.search(r"\b(?:all|every\w*|others?)\b", text, re.IGNORECASE)  # not `mute all but this`
    if here and is_own and not options and verb in {"mute", "unmute"} & command.by_key.keys():
        options[verb] = here
    muting = [key for key in options if key in {"mute", "unmute"}]
    if len(muting) == 2 and not re.search(rf"\b{muting[1]}\b", text, re.IGNORECASE):
        del options[muting[1]]  # `mute fox and otter`
    if not {"mute", "quiet"}.isdisjoint(options):
        options.pop("notify", "")  # `stop pinging me about otter`: only this
    parsed = replace(found.parsed, options=options)
    return Meaning(table=table, parsed=parsed, note=found.note, adds=found.adds)
