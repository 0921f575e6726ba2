"""Read a command's options and names from a sentence, such as `half the gpus` or `20 more`, without the names
after `except` or `other than`, and note the words that weren't understood. Pure.

Without a model: words are looked up in dictionaries, so the time grows with the text. What a sentence says is
a suggestion for a person to confirm; `grammar` reads the commands that run as typed.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from itertools import chain
from typing import Any

from bot.core.errors import UserError
from bot.platform.commands.grammar import Command, Option, Parsed, Table, bare, pairs, read_values
from bot.platform.commands.option_types import Choice, Duration, Number
from bot.platform.commands.words import (
    AMOUNT,
    ARTICLES,
    FACTORS,
    FILLERS,
    MAX_PHRASE,
    NUMBERS,
    TIME_WORDS,
    clean,
    in_digits,
    stem,
    unquoted,
    whole_numbers,
    words_of,
)
from bot.text.wording import did_you_mean, fitting, listed, shortened

MAX_KEY = 20  # characters of a mistyped key that is compared with known ones
MAX_NOTE = 600  # characters
MAX_SUGGESTED = 3  # unknown words that are compared with known names, and those after numbers with keys
SIMILARITY = 0.7  # 0 to 1, of a mistyped key
SHORT = re.compile(r"-([a-z])=?([0-9]*)")  # `-g 4`, and `-g4`
MONEY = re.compile(r"[$€£][0-9][0-9.,]{0,12}k?")
ADDED = {"add", "by", "more", "another", "additional", "extra"}
BETWEEN = {"x", "×", "total", "of", "different", "separate", "full"}  # a number and what it counts
OF_LAST = {"as", "many", "much", "number", "of", "usual", "last", "previous", "my", "our", "that", "amount"}
PLURAL = re.compile(r"(?:...|[0-9])s$")
LEFT_OUT = {"instead of", "rather than", "except", "except for", "all but", "everything but", "other than"}
LEFT_OUT |= {"apart from", "aside from", "excluding", "besides"}  # the names after these aren't wanted


@dataclass(frozen=True, kw_only=True)
class Names:
    """`known`: by key of an option, the values of phrases that only the caller knows: branches, sweeps."""

    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    config: Any = None
    last: Mapping[str, str] = field(default_factory=dict)  # what `half the gpus` is of


@dataclass(frozen=True, kw_only=True)
class Sentence:
    parsed: Parsed
    note: str = ""  # one line about what wasn't understood
    adds: bool = False  # its number is that of `20 more`


def read_sentence(text: str, table: Table, command: Command, names: Names) -> Sentence:
    """Return the options that a sentence names for a command, and a note about words that mean nothing."""
    reader = _Reader(table, command, names)
    text = reader.spans(text)
    loose = list[str]()
    for key, value in pairs([_long(word, command) for word in words_of(text)], command):
        if not key:
            loose.append(value)
            continue
        reader.read(loose)
        loose.clear()
        reader.option(key, value)
    reader.read(loose)
    return reader.sentence()


def _long(word: str, command: Command) -> str:
    """Return `--gpus` for `-g`: the first option with this letter."""
    found = SHORT.fullmatch(word)
    key = next((each.key for each in command.options if found and each.key.startswith(found[1])), "")
    return word if not (found and key) else f"{key}={found[2]}" if found[2] else f"--{key}"


def _without_articles(phrase: str) -> str:
    return " ".join(word for word in phrase.split(" ") if word not in ARTICLES)


@dataclass(frozen=True)
class _Vocabulary:
    """What a command's own words mean, in every sentence."""

    keys: dict[str, str] = field(default_factory=dict)  # by phrase that names an option
    hints: dict[str, list[str]] = field(default_factory=dict)  # by word that goes before a value
    values: dict[str, dict[str, str]] = field(default_factory=dict)  # by phrase that is a value, by key
    fillers: set[str] = field(default_factory=FILLERS.copy)


@cache
def _vocabulary(command: Command, about: str) -> _Vocabulary:
    words = _Vocabulary()
    for each in command.options:
        for name in (each.key.replace("_", " "), each.key.removesuffix("s"), *each.said):
            words.keys.setdefault(_without_articles(name), each.key)
        for word in each.after:
            words.hints.setdefault(word, []).append(each.key)
        for phrase, value in each.means.items():
            words.values.setdefault(_without_articles(phrase), {}).setdefault(each.key, value)
    own = f"{command.said} {command.name} {' '.join(command.aliases)} {about}"
    words.fillers.update(stem(word) for word in re.split("[ ()-]+", own))
    return words


class _Reader:
    def __init__(self, table: Table, command: Command, names: Names) -> None:
        self._table, self._command, self._names = table, command, names
        self._context = table.context(names.config)
        self.options = dict[str, str]()
        self._unread, self._notes = list[tuple[str, str]](), list[str]()
        self._mistyped = self._compared = 0
        self._adds = False
        vocabulary = _vocabulary(command, table.about)
        self._keys, self._hints, self._fillers = vocabulary.keys, vocabulary.hints, vocabulary.fillers
        self._values = {phrase: {**by_key} for phrase, by_key in vocabulary.values.items()}
        for each in command.options:
            for phrase, value in self._phrases(each):
                self._values.setdefault(_without_articles(phrase), {}).setdefault(each.key, value)
        self._known = {*chain(*names.known.values())}

    def _phrases(self, option: Option) -> Iterable[tuple[str, str]]:
        known = dict(self._names.known.get(option.key, {}))
        if isinstance(option.type, Choice):
            known |= {name.lower(): name for name in option.type.known(self._context)}
            known = {name: known[name] for name in known.keys() - {"on", "off", "default", "push"}}
        return known.items()

    def spans(self, text: str) -> str:
        """Take the values that are several words, such as `from 22 to 7`; return the text without them."""
        for each in self._command.options:
            if each.span and (found := re.search(each.span, text, re.IGNORECASE)):
                with contextlib.suppress(UserError):
                    self._set(each.key, str(each.read(found[0], self._context)))
                    text = f"{text[: found.start()]} {text[found.end() :]}"
        return text

    def option(self, key: str, value: str) -> None:
        """Take a typed `key=value`, also with a mistyped key."""
        if key not in self._command.by_key:
            self._mistyped += 1
            is_compared = self._mistyped <= MAX_SUGGESTED and len(key) < MAX_KEY
            near = [self._keys[key]] if key in self._keys else []
            begun = [each for each in self._command.by_key if each.startswith(key)]
            near += begun if len(key) > len("to") or len(begun) == 1 else []
            near += get_close_matches(key, self._command.by_key, 1, SIMILARITY) if is_compared else []
            if not near or near[0] in self.options:
                self._notes.append(self._table.unknown(self._command, key, suggest=is_compared))
                return
            self._notes.append(f"Read `{key}=` as `{near[0]}=`.")
            key = near[0]
        if value[:1] in {"'", '"'} and value.count(value[0]) == 1:
            self._notes.append(f"Unclosed quote after `{key}=`.")
        option = self._command.by_key[key]
        value = unquoted(value) if option.free else option.means.get(bare(value).lower(), bare(value))
        self._set(key, in_digits(value) if self._counts(key) else value)

    def _set(self, key: str, value: str) -> None:
        if self._command.by_key[key].many and key in self.options:
            value = f"{self.options[key]} {value}"
        elif self.options.get(key, value) != value:
            self._unread.append((value, ""))
            return
        self.options[key] = value

    def _add(self, key: str, value: str) -> None:
        """Take a value that is said, also beside others of an option that has several."""
        known = self.options.get(key, "").split(",")
        if self._command.by_key[key].commas and known != [""]:
            self.options[key] = ",".join(dict.fromkeys([*known, value]))
        else:
            self._set(key, value)

    def read(self, typed: list[str]) -> None:
        """Take the words between typed options."""
        words = [word if " " in word.strip() else clean(word) for each in typed for word in self._parts(each)]
        words = whole_numbers(word for word in words if word and word.lower() not in ARTICLES)
        lower = [word.lower() for word in words]
        place, hints, last = 0, list[str](), ""  # last: the key that the word before was a value of
        while place < len(words):
            phrase, size = self._longest(lower, place)
            taken = self._share(lower, place) or self._amount(lower, place)
            if words[place][0] in "\"`'" and "cmd" in self._command.by_key:
                self._set("cmd", unquoted(words[place]))
                place, hints, last = place + 1, [], ""
            elif taken:
                place, hints, last = place + taken, [], ""
            elif MONEY.fullmatch(words[place]) and "budget" in self._command.by_key:
                self._set("budget", words[place])
                place, hints, last = place + 1, [], ""
            elif phrase in LEFT_OUT:
                place = self._after_names(lower, place + size)
            elif phrase in self._values:
                keys = self._values[phrase]
                key = next((each for each in hints if each in keys), "") or self._preferred(keys)
                self._add(key, keys[key])
                place, last = place + size, key
                hints = self._hints.get(phrase, [])
            elif phrase in self._keys and phrase not in self._hints:
                key = self._keys[phrase]
                place += size + self._named(key, lower, words, place, size, last)
                hints, last = [], ""
            elif phrase in self._hints:
                hints, place, last = self._hints[phrase], place + size, ""
            elif lower[place] in self._fillers or stem(lower[place]) in self._fillers:
                place += 1
            else:
                self._word(words[place], hints)
                place, hints, last = place + 1, [], ""

    def _after_names(self, lower: list[str], place: int) -> int:
        """Return the place after a name, and after others that follow it."""
        place += self._longest(lower, place)[1]
        while place < len(lower):
            phrase, size = self._longest(lower, place)
            if phrase not in self._known and lower[place] not in {"and", "or"}:
                break
            place += size
        return place

    def _parts(self, word: str) -> list[str]:
        """Return the names in `main,dev`, `main/lr`, and `big-space`, unless that is itself a name."""
        parts = re.split("[,/]", word)
        names = {clean(part).lower() for part in parts}
        whole = clean(word).lower()
        if names <= self._known and whole not in self._known:
            return parts
        parts = whole.split("-")
        is_known = any(whole in each for each in (self._keys, self._values, self._hints, self._known))
        initials = "".join(part[:1] for part in parts)
        is_pair = parts[1:] and (parts[-1] in self._keys or (parts[2:] == [] and initials in self._known))
        return parts if is_pair and not is_known else [word]

    def _longest(self, lower: list[str], place: int) -> tuple[str, int]:
        """Return the longest phrase at a place that means something, and its number of words.

        `learning rate` is `lr`, if that is a name.
        """
        for size in range(min(MAX_PHRASE, len(lower) - place), 0, -1):
            phrase = " ".join(lower[place : place + size])
            for each in (phrase, phrase.removesuffix("s") if PLURAL.search(phrase) else phrase):
                if each in self._values or each in self._keys or each in self._hints or each in LEFT_OUT:
                    return each, size
        pair = lower[place : place + 2]
        initials = "".join(word[0] for word in pair if word.isalpha())
        if initials in self._known and len(initials) > 1 and self._fillers.isdisjoint(pair):
            return initials, 2
        return "", 1

    def _preferred(self, keys: Mapping[str, str]) -> str:
        """Return a key without a value, if there is one, or else the first one of the table."""
        options = [each.key for each in self._command.options if each.key in keys]
        return next((key for key in options if key not in self.options), options[0])

    def _share(self, lower: list[str], place: int) -> int:
        """Take `half the gpus` and `twice as many trials`, of the last launch; return the words, or 0."""
        start = place + 1
        while start < len(lower) and lower[start] in OF_LAST:
            start += 1
        phrase, size = self._longest(lower, start) if start < len(lower) else ("", 0)
        key, factor = self._keys.get(phrase, ""), FACTORS.get(lower[place])
        if not (key and factor and self._names.last.get(key, "").isdecimal()):
            return 0
        last = int(self._names.last[key])
        self._set(key, str(max(min(1, last), int(last * factor))))
        return start - place + size

    def _number(self, word: str) -> str:
        found = AMOUNT.fullmatch(word)
        return found[1] if found else NUMBERS.get(word, "")

    def _amount(self, lower: list[str], place: int) -> int:
        """Take `4 gpus`, `4gpus`, and `2 a100`; return the number of words, or 0."""
        for option in self._command.options:
            if option.units and (taken := self._time(lower, place, option)):
                return taken
        if not (number := self._number(lower[place])):
            return 0
        found = AMOUNT.fullmatch(lower[place])
        glued, after = found[2] if found else "", [*lower[place + 1 : place + 2], ""][0]
        start = place + 2 if after in {*ADDED, *BETWEEN} else place + 1
        if glued and glued in self._keys:
            self._set(self._keys[glued], number)
            return 1
        if after in TIME_WORDS and not glued and after not in self._keys:  # `add 2 hours`: not 2 trials
            self._unread.append((f"{lower[place]} {after}", ""))
            return 2
        said = {after} - {"by"} | {*lower[max(place - 1, 0) : place]}  # `to 40 by tomorrow` adds nothing
        is_added = lower[place][0] == "+" or ADDED & said
        self._adds = self._adds or bool(is_added)
        if glued or not after:
            return 0
        phrase, size = self._longest(lower, start)
        if phrase in self._keys:
            self._set(self._keys[phrase], number)
            return start - place + size
        if "profile" in self._values.get(phrase, {}):
            self._set("gpus", number)
            return start - place
        if not phrase and start < len(lower) and (key := self._mistyped_key(lower[start])):
            self._set(key, number)
            return start - place + 1
        return 0

    def _time(self, lower: list[str], place: int, option: Option) -> int:
        """Take `8 days`, `2 more hours`, `2,5h`, and `2 h and 30 min`; return the number of words, or 0."""
        hours, end = 0.0, place
        while end < len(lower):
            start = end + (end > place and lower[end] == "and")
            word, after = [*lower[start : start + 2], "", ""][:2]
            found = AMOUNT.fullmatch(word.replace(",", "."))
            number, unit = found.groups() if found else (NUMBERS.get(word, ""), "")
            if not unit:
                start += 2 if after in {*ADDED, *BETWEEN} else 1
                unit = " ".join(lower[start : start + 1])
            if not number or unit not in option.units:
                break
            hours, end = hours + float(number) * option.units[unit], start + 1
            if lower[end : end + 2] == ["and", "half"] and self._longest(lower, end + 2)[0] not in self._keys:
                hours, end = hours + option.units[unit] / 2, end + 2
        if end > place:
            value, said = f"{hours:.10g}", " ".join(lower[place:end])
            errors = read_values((option,), {option.key: value}, self._context)[1]
            self._set(option.key, said if errors else value)  # its error has what was typed
        return end - place

    def _mistyped_key(self, word: str) -> str:
        """Return the option that a word after a number means, as in `30 trails`."""
        if word in self._fillers or not len("run") < len(word) < MAX_KEY or self._compared >= MAX_SUGGESTED:
            return ""
        self._compared += 1
        counted = [name for name, key in self._keys.items() if self._counts(key)]
        near = get_close_matches(word, counted, 1, SIMILARITY)
        return self._keys[near[0]] if near else ""

    def _counts(self, key: str) -> bool:
        return isinstance(self._command.by_key[key].type, Number | Duration)

    def _named(self, key: str, lower: list[str], words: list[str], place: int, size: int, last: str) -> int:
        """Take the value of a named option after its name, or else before; return the words after it."""
        option, start, counts = self._command.by_key[key], place + size, self._counts(key)
        while start < len(lower) and lower[start] in {"is", "to", "of", "the", "named", "called", ":", "="}:
            start += 1
        phrase, taken = self._longest(lower, start) if start < len(lower) else ("", 0)
        if key in self._values.get(phrase, {}):
            self._set(key, self._values[phrase][key])
            return start - place - size + taken
        if last == key:
            return 0
        if last and place and key in self._values.get(lower[place - 1], {}):  # `lr branch`: not the space
            self.options.pop(last, None)
            self._set(key, self._values[lower[place - 1]][key])
        elif (
            start < len(lower)
            and (number := self._number(lower[start]))
            and (counts or number == lower[start] or lower[start] in NUMBERS)
        ):
            if counts or self._amount(lower, start) == 0:
                self._set(key, number)
            return start - place - size + 1
        elif self._unread and place and self._unread[-1][0] == words[place - 1] and not counts:
            self._set(key, self._unread.pop()[0])
        elif taken and not (counts or phrase) and self._takes(option, words[start]):
            self._set(key, unquoted(words[start]))
            return start - place - size + 1
        elif (
            option.word
            and key not in {*self._names.known, *self.options}
            and words[place] not in self._fillers
        ):
            self._unread.append((words[place], ""))  # `the last trial`
        return 0

    def _takes(self, option: Option, word: str) -> bool:
        """Return whether a word after an option's name is its value: `trial k3x9z`, but not `sweep now`."""
        if option.word:
            is_value = not read_values((option,), {option.key: word}, self._context)[1]
            return is_value and option.key not in self._names.known
        is_guess = self._command.name and self._names.known.get(
            option.key
        )  # only a form shows what is unknown
        return word.lower() not in self._fillers and not is_guess

    def _word(self, word: str, hints: list[str]) -> None:
        """Take a word that isn't known as a name after `on` where no names are known; or else note it."""
        for key in hints:
            option = self._command.by_key[key]
            if not self._names.known.get(key) and not isinstance(option.type, Choice | Number):
                self._set(key, word)
                return
        if key := self._free_key(word):
            self._set(key, word.lower())
        else:
            self._unread.append((word, hints[0] if hints else ""))

    def _free_key(self, word: str) -> str:
        """Return an option that takes a word without a key, of those whose values can't be listed here."""
        for each in self._command.options:
            amount = AMOUNT.fullmatch(word.lower())  # `at 5pm`
            if not each.word or each.whole or each.key in self.options or (amount and len(amount[2]) < 3):
                continue
            if each.key in self._names.known:
                return ""
            if not read_values((each,), {each.key: word}, self._context)[1]:
                return each.key
        return ""

    def sentence(self) -> Sentence:
        first = self._command.options[0] if self._command.options else None
        is_unknown = first and first.after and not self._names.known.get(first.key)
        if first and is_unknown and first.key not in self.options and len(self._unread) == 1:
            self._set(first.key, self._unread.pop()[0])  # its values can't be listed yet: a lone word is one
        required = [each.key for each in self._command.options if each.required]
        missing = [key for key in required if key not in self.options]
        amounts = ((each, each[0].strip("x+")) for each in self._unread)
        numbers = [
            (each, NUMBERS.get(said, said))
            for each, said in amounts
            if said.isdecimal() or said in {*NUMBERS} - {"one"}
        ]
        if first and first.after and first.key in self.options and len(self._unread) == 1:  # `lr on main 4`
            counted = [each.key for each in self._command.options if self._counts(each.key)]
            missing = [key for key in counted[:1] if key not in self.options]
            self._notes += [f"Read `{each[0][0]}` as `{missing[0]}=`." for each in numbers if missing]
        if len(missing) == len(numbers) == 1:  # `increase the budget of otter to 80`
            self._unread.remove(numbers[0][0])
            self._set(missing[0], numbers[0][1])
        _, errors = read_values(self._command.options, self.options, self._context)
        options = {key: value for key, value in self.options.items() if key not in errors}
        return Sentence(
            parsed=Parsed(command=self._command, options=options),
            note=" ".join(fitting([*self._notes, *self._unknown(), *errors.values()], MAX_NOTE)),
            adds=self._adds,
        )

    def _unknown(self) -> Iterator[str]:
        unknown = dict.fromkeys(self._unread)
        for word, key in [each for each in unknown if each[1] and self._names.known.get(each[1])][
            :MAX_SUGGESTED
        ]:
            del unknown[word, key]
            hint = did_you_mean(word, dict.fromkeys(self._names.known[key].values()))
            yield f"Unknown {key}: `{shortened(word)}`.{hint}"
        if unknown:
            yield f"Not understood: {listed(f'`{shortened(word)}`' for word, _ in unknown)}."
