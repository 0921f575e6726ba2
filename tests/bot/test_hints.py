"""What has no room is counted."""

import pytest

from bot.hints import fitting


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
