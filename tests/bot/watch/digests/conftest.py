"""Runs of digests share one picture."""

import pytest

from bot.watch.digests import chart
from bot.watch.digests.figures import Figures

DRAWN: list[bytes] = []


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw in the first run alone: it takes more CPU time than all else, and `test_chart` has pictures."""
    draw = chart.png

    async def png(figures: Figures) -> bytes:
        if not DRAWN:
            DRAWN.append(await draw(figures))
        return DRAWN[0]

    monkeypatch.setattr(chart, "png", png)
