"""Suggestions, lists, and how much of them fits."""

import pytest

from bot.core.space import ALGORITHMS
from bot.text import wording
from bot.text.wording import did_you_mean, fitting, listed


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (100, ["one", "two", "three"]),
        (14, ["one", "two", "three"]),
        (13, ["one", "two", "… and 1 more"]),
        (3, ["… and 3 more"]),
    ],
)
def test_fitting_lines_are_kept_whole_or_counted(room: int, shown: list[str]) -> None:
    assert fitting(["one", "two", "three"], room) == shown


def test_fitting_of_many_items_formats_only_those_that_fit() -> None:
    formatted = list[int]()

    def line(number: int) -> str:
        formatted.append(number)
        return f"item {number}"

    assert fitting(range(1_000), 20, line) == ["item 0", "item 1", "… and 998 more"]
    assert formatted == [0, 1, 2]


@pytest.mark.parametrize(
    ("word", "offered"),
    [
        ("bay", " Did you mean bayesianoptimization?"),  # too short to be similar
        ("multi", " Did you mean multivariate-tpe?"),
        ("tpee", " Did you mean tpe?"),
        ("sbol", " Did you mean sobol?"),
        ("tpe2", " Did you mean tpe?"),
        ("variate", " Did you mean multivariate-tpe?"),
        ("genetic", f" Available: {listed(ALGORITHMS)}."),
    ],
)
def test_suggestions_by_prefix_precede_similar_words(word: str, offered: str) -> None:
    assert did_you_mean(word, ALGORITHMS) == offered


@pytest.mark.parametrize(
    ("names", "shown"),
    [("", ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b, and c")],
)
def test_listed_names_have_a_serial_comma(names: str, shown: str) -> None:
    assert listed(names) == shown


def test_listed_many_names_ends_in_the_number_of_the_others() -> None:
    assert listed("abcdefghijklmnop") == "a, b, c, d, e, f, g, h, i, j, k, l, and 4 more"


def test_did_you_mean_without_a_near_name_lists_the_known_ones() -> None:
    assert did_you_mean("zzz", ["a", "b"]) == " Available: a and b."


def test_did_you_mean_compares_few_of_many_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:b}".rjust(11, "0") * 9 for number in range(2_000)]
    compared: list[str] = []
    monkeypatch.setattr(
        wording, "get_close_matches", lambda _word, possible, **_: compared.extend(possible) or []
    )
    did_you_mean("01" * 50, names)
    assert 0 < len(compared) <= wording.MAX_PAIRS // (100 * 99)


def test_did_you_mean_finds_the_nearest_of_many_alike() -> None:
    names = [f"feature/ticket-{number}-improve-lr" for number in range(2_000)]
    assert did_you_mean("featre/ticket-1977-improve-lr", names).startswith(
        " Did you mean feature/ticket-1977-"
    )
