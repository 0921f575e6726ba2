"""Requests in a real Redis: each is kept until it was handled, and no later call removes a newer one."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.core.commands import Action, Command
from bot.platform.storage.requests import RequestState
from bot.platform.storage.sweeps import Store

pytestmark = pytest.mark.usefixtures("no_litter")
CANCEL = Command(action=Action.CANCEL, user="U1", user_name="ada")
DAY = 24 * 3600


@pytest.fixture
def store(redis):
    return Store(redis)


async def left(redis):
    """Return the keys, without the marks of handled requests, which expire."""
    return [each for each in await redis.keys() if not each.startswith(b"sweepbot:handled:")]


async def test_commands_are_kept_in_order_until_answered_also_of_older_versions(store, redis):
    again = replace(CANCEL, user="U2")
    await store.add_command("lr-x", CANCEL)
    await store.add_command("lr-x", again)
    assert await store.commands("lr-x") == [CANCEL, again]
    assert 0 < await redis.ttl("sweepbot:commands:lr-x") <= 14 * DAY
    await store.remove_commands("lr-x", [CANCEL])
    assert await store.commands("lr-x") == [again]
    await store.remove_commands("lr-x", [again])
    assert await left(redis) == []
    await redis.rpush("sweepbot:commands:lr-x", '{"action":"cancel","user":"U1","user_name":"ada"}')
    await store.remove_commands("lr-x", await store.commands("lr-x"))
    assert await left(redis) == []


async def test_request_with_a_known_id_is_dropped_unless_it_repeats_the_stored_one(store):
    assert await store.add_request("a", "one", once="click-1")
    assert await store.add_request("a", "one", once="click-1"), "after a lost answer"
    assert not await store.add_request("a", "two", once="click-1")
    assert await store.requests("a") == [b"one"]
    await store.remove_requests("a", [b"one"])


async def test_request_is_known_as_waiting_then_as_handled_for_eight_days_and_then_as_lost(store, redis):
    async def states():
        return await store.request_states([("a", "one"), ("a", "two")])

    await store.add_request("a", "one")
    assert await states() == [RequestState.WAITING, RequestState.LOST]
    await store.remove_requests("a", [b"one"])
    assert await states() == [RequestState.HANDLED, RequestState.LOST]
    [mark] = await redis.keys("sweepbot:handled:*")
    assert 7 * DAY < await redis.ttl(mark) <= 8 * DAY
    await redis.pexpire(mark, 0)
    assert await states() == [RequestState.LOST] * 2
    await store.add_request("a", "two")
    await store.remove_requests("a", [b"two"])
    restored = [await store.restore_request("a", one, None, timedelta(1)) for one in ("one", "one", "two")]
    assert (restored, await store.requests("a")) == ([True, False, False], [b"one"])


async def test_held_counts_down_in_seconds(store, redis):
    assert await store.held("a") == 0
    await store.hold("a", 60)
    assert 0 < await store.held("a") <= 60


async def test_answered_command_that_is_late_or_repeated_removes_no_newer_one(store):
    newer = replace(CANCEL, user="U2")
    await store.add_command("lr-x", CANCEL)
    await store.remove_commands("lr-x", [CANCEL])
    await store.add_command("lr-x", newer)
    await store.remove_commands("lr-x", [CANCEL])
    assert await store.commands("lr-x") == [newer]


@pytest.mark.parametrize("damaged", [b"", b"xx", b"\xff", b"[]", b'{"action":"cancel","user":3}'])
async def test_damaged_command_is_removed_and_holds_up_no_other(store, redis, damaged):
    """A sweep whose commands can't be read would stay in its phase."""
    await redis.rpush("sweepbot:commands:lr-x", damaged)
    await store.add_command("lr-x", CANCEL)
    assert await store.commands("lr-x") == [CANCEL]
    await store.remove_commands("lr-x", [CANCEL])
    assert await left(redis) == []


async def test_is_new_is_true_once_per_request_until_it_expires(store, redis):
    assert [await store.is_new("click-1", timedelta(seconds=10)) for _ in range(3)] == [True, False, False]
    assert await store.is_new("click-2")
    assert 0 < await redis.ttl("sweepbot:request:click-1") <= 10
    await redis.pexpire("sweepbot:request:click-1", 0)
    assert await store.is_new("click-1", timedelta(seconds=10))
