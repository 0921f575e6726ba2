"""How long a start waits for the first lists of the watches."""

import asyncio
from types import SimpleNamespace

import pytest

from bot.platform.config.policy import Config
from bot.sweep.sweeps import informer as informer_module
from bot.sweep.sweeps.informer import WATCHED_KINDS, SweepInformer
from k8s.api.cache import Caches
from tests.bot.factories import SETTINGS

KEYS = [(kind, SETTINGS.k8s_namespace) for kind in WATCHED_KINDS]


@pytest.fixture
def informer(monkeypatch):
    monkeypatch.setattr(informer_module, "FIRST_LIST_TIMEOUT", 0.001)
    clients = SimpleNamespace(
        cluster=None, settings=SETTINGS, config=Config(repositories=()), caches=Caches()
    )
    return SweepInformer(None, clients)


@pytest.mark.parametrize("progress", [[False], [True, True, True, False]])
async def test_listed_waits_while_lists_progress(informer, progress):
    answers = iter(progress)
    informer._has_progressed = lambda _: next(answers)
    await informer.listed(asyncio.Event())
    assert list(answers) == []


async def test_listed_ends_at_its_limit_or_when_stopped(informer):
    informer._has_progressed = lambda _: True
    await informer.listed(asyncio.Event(), 0.01)
    stop = asyncio.Event()
    stop.set()
    await informer.listed(stop, 1e9)


async def test_listed_ends_with_the_last_list(informer):
    informer._has_progressed = lambda _: True
    for cache in informer._clients.caches:
        cache.listed.set()
    await informer.listed(asyncio.Event(), 1e9)


@pytest.mark.parametrize(("listed", "progressed"), [(0, True), (1, True), (len(KEYS), False)])
def test_progress_counts_only_lists_that_are_not_complete(informer, listed, progressed):
    informer._answered = dict.fromkeys(KEYS, 7.0)
    for cache in list(informer._clients.caches)[:listed]:
        cache.listed.set()
    assert informer._has_progressed(6.0) is progressed
    assert not informer._has_progressed(8.0)
