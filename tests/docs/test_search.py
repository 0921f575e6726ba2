"""docs/search.md has every algorithm and every setting, and no others."""

import re
from pathlib import Path

import pytest

from bot.sweep.spaces.algorithms import ALGORITHM_SETTINGS
from tests.bot.sweep.spaces.test_algorithms import TWO, text
from tests.bot.sweep.spaces.test_space import space

GUIDE = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z-]+)` \| .* \| (.*) \|$", GUIDE.partition("\n## ")[0], re.MULTILINE))


def test_algorithms_are_listed_with_their_settings():
    assert {name: re.findall(r"`(\w+)`", settings) for name, settings in ROWS.items()} == {
        name: list(settings) for name, settings in ALGORITHM_SETTINGS.items()
    }


@pytest.mark.parametrize("line", re.findall(r"^algorithm: (.*?)(?: +#.*)?$", GUIDE, re.MULTILINE))
def test_shown_spaces_are_valid(line):
    assert space(text(line, TWO)).algorithm == "tpe"
