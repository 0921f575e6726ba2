"""The end of a reservation, as people write it."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from bot.core.errors import UserError
from bot.reservations.until import parse_until

BERLIN = ZoneInfo("Europe/Berlin")
SUNDAY = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)  # Monday, 00:30 in Berlin


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("48h", "2026-11-24T23:30:00+00:00"),
        ("2d", "2026-11-24T23:30:00+00:00"),
        ("Fri", "2026-11-28T00:00:00+01:00"),
        ("friday", "2026-11-28T00:00:00+01:00"),
        ("mon", "2026-11-24T00:00:00+01:00"),
        ("sun", "2026-11-30T00:00:00+01:00"),
        ("2026-11-27", "2026-11-28T00:00:00+01:00"),
        ("2026-11-27T18:00", "2026-11-27T18:00:00+01:00"),
    ],
)
def test_end_is_read_in_the_time_zone(text, end):
    assert parse_until(text, SUNDAY, BERLIN).isoformat() == end


def test_day_on_which_the_clocks_change_ends_at_midnight():
    now = datetime(2027, 3, 27, 12, tzinfo=UTC)
    assert parse_until("2027-03-28", now, BERLIN).astimezone(UTC).isoformat() == "2027-03-28T22:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "must be a weekday"),
        ("t", "must be a weekday"),
        ("2026-13-01", "must be a weekday"),
        ("2026-11-27T25:00", "must be a weekday"),
        ("9999-12-31", "must be a weekday"),
        ("48" * 400, "must be a weekday"),
        ("2026-11-20", "must be in the future"),
        ("0h", "must be in the future"),
        ("32d", "up to 31 days"),
        ("2027-06-01", "up to 31 days"),
    ],
)
def test_end_that_is_wrong_is_rejected(text, why):
    with pytest.raises(UserError, match=why):
        parse_until(text, SUNDAY, BERLIN)
