"""DIFFERENCES.md and the tests that show its entries are in step."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_every_difference_is_listed_and_shown() -> None:
    listed = re.findall(r"^## (.+)$", (FOLDER / "DIFFERENCES.md").read_text(), re.MULTILINE)
    tests = "".join(file.read_text() for file in FOLDER.glob("test_*.py"))
    shown = re.findall(r'mark\.differs\("([^"]+)"\)', tests)
    assert sorted(listed) == sorted(set(shown))
