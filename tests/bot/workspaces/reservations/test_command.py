"""`/gpus reserve` and `release`, as people write them, until a worker answers; what is stored."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from bot.core.errors import UserError
from bot.measure.gpus.command import ParsedCommand
from bot.measure.gpus.snapshot_store import ITEM
from bot.workspaces.reservations.command import parse_until, reservation
from bot.workspaces.reservations.models import Reservation
from bot.workspaces.reservations.store import ReservationStore
from handlers.slash_gpus import answer_gpus
from k8s.objects import GPU
from tests.bot.factories import NOW, OWNER
from tests.bot.test_typed_commands import CONFIG, GPUS_1, error_of, gpus
from tests.cases import cases
from tests.handlers.factories import a_context
from tests.releases.test_releases import clients_with
from tests.scenarios.test_unconfirmed_requests import assert_not_lost, typed

BERLIN = ZoneInfo("Europe/Berlin")
SUNDAY = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)  # Monday, 00:30 in Berlin


@cases(
    ("text", "end"),
    [
        ("48h", "2026-11-24T23:30:00+00:00"),
        ("2d", "2026-11-24T23:30:00+00:00"),
        ("31d", "2026-12-23T23:30:00+00:00"),
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


@cases(
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


@pytest.mark.parametrize("one", GPUS_1)
def test_option_is_read_alike(one):
    values = gpus(f"reserve team=vision {one} until=48h").values
    assert reservation(values, "U1", "sweeps", CONFIG, NOW, BERLIN).gpus == 1


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("reserve team=vision gpus=1 until=Fri", {"team": "vision", "gpus": 1, "until": "Fri"}),
        ("release `vision-1`", {"name": "vision-1"}),
    ],
)
def test_command_is_read_by_the_one_grammar(text, values):
    assert gpus(text) == ParsedCommand(view=text.split()[0], values=values)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("reserve team=vision gpus=1", "Missing until=. Usage: `/gpus reserve team=vision gpus=16"),
        ("reserve team=visoin", 'team= must be a configured team; got "visoin". Did you mean vision?'),
        ("reserve team=vision gpus=257", "gpus= must be a whole number from 1 to 256"),
        (
            "reserve team=vision gpus=3 until=48h extra",
            "Unknown argument: `extra`. Usage: `/gpus reserve team=",
        ),
        ("reserve tema=vision", "Unknown option: `tema=`. Did you mean team?"),
        ("release", "Missing NAME. Usage: `/gpus release NAME`"),
    ],
)
def test_command_with_a_mistake_names_it(text, error):
    assert error in error_of(gpus, text)


async def test_reservations_are_made_by_admins_and_shown_to_everyone(redis):
    context, other = a_context(redis, config=CONFIG), {"user_id": OWNER}
    for text in ("reserve team=vision gpus=1 until=Fri", "release vision-1"):
        assert (await answer_gpus(context, typed(text) | other, None)).startswith("Only admins can do that")
    assert await context.store.requests(str(ITEM)) == []
    assert await answer_gpus(context, typed("reservations") | other, None) == "Reading reservations…"
    assert (await answer_gpus(context, typed("release vision-1"), None)).startswith("Releasing… The result")
    assert len(await context.store.requests(str(ITEM))) == 2


async def test_killed_server_and_emptied_redis_lose_no_reservation(redis):
    text = "reserve team=vision gpus=2 until=Fri"
    await assert_not_lost(
        redis, a_context(redis, config=CONFIG), str(ITEM), lambda c: answer_gpus(c, typed(text), None)
    )


STORED = {
    "sweepbot-reservations": {
        "vision-1": '{"id":"vision-1","team":"vision","gpus":4,"until":"2026-11-22T12:00:00Z","by":"U1",'
        '"namespace":"sweeps","queue":"research","created":"2026-11-21T12:00:00Z","released":false}',
        "rejected.vision-1": "denied the request: no image",
        "vision-2": "damaged",
    },
}


async def test_stored_reservations_are_read_and_a_damaged_one_stops_only_itself():
    day = NOW + timedelta(days=1)
    stored = await ReservationStore(clients_with(STORED)).read()
    whose = {"id": "vision-1", "team": "vision", "by": "U1", "namespace": "sweeps", "queue": "research"}
    assert stored.reservations == (Reservation(**whose, gpus=4, until=day, created=NOW, resource=GPU),)
    assert stored.rejections == {"vision-1": "denied the request: no image"}
