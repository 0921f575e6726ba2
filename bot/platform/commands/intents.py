"""Find the commands that a sentence asks for, by the weighted words of their tables. Pure.

A word of a command's `said` counts 2, and words in one order one more than they are; those in parentheses
only support it, up to 2 together. Denied words count nothing, and a question changes nothing. The time grows
with the text.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

from bot.platform.commands.grammar import HELP, Command, Table
from bot.platform.commands.speech import CLAUSE, DENIAL, first_word, is_question, is_told
from bot.platform.commands.words import ARTICLES, FILLERS, clean, stem, words_of

ENOUGH = 2  # the score of a word that asks for a command, or of two that support it
ABOUT = 2  # what the subject of a table counts
SIMILARITY = 0.7  # 0 to 1, of a mistyped command
SMALL = {*ARTICLES, "", "is", "are", "was", "were", "be", "am", "of", "this"}  # between words in one order
UNSAID = {
    "show",
    "me",
    "now",
    "start",
    "open",
    "my sweeps",
}  # names of commands that are words of many sentences
ORDERED = 4  # words that count in one order
OWN = {"me", "token"}  # of commands that also show
LEADS = 1  # what a text's first verb counts for a command that changes something
DENIABLE = set(
    """run start launch train sweep try submit kick begin rerun repeat retry relaunch queue schedule
    cancel stop kill terminate pause resume it this that anything nothing something touch change""".split()  # noqa: SIM905
)  # what a denial in a sentence is about
DEFINED = re.compile(r"\bwhat(?:'?s| is) an? ")
NAME = re.compile(r"\w[\w-]*")
COUNTED = re.compile(r"\bhow (many|much|long|busy|expensive)\b")


class Scored(NamedTuple):
    score: int
    table: Table
    command: Command


def is_denied(text: str, names: Container[str] = ()) -> bool:
    """Return whether a text denies what it is about: `no, don't start it`, `we decided not to run big`."""
    for clause in CLAUSE.split(text):
        words = [clean(word).lower() for word in words_of(clause)]
        stems = [stem(word) for word in words]
        about = [place for place, word in enumerate(words) if word in names or stems[place] in DENIABLE]
        if DENIAL in stems and (about[-1:] > [stems.index(DENIAL)] or len(stems) < ORDERED):
            return True
        if about:
            return False
    return False


def ranked(
    text: str, tables: Iterable[Table], like: Mapping[str, str], known: Container[str] = ()
) -> list[Scored]:
    """Return the commands that a text asks for with their scores, the best first.

    `like`: words that stand for others, such as a GPU's model for `gpu`. `known`: names, which are no
    mistyped commands.
    """
    asks = is_question(text)
    clauses = [
        words_of(each) for each in CLAUSE.split(COUNTED.sub(r"how-\1", DEFINED.sub("explain ", text.lower())))
    ]
    named = [[clean(word).lower() for word in words] for words in clauses]
    stems = [
        [_joined(like.get(each.removesuffix("s"), each)) for each in words if each not in known]
        for words in named
    ]
    said, first = _said(stems, denies=not asks), stem(first_word(text))
    as_it = NAME.sub(lambda word: "it" if word[0].lower() in known else word[0], text)
    tables, told = [*tables], is_told(as_it)  # `otter crashed` tells as `it crashed` does
    found, led = list[tuple[int, int, Scored]](), False
    for table in tables:
        for command in (*table.commands, *([HELP] if table is tables[0] else [])):
            weights, supports = _weights(command.said, *(command.name and (command.name, *command.aliases)))
            score, support = sum(weights[word] for word in said & weights.keys()), len(said & supports)
            changes = not command.answers and (command.name or not score) and command.name not in OWN
            if ((asks or told) and changes) or (told and not score):
                continue
            if (score or support) and command.name and table.about in said:
                score += ABOUT
            leads = any(word == first or word.startswith(f"{first}-") for word in said & weights.keys())
            leads = leads and not command.answers
            score, led = score + LEADS * leads, led or (leads and bool(command.name))
            if score + support >= ENOUGH:
                found.append((score, support, Scored(score + min(support, ENOUGH), table, command)))
    found = [each for each in found if not (led and each[2].command.answers)]
    found.sort(key=lambda each: (-each[2].score, -each[0], -each[1]))
    word = next((word for words in named for word in words), "")
    return [each[2] for each in found] or ([] if word in known else _mistyped(word, tables))


def _said(clauses: list[list[str]], *, denies: bool) -> set[str]:
    """Return the words, and those in one order.

    A denied one is `dont-start`, and what follows it in its clause counts only with it.
    """
    said = set[str]()
    for stems in clauses:
        kept = [each for each in stems if not (each in SMALL or each.isdecimal())]
        words, place = list[str](), 0
        while place < len(kept):
            size = 2 if kept[place] == DENIAL else 1
            words.append("-".join(kept[place : place + size]))
            place += size
        denied = next((at for at, each in enumerate(words) if denies and each.startswith(DENIAL)), len(words))
        starts = [at for at, each in enumerate(words) if at <= denied or each.startswith(DENIAL)]
        said |= {"-".join(words[at : at + size]) for at in starts for size in range(1, ORDERED + 1)}
    return said


@cache
def _weights(said: str, *names: str) -> tuple[Mapping[str, int], AbstractSet[str]]:
    """Return what each word, or several in one order, counts for a command, and those that support it."""
    strong, _, weak = said.partition("(")
    own = [name.replace(" ", "-") for name in names if name not in UNSAID]
    asks = {_joined(word): word.count("-") + 2 for word in (*own, *strong.split())}
    return asks, {_joined(word) for word in weak.strip(" )").split()} - asks.keys()


def _joined(words: str) -> str:
    return "-".join(map(stem, words.split("-")))


def _mistyped(word: str, tables: Iterable[Table]) -> list[Scored]:
    """Return the commands that the first word of a text is like: `stauts`."""
    named = [(table, each) for table in tables for each in table.commands if each.name]
    heads = {each.name.partition(" ")[0] for _, each in named}
    is_compared = word not in FILLERS and not word.endswith("ed")  # `cancelled` was done
    near = get_close_matches(word, heads, 1, SIMILARITY) if is_compared else []
    found = [each for each in named if each[1].name in near]
    return [Scored(ENOUGH, *each) for each in found if each[1].answers or _is_slip(word, each[1].name)]


def _is_slip(word: str, name: str) -> bool:
    """Return whether letters are only swapped, or one is missing or too many: `cause` isn't pause."""
    typed, meant = Counter(word), Counter(name)
    return word[0] == name[0] and ((typed - meant) + (meant - typed)).total() <= 1
