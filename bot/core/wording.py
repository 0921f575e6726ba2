"""Suggestions for misspelled words, counts, and lists in sentences. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

SHOWN = 12  # names in a sentence
WORD = 100  # characters of a word shown or compared: comparing takes quadratic time
COMPARED = 2_000  # names


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return " Did you mean …?", or the known names; "" if there are none.

    Names that start with the word come first, then similar ones (`cutoff`: similarity from 0 to 1).
    """
    names = list(known)
    compared = [name for name in names[:COMPARED] if len(name) <= WORD] if len(word) <= WORD else []
    starting = [name for name in compared if len(word) > 1 and name.startswith(word)]
    near = starting[:3] or get_close_matches(word, compared, n=3, cutoff=cutoff)
    if near:
        return f" Did you mean {listed(near, 'or')}?"
    return f" Available: {listed(map(shortened, names))}." if names else ""


def shortened(word: str) -> str:
    return word if len(word) <= WORD else f"{word[: WORD - 1]}…"


def counted(number: int, thing: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def fitting(lines: Iterable[str], room: int) -> list[str]:
    """Return as many of the first lines as fit into `room` characters, and the number of the others."""
    rest, shown = list(lines), list[str]()
    while rest and len(rest[0]) < room:
        room -= len(rest[0]) + 1
        shown.append(rest.pop(0))
    return [*shown, *([f"… and {len(rest)} more"] if rest else [])]


def listed(names: Iterable[str], last: str = "and") -> str:
    """Join names as `a, b and c`; a long list ends with the number of the others."""
    names = list(names)
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} {last} {len(names) - SHOWN} more"
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
