"""What simulated sweeps share."""

from collections.abc import Iterator
from functools import lru_cache

import pytest

from bot.core.record import load


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """Worker and story read the same record: to parse each version again takes 5% of a story's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.platform.storage.sweeps.load", lru_cache(maxsize=100)(load))
        yield
