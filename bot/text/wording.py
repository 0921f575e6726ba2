"""Build parts of sentences: "Did you mean", plurals, lists of names or lines that are cut to fit, days, and
times such as `2 h 5 min`. Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from difflib import SequenceMatcher, get_close_matches
from typing import TypeVar

T = TypeVar("T")

MAX_LISTED_NAMES = 12  # max names in a list
MAX_WORD = 100  # max characters of a word to show or compare: comparing takes quadratic time
MAX_COMPARED = 2_000  # max names to compare with
MAX_PAIRS = 200_000  # max pairs of characters to compare: 2,000 long names took 15 s
SIMILARITY = 0.6  # 0 to 1, for suggestions: `brnch` is branch, but `resources` isn't metrics

# Ends an acknowledgment whose answer a worker sends.
IF_NOTHING_APPEARS = "If nothing appears in a few seconds, ask an admin to check Sweepbot's workers."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?", or the known names if none is close; "" if there are none.

    Names that start with the word come before similar ones, and names that contain it last.
    """
    names = list(known)
    compared = (
        [name for name in names[:MAX_COMPARED] if len(name) <= MAX_WORD] if len(word) <= MAX_WORD else []
    )
    starting = [name for name in compared if len(word) > 1 and name.startswith(word)]
    near = starting or get_close_matches(word, _comparable(word, compared), n=3, cutoff=SIMILARITY)
    near = near or [name for name in compared if len(word) > 2 and word in name]
    if near:
        return f" Did you mean {listed(near[:3], 'or')}?"
    return f" Available: {listed(map(shortened, names))}." if names else ""


def _comparable(word: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the names with most characters in common, as many as take little time to compare."""
    matcher, shares = SequenceMatcher(b=word), dict[str, float]()
    for name in names:
        matcher.set_seq1(name)
        shares[name] = min(matcher.real_quick_ratio(), matcher.quick_ratio())
    left = MAX_PAIRS
    for name in sorted(shares, key=lambda each: -shares[each]):
        left -= len(word) * len(name)
        if left < 0 or shares[name] < SIMILARITY:
            return
        yield name


def shortened(text: str, most: int = MAX_WORD) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, thing: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def trial_size(nodes: int, gpus: int) -> str:
    """`8 GPUs`, `4 nodes × 8 GPUs`."""
    return counted(gpus, "GPU") if nodes == 1 else f"{nodes} nodes × {counted(gpus, 'GPU')}"


def fitting(items: Iterable[T], room: int, line: Callable[[T], str] = str) -> list[str]:
    """Return as many lines as fit into `room` characters, and the number of the others.

    `line` formats an item. Only those that fit, and the first that doesn't, are formatted.
    """
    items, shown = list(items), list[str]()
    for text in map(line, items):
        if len(text) >= room:
            return [*shown, f"… and {len(items) - len(shown)} more"]
        room -= len(text) + 1
        shown.append(text)
    return shown


def listed(names: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b, and c`; a long list ends in the number of the others."""
    names = list(names)
    if len(names) > MAX_LISTED_NAMES:
        return f"{', '.join(names[:MAX_LISTED_NAMES])}, {last} {len(names) - MAX_LISTED_NAMES} more"
    if len(names) > 2:
        return f"{', '.join(names[:-1])}, {last} {names[-1]}"
    return f" {last} ".join(names)


def printable(text: str) -> str:
    """Return one line: each character that can't be printed becomes a space."""
    return "".join(each if each.isprintable() else " " for each in text)


def day_text(day: date) -> str:
    """`Oct 5`."""
    return f"{day:%b} {day.day}"


def time_text(minutes: int) -> str:
    """`2 h 5 min`; "" for 0."""
    hours, rest = divmod(minutes, 60)
    return " ".join(filter(None, (f"{hours} h" if hours else "", f"{rest} min" if rest else "")))
