"""What has no room is counted."""

import pytest

from bot.core.space import ALGORITHMS
from bot.core.wording import did_you_mean, fitting


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (100, ["one", "two", "three"]),
        (14, ["one", "two", "three"]),
        (13, ["one", "two", "… and 1 more"]),
        (3, ["… and 3 more"]),
    ],
)
def test_lines_with_their_ends_have_room_or_are_counted(room: int, shown: list[str]) -> None:
    assert fitting(["one", "two", "three"], room) == shown


@pytest.mark.parametrize(
    ("word", "offered"),
    [
        ("bay", " Did you mean bayesianoptimization?"),  # too short to look like it
        ("multi", " Did you mean multivariate-tpe?"),
        ("tpee", " Did you mean tpe?"),
        ("sbol", " Did you mean sobol?"),
    ],
)
def test_what_begins_with_the_word_comes_before_what_looks_like_it(word: str, offered: str) -> None:
    assert did_you_mean(word, ALGORITHMS) == offered
