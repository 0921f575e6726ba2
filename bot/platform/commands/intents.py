"""Find the commands that a sentence asks for, by the weighted words of their tables. Pure.

A word of a command's `said` counts 2, and words in one order one more than they are; those in parentheses
only support it, up to 2 together. Denied words count nothing, and a question changes nothing. The time grows
with the text.
"""

import re
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

from bot.platform.commands.grammar import HELP, Command, Table
from bot.platform.commands.words import ARTICLES, FILLERS, clean, stem, words_of

ENOUGH = 2  # the score of a word that asks for a command, or of two that support it
ABOUT = 2  # what the subject of a table counts
MAX_KEY = 20  # characters of a mistyped command that is compared with known ones
SIMILARITY = 0.7  # 0 to 1, of a mistyped command
DENIAL = "dont"
ASKING = {*"when why where is are was were does did has who what should".split()}  # noqa: SIM905
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
MUSING = re.compile(
    r"\b(?:might|thinking (?:of|about)|considering|what if|should (?:i|we)|wonder|^if\b)", re.IGNORECASE
)
COUNTED = re.compile(r"\bhow (many|much|long|busy|expensive)\b")


class Scored(NamedTuple):
    score: int
    table: Table
    command: Command


def negated(text: str) -> str:
    """Return the verb that a text begins by denying: `no, don't start it`; "" for none."""
    words = [clean(word).lower() for word in words_of(text)[: ORDERED + 1]]
    at = next((place for place, word in enumerate(words) if stem(word) == DENIAL), len(words))
    return stem(words[at + 1]) if words[at + 1 :] and {*words[:at]} <= FILLERS else ""


def ranked(
    text: str, tables: Iterable[Table], like: Mapping[str, str], known: Container[str] = ()
) -> list[Scored]:
    """Return the commands that a text asks for with their scores, the best first.

    `like`: words that stand for others, such as a GPU's model for `gpu`. `known`: names, which are no
    mistyped commands.
    """
    words = [clean(word).lower() for word in words_of(COUNTED.sub(r"how-\1", text.lower()))]
    said = _said([_joined(like.get(word.removesuffix("s"), word)) for word in words if word not in known])
    tables, first = [*tables], words[0] if words else ""
    is_question = not ASKING.isdisjoint({first, stem(first)}) or bool(MUSING.search(text))
    found = list[tuple[int, int, Scored]]()
    for table in tables:
        for command in (*table.commands, *([HELP] if table is tables[0] else [])):
            asks, supports = _weights(command.said, *(command.name and (command.name, *command.aliases)))
            score, support = sum(asks[word] for word in said & asks.keys()), len(said & supports)
            if is_question and not command.answers and (command.name or not score):
                continue
            score += bool(score) and not command.answers and stem(first) in asks
            if (score or support) and command.name and table.about in said:
                score += ABOUT
            if score + support >= ENOUGH:
                found.append((score, support, Scored(score + min(support, ENOUGH), table, command)))
    found.sort(key=lambda each: (-each[2].score, -each[0], -each[1]))
    return [each[2] for each in found] or ([] if first in known else _mistyped(first, tables))


def _said(stems: list[str]) -> set[str]:
    """Return the words, and those in one order; a denied one is `dont-start`."""
    words, place = list[str](), 0
    while place < len(stems):
        size = 2 if stems[place] == DENIAL else 1
        words.append("-".join(stems[place : place + size]))
        place += size
    words = [word for word in words if not (word in SMALL or word.isdecimal())]
    starts = range(len(words))
    return {"-".join(words[at : at + size]) for at in starts for size in range(1, ORDERED + 1)}


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
    is_compared = len(word) < MAX_KEY and word not in FILLERS
    near = get_close_matches(word, heads, 1, SIMILARITY) if is_compared else []
    return [Scored(ENOUGH, table, each) for table, each in named if each.name in near]
