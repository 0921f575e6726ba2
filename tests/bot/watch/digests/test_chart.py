"""The digest's chart and its alternative text."""

from dataclasses import replace

from bot.watch.digests.chart import alt_text, picture, png
from tests.bot.watch.digests.days import BERLIN, of


async def test_png_of_a_day_is_an_image() -> None:
    assert (await png(of())).startswith(b"\x89PNG")


def test_picture_of_a_team_says_that_it_shows_all() -> None:
    titles = [picture(of(replace(BERLIN, team=team))).axes[0].get_title("left") for team in ("", "vision")]
    assert titles == ["GPUs, Fri, Nov 20", "GPUs of all teams, Fri, Nov 20"]


def test_picture_draws_the_capacity() -> None:
    found = of()
    handles, labels = picture(found).axes[0].get_legend_handles_labels()
    line = dict(zip(labels, handles, strict=True))["capacity"]
    assert list(line.get_data().values) == [15] * 24
    drawn = picture(found)
    drawn.draw_without_rendering()
    assert [drawn.axes[0].get_xlabel(), drawn.axes[0].get_ylabel()] == [
        "Hour, Europe/Berlin",
        "GPUs, hourly mean",
    ]
    [legend] = drawn.legends
    assert legend.get_window_extent().x0 > 0
    assert legend.get_window_extent().x1 < drawn.bbox.width
    assert alt_text(found).endswith(
        "GPU-hours: capacity 360; used 67; pauses 17; idle 72; unknown 12; free 192; unhealthy 24."
    )
