"""DIFFERENCES.md and the tests that show its entries are in step."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_difference_listed_has_a_test_and_the_reverse() -> None:
    listed = re.findall(r"^## (.+)$", (FOLDER / "DIFFERENCES.md").read_text(), re.MULTILINE)
    tests = "".join(file.read_text() for file in FOLDER.glob("test_*.py"))
    shown = re.findall(r'mark\.differs\("([^"]+)"\)', tests)
    assert sorted(listed) == sorted(set(shown))
