"""What a person may have meant: every refusal of an unknown word offers the nearest known one."""

from collections.abc import Iterable
from difflib import get_close_matches

SHOWN = 12  # names a sentence may list before it becomes a wall
WORD = 100  # characters of a word that are shown or compared: comparing takes their number squared
COMPARED = 2_000  # names


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """The end of a sentence about an unknown word, with a leading blank; empty when nothing is known.

    What begins with the word comes before what only looks like it, from `cutoff` (of 1) on.
    """
    names = list(known)
    compared = [name for name in names[:COMPARED] if len(name) <= WORD] if len(word) <= WORD else []
    begun = [name for name in compared if len(word) > 1 and name.startswith(word)]
    near = begun[:3] or get_close_matches(word, compared, n=3, cutoff=cutoff)
    if near:
        return f" Did you mean {listed(near, 'or')}?"
    return f" There {'is' if len(names) == 1 else 'are'} {listed(map(shortened, names))}." if names else ""


def shortened(word: str) -> str:
    return word if len(word) <= WORD else f"{word[: WORD - 1]}…"


def counted(number: int, thing: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def fitting(lines: Iterable[str], room: int) -> list[str]:
    """As many of the first lines as have room, with their ends, and how many there are more."""
    rest, shown = list(lines), list[str]()
    while rest and len(rest[0]) < room:
        room -= len(rest[0]) + 1
        shown.append(rest.pop(0))
    return [*shown, *([f"… and {len(rest)} more"] if rest else [])]


def listed(names: Iterable[str], last: str = "and") -> str:
    """`a, b and c`; a long list ends in its number."""
    names = list(names)
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} {last} {len(names) - SHOWN} more"
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
