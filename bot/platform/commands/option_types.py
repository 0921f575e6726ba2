"""Types of options, each with its limits and the error of a wrong value: whole numbers up to a limit of the
configuration, hours such as `2d`, configured names, patterns.

They are called with `key`, the typed text, and the context of the table. A key in capitals is a word without
a key, such as SWEEP. All raise UserError. Pure.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from bot.core.errors import UserError
from bot.text.wording import did_you_mean, listed, shortened

Type = Callable[[str, str, Any], Any]
MAX_DIGITS = 40  # of a number: int() raises ValueError for very long ones
IN_HOURS = {
    "h": 1,
    "hour": 1,
    "hours": 1,
    "hr": 1,
    "hrs": 1,
    "day": 24,
    "days": 24,
    "d": 24,
    "week": 168,
    "weeks": 168,
}
PERIODS = {"day": "24", "half day": "12", "day and half": "36", "for week": "168"}  # without a number
_HOURS = re.compile(r"([0-9]{1,4})(h|d)?")


def invalid(key: str, rule: str, text: str, hint: str = "") -> UserError:
    """`gpus= must be a whole number; got "x".`"""
    name = key if key.isupper() else f"{key}="
    return UserError(f'{name} must be {rule}; got "{shortened(text)}".{hint}', field=key.lower())


def typed(_key: str, text: str, _context: Any) -> str:
    """Accept any text; what uses it checks it."""
    return text


@dataclass(frozen=True)
class Number:
    """A whole number. `most` is the maximum, or the key of `limits:` that holds it."""

    least: int
    most: int | str

    def maximum(self, context: Any) -> int:
        return self.most if isinstance(self.most, int) else int(getattr(context.limits, self.most))

    def __call__(self, key: str, text: str, context: Any) -> int:
        most, digits = self.maximum(context), text.lstrip("0") or "0"
        is_whole = re.fullmatch("[0-9]+", text)
        too_large = is_whole and (len(digits) > MAX_DIGITS or int(digits) > most)
        if too_large and isinstance(self.most, str):
            where = f"on this cluster (limits.{self.most})"
            raise UserError(f"{key}= can be at most {most} {where}; got {shortened(text)}.", field=key)
        if not is_whole or too_large or int(digits) < self.least:
            raise invalid(key, f"a whole number from {self.least} to {most}", text)
        return int(digits)


@dataclass(frozen=True)
class Duration:
    """Hours, from `24h`, `24`, or `2d`."""

    most: int  # hours

    def __call__(self, key: str, text: str, _context: Any) -> int:
        found = _HOURS.fullmatch(text.lower())
        hours = int(found[1]) * (24 if found[2] == "d" else 1) if found else 0
        if not 1 <= hours <= self.most:
            raise invalid(key, f"a time from 1h to {self.most // 24}d", text)
        return hours


@dataclass(frozen=True)
class Choice:
    """One of a few words, or of the configured names: `names` is where the context has them."""

    names: tuple[str, ...] | Mapping[str, Any] | str | Callable[[Any], list[str]]  # a mapping has the values
    noun: str = ""  # what configured names are of, such as `queue`
    aliases: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # the texts in a form, unless they are the words

    def known(self, context: Any) -> list[str]:
        if isinstance(self.names, str):
            return [each.name for each in attrgetter(self.names)(context)]
        return self.names(context) if callable(self.names) else list(self.names)

    def __call__(self, key: str, text: str, context: Any) -> Any:
        names, word = self.known(context), self.aliases.get(text.lower(), text)
        for name in (word, word.lower()):
            if name in names:
                return self.names[name] if isinstance(self.names, Mapping) else name
        if self.noun and not names:
            fix = f"Remove {key}=, or ask an admin to add one."
            raise UserError(f"{key}= can't be used: no {self.noun} is configured. {fix}", field=key.lower())
        if self.noun:
            raise invalid(key, f"a configured {self.noun}", text, did_you_mean(text.lower(), names))
        raise invalid(key, listed([f'"{name}"' if " " in name else name for name in names], "or"), text)


@dataclass(frozen=True)
class Matching:
    """A text that fits a pattern. `rule`: what it must be."""

    pattern: str
    rule: str

    def __call__(self, key: str, text: str, _context: Any) -> str:
        if not re.fullmatch(self.pattern, text):
            raise invalid(key, self.rule, text)
        return text
