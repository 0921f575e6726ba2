"""Ownership of pods: it is remembered while exported labels leave it out."""

from datetime import UTC, datetime, timedelta

from redis.asyncio import Redis

from bot.measure.gpus.pod_owners import Ownership, OwnerStore
from bot.platform.config.teams import Team

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
WHOLE = Ownership(owner="U1", team="vision", sweep="lr-brave-otter", trial="lr-brave-otter-x")
PLACE = ("sweeps", "lr-brave-otter-x-1")


async def test_exported_label_overrides_the_remembered_one_and_keeps_others(redis: Redis) -> None:
    owners = OwnerStore(redis, lambda: (Team(name="speech", members=("U2",)),))
    await owners.save(NOON, {PLACE: Ownership(owner="U1", sweep="old")})
    found = await owners.owners(NOON, [PLACE], {PLACE: Ownership(owner="U2")})
    assert found == {PLACE: Ownership(owner="U2", team="speech", sweep="old")}
    owners = OwnerStore(redis, tuple)
    await owners.save(NOON, {PLACE: WHOLE})
    for ownership in (
        Ownership(trial="lr-brave-otter-x"),
        Ownership(owner="U1"),
        Ownership(team="vision"),
        Ownership(),
    ):
        assert await owners.owners(NOON, [PLACE], {PLACE: ownership}) == {PLACE: WHOLE}


async def test_pod_of_today_ignores_an_older_pod_of_the_same_name(redis: Redis) -> None:
    owners = OwnerStore(redis, tuple)
    await owners.save(NOON - timedelta(days=1), {PLACE: WHOLE})
    await owners.save(NOON, {PLACE: Ownership(owner="U2")})
    assert await owners.owners(NOON, [PLACE], {}) == {PLACE: Ownership(owner="U2")}
