"""Parts of images leave the registry when no sweep has used them for long; nothing else ever does."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from bot.core.record import Phase
from bot.platform.config.repositories import Repository
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.images import ImageRef
from bot.platform.storage import sweep_configmap
from bot.sweep.builds.image_gc import ITEM, ImageGc
from bot.sweep.builds.jobs import SHARED
from bot.sweep.launch.plan import plan
from tests.bot.factories import COMMIT, CONFIG, NOW, ORDER, SETTINGS, SOURCE, a_sweep

APART = {"requirements.txt": "numpy==2.4.6\n"}
PLAN = plan(replace(ORDER, source=replace(SOURCE, files=APART)), SETTINGS)
PARTS = {ImageRef(build.repository, build.tag) for build in PLAN.builds}
WHOLE = ImageRef(PLAN.image_repository, PLAN.image_tag)
STRANGE = ImageRef(SETTINGS.image_repository(SHARED), "deps-" + "a" * 32)
KEPT = {WHOLE, ImageRef("sweepbot/digits", "latest"), ImageRef("other/digits", f"code-{COMMIT}-0a1b2c3d")}


class Tags:
    """A registry with the images of these places."""

    def __init__(self, *places):
        self.there = set(places)

    async def tags(self, repository):
        return sorted(place.tag for place in self.there if place.repository == repository)

    async def delete(self, place):
        self.there.remove(place)
        return True


class Records:
    """A cluster with the records of these sweeps."""

    def __init__(self, *sweeps):
        self.sweeps = sweeps

    async def list(self, _kind, _namespace, *, labels):
        return [
            sweep if isinstance(sweep, dict) else sweep_configmap.config_map(sweep) for sweep in self.sweeps
        ]


@pytest.fixture
def tidy(redis):
    async def after(days, registry, *sweeps):
        """Return the images deleted by a run that many days from now."""
        there = set(registry.there)
        clients = SimpleNamespace(
            cluster=Records(*sweeps),
            registry=registry,
            config=CONFIG,
            settings=SETTINGS,
            now=lambda: NOW + timedelta(days=days),
        )
        assert await ImageGc(redis, clients, days=30).run(ITEM.key) == timedelta(days=1)
        return there - registry.there

    return after


async def test_gc_deletes_unused_parts_and_keeps_trial_images(tidy, caplog):
    caplog.set_level("INFO")
    registry = Tags(*PARTS, *KEPT)
    ended = a_sweep(Phase.SUCCEEDED, plan=PLAN, since=NOW)
    assert await tidy(29, registry, ended) == set()
    assert await tidy(31, registry, ended) == PARTS
    assert registry.there == KEPT
    assert caplog.text.count("unused for 30 days") == len(PARTS)


async def test_gc_of_a_registry_without_parts_deletes_nothing(tidy):
    assert await tidy(31, Tags()) == set()
    assert await tidy(31, Tags(*KEPT)) == set()


async def test_gc_keeps_images_of_active_sweeps(tidy):
    registry = Tags(*PARTS)
    for days in (0, 40, 80):
        assert await tidy(days, registry, a_sweep(Phase.BUILDING, plan=PLAN)) == set()


async def test_gc_restarts_the_age_when_another_sweep_uses_an_image(tidy):
    registry = Tags(*PARTS)
    ended = a_sweep(Phase.SUCCEEDED, plan=PLAN, since=NOW)
    later = replace(ended, id="lr-calm-fox", since=NOW + timedelta(days=20))
    await tidy(0, registry, ended)
    assert await tidy(35, registry, ended, later) == set()
    assert await tidy(45, registry, ended) == set()
    assert await tidy(51, registry, ended, later) == PARTS


async def test_gc_counts_unknown_images_from_their_first_sighting(tidy, redis):
    registry = Tags(STRANGE)
    assert await tidy(100, registry) == set()
    await redis.flushall()
    assert await tidy(129, registry) == set()
    assert await tidy(160, registry) == {STRANGE}
    assert await redis.keys() == []


async def test_gc_deletes_parts_of_sweeps_that_left_the_cluster(tidy):
    fork = Repository(name="fork", url="https://github.com/ada/digits.git")
    of_fork = plan(replace(ORDER, source=replace(SOURCE, repository=fork, files=APART)), SETTINGS)
    parts = {ImageRef(build.repository, build.tag) for build in of_fork.builds}
    registry = Tags(*parts)
    assert await tidy(0, registry, a_sweep(Phase.SUCCEEDED, plan=of_fork, since=NOW)) == set()
    assert await tidy(31, registry) == parts


async def test_gc_reports_a_refusing_registry_and_retries_the_next_day(tidy, caplog):
    class Strict(Tags):
        async def delete(self, place):
            raise RegistryError("the registry r doesn't allow deletion (storage.delete.enabled)")

    assert await tidy(31, Strict(*PARTS), a_sweep(Phase.SUCCEEDED, plan=PLAN, since=NOW)) == set()
    assert "next try in 24 h: the registry r doesn't allow deletion" in caplog.text


async def test_gc_deletes_nothing_while_a_record_is_unreadable(tidy, caplog):
    newer = sweep_configmap.config_map(a_sweep(Phase.BUILDING, plan=PLAN))
    newer["data"]["record"] = newer["data"]["record"].replace('"schema":', '"schema":9')
    assert await tidy(31, Tags(*PARTS), a_sweep(Phase.SUCCEEDED, plan=PLAN, since=NOW), newer) == set()
    assert "next try in 24 h: sweep lr-brave-otter was stored by a newer Sweepbot" in caplog.text
