"""A person's own settings: when quiet hours last, and how they change."""

from datetime import UTC, datetime, timedelta

from bot.platform.config.personal import MAX_MUTED, Personal
from tests.cases import cases


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@cases(
    ("quiet", "zone", "now", "hours"),
    [
        ("22:00-07:00", "UTC", "2026-11-28T21:59", 0),
        ("22:00-07:00", "UTC", "2026-11-28T22:00", 9),
        ("22:00-07:00", "UTC", "2026-11-29T06:30", 0.5),
        ("22:00-07:00", "UTC", "2026-11-29T07:00", 0),
        ("12:00-13:30", "UTC", "2026-11-28T12:30", 1),
        ("12:00-13:30", "UTC", "2026-11-28T11:30", 0),
        ("22:00-07:00", "Asia/Kolkata", "2026-11-28T16:30", 9),
        ("22:00-07:00", "Europe/Berlin", "2026-03-28T21:00", 8),  # the clock is put forward in this night
        ("22:00-07:00", "Europe/Berlin", "2026-10-24T20:00", 10),
        ("00:00-02:30", "Europe/Berlin", "2026-03-29T00:30", 1 / 2),  # 01:30 there; 02:30 doesn't exist
        ("22:00-07:00", "Mars/Olympus", "2026-11-28T23:00", 8),
        ("", "UTC", "2026-11-28T23:00", 0),
    ],
)
def test_quiet_hours_last_until_their_end_in_the_persons_time_zone(quiet, zone, now, hours):
    left = Personal(quiet=quiet, zone=zone).quiet_for(at(now))
    if hours == 1 / 2 and zone == "Europe/Berlin":
        assert timedelta(0) < left <= timedelta(hours=1)
    else:
        assert left == timedelta(hours=hours)


def test_changes_keep_the_rest_and_the_latest_muted_sweeps():
    own = Personal(notify="dm", quiet="22:00-07:00", zone="UTC", muted=("a",))
    assert own.changed({"quiet": "", "mute": "b"}) == Personal(notify="dm", zone="UTC", muted=("a", "b"))
    assert own.changed({"mute": "a"}).muted == ("a",)
    assert own.changed({"mute": "b", "unmute": "a"}).muted == ("b",)
    assert own.changed({"unmute": "x"}) == own
    for number in range(MAX_MUTED + 5):
        own = own.changed({"mute": f"s{number}"})
    assert (len(own.muted), own.muted[-1]) == (MAX_MUTED, f"s{MAX_MUTED + 4}")
