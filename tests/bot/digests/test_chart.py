"""The digest's chart and its alternative text."""

import pytest

from bot.digests.chart import alt_text, picture, png
from tests.bot.digests.days import of


async def test_png_of_a_day_is_an_image() -> None:
    assert (await png(of())).startswith(b"\x89PNG")


def test_picture_draws_the_capacity() -> None:
    found = of()
    handles, labels = picture(found).axes[0].get_legend_handles_labels()
    line = dict(zip(labels, handles, strict=True))["capacity"]
    assert list(line.get_data().values) == [15] * 24
    drawn = picture(found)
    drawn.draw_without_rendering()
    [legend] = drawn.legends
    assert (legend.get_window_extent().x0, legend.get_window_extent().x1) == pytest.approx((0, 1200), abs=50)
    assert legend.get_window_extent().x1 < drawn.bbox.width
    assert alt_text(found).endswith(
        "GPU-hours: capacity 360; used 67; allocated, not used 89; unknown 12; free 192; unhealthy 24."
    )
