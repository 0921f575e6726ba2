"""Split sentences into words, fold those that mean the same, and read numbers such as `two hundred`, times
such as `1d12h`, and pasted JSON or tables. Pure; the time grows with the text.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from bot.platform.commands.grammar import POLITE, bare, plain_words, unescape
from bot.platform.commands.option_types import IN_HOURS
from bot.platform.commands.speech import DENIAL, NOT

MAX_SENTENCE = 1_000  # characters; a longer text isn't one
MAX_PHRASE = 4  # words of a phrase
_QUOTED = r"""(?:"[^"]*"|'[^']*'|`[^`]*`)"""
APART = re.compile(r"(?<!\S)([0-9]{1,3})x(?=[a-z])|(?<=\bw)/(?=[0-9])|@(?=\w)", re.IGNORECASE)
WORD = re.compile(
    rf"""[^\s"'`,;()=]+={_QUOTED}|"[^"]*"|`[^`]*`|(?<!\S)'[^']*'(?!\S)|(?:[^\s"`,;()]|,(?=\S))+(?:"[^"]*")?|,"""
)
ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()  # noqa: SIM905
ONES += [f"{each}teen" for each in ("six", "seven", "eigh", "nine")]
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
SIZES = {"dozen": 12, "hundred": 100, "thousand": 1000}
NUMBERS = {word: str(number) for number, word in enumerate(ONES)}
NUMBERS |= {word: str(20 + 10 * number) for number, word in enumerate(TENS)}
NUMBERS |= {word: str(size) for word, size in SIZES.items()} | {"single": "1", "couple": "2", "pair": "2"}
MONEY = dict.fromkeys(("dollar", "dollars", "bucks", "usd", "$"), "$")
MONEY |= dict.fromkeys(("euro", "euros", "eur", "€"), "€") | dict.fromkeys(("pounds", "gbp", "£"), "£")
VAGUE = {"few", "several", "many"}  # before a size, no number
TIME_WORDS = {*IN_HOURS, "minute", "minutes", "min", "mins"}
DIGITS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,3})?")
TIMES = re.compile("(?:[0-9]{1,4}[dhm]){2,3}(?:in)?|[0-9]{1,4}h[0-9]{1,2}|[0-9]{1,4}:[0-5][0-9]:00")
ABOUT = re.compile(r"[<>≤≥~≈]?=?([0-9]+)(?:\+|ish)?")
FRACTIONS = {"1/2": "0.5", "½": "0.5", "1/4": "0.25", "¼": "0.25", "3/4": "0.75", "¾": "0.75"}
THOUSANDS = re.compile("[$€£]?[0-9]{1,3}(?:[,'_][0-9]{3})+(?:\\.[0-9]{1,2})?")
FACTORS = {
    "half": 0.5,
    "halve": 0.5,
    "twice": 2,
    "double": 2,
    "triple": 3,
    "thrice": 3,
    "quadruple": 4,
    "same": 1,
}
AMOUNT = re.compile(r"\+?x?([0-9]{1,9}(?:\.[0-9]{1,3})?)x?([a-z]*)")
IN_TREE = re.compile(
    r"https?://[\w./-]{1,100}/tree/"
)  # before the branch in the address of a repository's page
ARTICLES = {"a", "an", "the"}
FILLERS = POLITE | set(
    """
    show
    ahead another couple dear enough fancy fire going kindly love ought quick quickly round schedule
    spin submit tops ! • & + > / /sweep u - . : = ? @ a about after again against all also an and any
    anything are
    as at be been before
    both but by can cap capped could did do does doing don't done dont each else every experiment for from
    get give go going has have having hello hey hi how i i'd i'll i'm in into is it it'll it's its
    isn't hasn't aren't job just
    kick kind last launch least let like limit limited make max maximum me more most my need new no not
    now of off ok on only or our out over per previous put redo repeat rerun right run running same search
    set should so some somebody someone start still stop sweep sweepbot sweeps than thank that the their then
    there these they thing this those time to total train try tune up use using value values versus via vs w/
    want was we were what when where which while who whose why will with would x yesterday you your – —
    """.split()  # noqa: SIM905  two hundred quotes would hide the words
)
_FOLDED = """
available: availability; best: winner winning won strongest; branch: branches; compare: comparing
comparison compared;
cancel: cancelling canceling scancel; cost: spend spent spending expensive burn burned burnt costing consumed;
crash: crashed crashing; environment: notebook jupyter env workspace vscode; free: spare unused unallocated;
fail: failed failing failure died die broke broken; finish: finishing finished complete completed; gpu: card;
happen: happened happening wrong; hog: hogging hogged; idle: idling; kill: killing; log: logfile;
parameter: param hyperparameter hyperparam hparam config configuration; pause: pausing paused; priority: prio;
picture: pic photo image; print: printing printed; show: display; stop: stopping; sweep: experiment job;
ping: pinging pinged; dm: dming; message: messaging; notify: notifying; bother: bothering; spam: spamming;
start: starting started begin beginning began launched; stuck: stall stalled hang hanging hung frozen;
use: using used usage burning occupy occupying occupied; wait: waiting pending queued
"""
_GROUPS = (group.split(":") for group in _FOLDED.split(";"))
FOLDED = {word: folded.strip() for folded, words in _GROUPS for word in words.split()}


def words_of(text: str) -> list[str]:
    """Return the words of a sentence, with their quotes; none of one that is too long."""
    if len(text) > MAX_SENTENCE:
        return []
    words = WORD.findall(
        NOT.sub("don't", APART.sub(_apart, IN_TREE.sub("", plain_words(unescape(text))).replace("->", "=")))
    )
    pairs = zip(["", *words], words, strict=False)
    # Of the commas, only those after numbers count: `twenty, two gpus`.
    return ["/" if word == "," else word for last, word in pairs if word != "," or last.lower() in NUMBERS]


def _apart(found: re.Match[str]) -> str:
    """Split `2xa100`, `w/2 gpus`, and `lr@main`."""
    return f"{found[1]} " if found[1] else "/ " if found[0] == "/" else " @ "


def clean(word: str) -> str:
    """Return a word without formatting, punctuation, and a possessive."""
    word = re.sub(r"(?:'s|')$", "", bare(word.replace("’", "'").strip("*_~.!?:()")))
    return word.strip("*_~.!?:()")


def whole_numbers(words: Iterable[str]) -> list[str]:
    """Return the words with each number as one: `two hundred and fifty` is 250, `1,000 dollars` is $1000.

    `seeds 100,200` are two, and so are `twenty, two`.
    """
    left, found, place = [part for word in words for part in _parts(word)], list[str](), 0
    lower = [word.lower() for word in left]
    while place < len(left):
        value, end = _spelled(lower, place)
        word, last = left[place], found[-1].lower() if found else ""
        counted = -2 if last == "more" and found[1:] else -1  # `50 more dollars`
        number = found[counted].lower() if found else ""
        if end > place + 1:
            found.append(f"{value:.10g}")
        elif lower[place] in FRACTIONS and DIGITS.fullmatch(last):  # `1 1/2 hours`
            found[-1] = f"{float(last) + float(FRACTIONS[word]):g}"
        elif word == "times" and DIGITS.fullmatch(NUMBERS.get(last, last)):
            found[-1] += " times"  # is no number of anything
        elif lower[place] in MONEY and DIGITS.fullmatch(NUMBERS.get(number, number)):
            found[counted] = MONEY[lower[place]] + NUMBERS.get(number, number)
        elif (last in VAGUE and lower[place] in SIZES) or (last.isdecimal() and word == "000"):
            found[-1] += f" {word}" if last in VAGUE else word
        else:
            is_one = THOUSANDS.fullmatch(word) and last not in {"seed", "seeds"}
            found.append(re.sub("[,'_]", "", word) if is_one else FRACTIONS.get(word, word))
        place = max(end, place + 1)
    return found


def in_digits(text: str) -> str:
    """Return `two hundred` as 200; a text that is no number as it is."""
    words = whole_numbers(text.lower().split())
    return NUMBERS.get(words[0], words[0]) if len(words) == 1 else text


def _parts(word: str) -> list[str]:
    """Return `twenty-two`, `2h30m`, `2:30:00`, and `100€` as two words, and others as they are."""
    if TIMES.fullmatch(word.lower()):
        numbers = re.findall("[0-9]+[a-z]*", word.lower().removesuffix(":00").replace(":", "h"))
        return [*numbers[:-1], numbers[-1] + ("min" if numbers[-1].isdecimal() else "")]
    if found := ABOUT.fullmatch(word):
        return [found[1]]
    if word[-1:] in MONEY and word[:1].isdecimal():
        return [word[:-1], word[-1]]
    parts = word.lower().split("-")
    return parts if parts[1:] and {*parts} <= {*NUMBERS, "and", "half"} else [word]


def _spelled(words: Sequence[str], place: int) -> tuple[float, int]:
    """Return the number that words spell from a place on, and the place after it: that place if none."""
    value, size, end = _term(words, place)
    while size >= SIZES["hundred"]:
        start = end + (words[end : end + 1] == ["and"])
        more, next_size, after = _term(words, start)
        if after == start or more >= size or words[start][0].isdigit():
            break
        value, size, end = value + more, next_size, after
    return value, end


def _term(words: Sequence[str], place: int) -> tuple[float, int, int]:
    """Return `twenty two`, `half dozen`, or `2 thousand`, the size of its last word, and its end."""
    word, after = [*words[place : place + 2], "", ""][:2]
    number, end, size = NUMBERS.get(word, word), place + 1, 1
    if word in TENS and after in ONES[1:10]:
        value, end = float(number) + float(NUMBERS[after]), place + 2
    elif word in SIZES:
        value, end = 1.0, place
    elif word == "half" and after in SIZES:
        value = 0.5
    elif DIGITS.fullmatch(number):
        value = float(number)
    else:
        return 0.0, 1, place
    counted = [*words[end + 2 : end + 3], ""][0]
    if words[end : end + 2] == ["and", "half"] and counted in {*TIME_WORDS, *SIZES, "gpu", ""}:
        value, end = value + 0.5, end + 2  # not `4 and half the trials`
    while words[end : end + 1] and words[end] in SIZES:
        size, end = SIZES[words[end]], end + 1
        value *= size
    return value, size, end


def as_pairs(text: str) -> str:
    """Return pasted JSON, or a table's head and row, as lines of `key="value"`; another text as it is."""
    pasted = unescape(text)
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(pasted[pasted.find("{") : pasted.rfind("}") + 1])
        if isinstance(found, dict):
            return _lines(found.items())
    lines = [line.strip(" |") for line in text.splitlines() if "|" in line]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    rows = [row for row in rows if not set("".join(row)) <= {*"-: "}]
    is_table = len(rows) == 2 and len(rows[0]) == len(rows[1]) > 1
    return _lines(zip(*rows, strict=True)) if is_table else text


def _lines(pairs: Iterable[tuple[str, Any]]) -> str:
    return "\n".join(f"{key}={shlex.quote(str(value))}" for key, value in pairs)


def unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'`" else word


def stem(word: str) -> str:
    """Return what a word has in common with those that mean the same: `GPUs` and `card` are `gpu`."""
    word = DENIAL if word.lower() == "don't" else re.sub("'[a-z]*$", "", word.lower())
    word = FOLDED.get(word, word)
    single = word.removesuffix("s") if len(word) > 3 and not word.endswith(("ss", "is")) else word
    return FOLDED.get(single, single)
