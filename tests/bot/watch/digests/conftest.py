"""Pictures of digests are drawn once in a process."""

import pytest

from bot.watch.digests import chart
from bot.watch.digests.figures import Figures

PICTURES: dict[str, bytes] = {}  # by their figures


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw equal figures once: drawing takes more CPU time than all else of a run."""
    draw = chart.png

    async def png(figures: Figures) -> bytes:
        shown = str(figures)
        if shown not in PICTURES:
            PICTURES[shown] = await draw(figures)
        return PICTURES[shown]

    monkeypatch.setattr(chart, "png", png)
