"""Pictures are drawn beside the event loop, and an error costs only the picture."""

import asyncio
from dataclasses import replace

import pytest

from bot.core.space import Parameter
from bot.sweep.charts import drawing
from bot.sweep.charts.drawing import DrawingError, Picture, Pictures, drawn, masked
from bot.text.masking import Mask
from tests.bot.factories import SPACE
from tests.bot.sweep.results.factories import SWEEP, a_result, some_results

RESULTS = some_results(a_result("t1"), a_result("t2", 0.4), best=f"{SWEEP}-t2")


class Drawer:
    """Draws when it is allowed to."""

    def __init__(self, error=None):
        self.started = asyncio.Event()
        self.may_draw, self.drawn, self.woken, self.error = asyncio.Event(), [], asyncio.Queue(), error

    async def wake(self, sweep):
        await self.woken.put(sweep)

    async def draw(self, results):
        self.drawn.append(results.sweep)
        self.started.set()
        await self.may_draw.wait()
        if self.error:
            raise self.error
        return Picture("facts", b"PNG")


async def test_get_never_waits_and_the_sweep_is_woken_when_its_picture_is_drawn():
    drawer = Drawer()
    pictures = Pictures(drawer.wake, Mask(), drawer.draw)
    assert pictures.get(RESULTS) is None
    assert pictures.get(RESULTS) is None
    drawer.may_draw.set()
    assert await drawer.woken.get() == SWEEP
    assert pictures.get(RESULTS) == Picture("facts", b"PNG")
    assert drawer.drawn == [SWEEP]
    pictures.forget(RESULTS)
    assert pictures.get(RESULTS) is None
    await pictures.close()


@pytest.mark.parametrize(
    "error", [DrawingError("killed"), TimeoutError(), OSError("no processes left"), ValueError("a bug")]
)
async def test_picture_that_cannot_be_drawn_is_empty(error):
    drawer = Drawer(error)
    pictures = Pictures(drawer.wake, Mask(), drawer.draw)
    pictures.get(RESULTS)
    drawer.may_draw.set()
    await drawer.woken.get()
    assert pictures.get(RESULTS) == Picture("", b"")


async def test_one_picture_is_drawn_at_a_time():
    drawer = Drawer()
    pictures = Pictures(drawer.wake, Mask(), drawer.draw)
    others = [replace(RESULTS, sweep=f"lr-{number}") for number in range(3)]
    for each in others:
        pictures.get(each)
    await drawer.started.wait()
    assert len(drawer.drawn) == 1
    drawer.may_draw.set()
    assert {await drawer.woken.get() for _ in others} == {each.sweep for each in others}


def test_secrets_are_masked_in_a_picture():
    token = "hf_" + "a" * 30
    space = replace(SPACE, parameters=(Parameter(name="data", values=(token, "b")),))
    results = some_results(a_result(parameters={"data": token}), space=space)
    assert "hf_" not in repr(masked(results, Mask()))


async def test_process_gets_no_secret_and_draws_a_picture(monkeypatch):
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    started = []

    async def create(*command, **options):
        started.append(options["env"])
        return await asyncio.subprocess.create_subprocess_exec(*command, **options)

    monkeypatch.setattr(drawing.asyncio, "create_subprocess_exec", create)
    picture = await drawn(RESULTS)
    assert picture.png.startswith(b"\x89PNG")
    assert picture.alt.startswith(f"Results of {SWEEP}: 2 trials, 2 with a finite val_loss from 0.4 to 0.5.")
    assert "SLACK_BOT_TOKEN" not in started[0]


async def test_error_of_the_process_is_a_drawing_error(monkeypatch):
    monkeypatch.setattr(drawing, "dump", lambda _: b"not a stored form")
    with pytest.raises(DrawingError, match=r"exit code 1: .*Error"):
        await drawn(RESULTS)
