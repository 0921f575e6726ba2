"""A work queue on a real Redis, and a handler that lasts until it may finish."""

import pytest

from bot.platform.storage.work_queue import Queue
from tests.bot.workers import PendingRuns


@pytest.fixture
def queue(redis):
    return Queue(redis)


@pytest.fixture
def runs():
    return PendingRuns()
