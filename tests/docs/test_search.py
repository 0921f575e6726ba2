"""docs/search.md has every algorithm and every setting, and no others."""

import re
from pathlib import Path

import pytest

from bot.launch.algorithms import SETTINGS
from tests.bot.launch.test_algorithms import TWO, text
from tests.bot.launch.test_space import space

GUIDE = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z-]+)` \| .* \| (.*) \|$", GUIDE.partition("\n## ")[0], re.MULTILINE))


def test_every_algorithm_stands_there_with_its_settings():
    assert {name: re.findall(r"`(\w+)`", settings) for name, settings in ROWS.items()} == {
        name: list(settings) for name, settings in SETTINGS.items()
    }


@pytest.mark.parametrize("line", re.findall(r"^algorithm: (.*?)(?: +#.*)?$", GUIDE, re.MULTILINE))
def test_what_it_shows_is_understood(line):
    assert space(text(line, TWO)).algorithm == "tpe"
