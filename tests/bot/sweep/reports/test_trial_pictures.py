"""The last pictures of a trial: from a training's event files to files for Slack, whatever they contain."""

import asyncio
import json
from base64 import b64encode
from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image

from bot.sweep.reports import trial_pictures as module
from bot.sweep.reports.trial_pictures import read_pictures, trial_pictures
from k8s.api.errors import ApiError
from k8s.pods import Pod
from reader.events import Picture
from reader.pictures import MAX_PICTURES, PART, Pictures
from tests.bot.factories import PLAN
from tests.cases import cases

POD = Pod(name="t-x", job="t", node="n1", finished=True)
SPEC = PLAN.experiment["spec"] | {"metricsCollectorSpec": {"collector": {"kind": "Push"}}}
WITH_READER = replace(PLAN, experiment={**PLAN.experiment, "spec": SPEC})


SCRIPT = b"<script>alert()</script>"
NOISE = Image.effect_noise((300, 200), 90).convert("RGB")


def encoded(kind, image=NOISE, **more):
    file = BytesIO()
    image.save(file, kind, **more)
    return file.getvalue() + SCRIPT


PNG = encoded("PNG", icc_profile=SCRIPT)
FRAMES = [Image.new("RGB", NOISE.size, color) for color in ("red", "blue")]
GIF = encoded("GIF", save_all=True, append_images=FRAMES, comment=SCRIPT)


def printed(*pictures):
    kept = Pictures()
    for name, step, content in pictures:
        kept.add(name, Picture(name, step, 1.0, content))
    return "\n".join(['{"metric": "loss", "points": []}', *kept.lines(), "last words"]) + "\n"


class Kubelet:
    def __init__(self, text):
        self.text = text

    async def raw_log(self, namespace, pod, options):
        if not self.text:
            raise ApiError(404, "", "gone")
        assert (pod, options["container"]) == ("t-x", "metrics-reader")
        return self.text


async def shown(text, pods=(POD,), plan=WITH_READER, turn=None):
    return await trial_pictures("t", pods, plan, Kubelet(text), turn or asyncio.Lock())


async def test_pictures_are_read_from_the_log_and_encoded_anew():
    text = printed(
        ("samples", 3, b"earlier"), ("samples", 7, PNG), ("val/video", 9, GIF), ("junk", 1, b"GIF89a...")
    )
    assert len(PNG) > 2 * PART
    assert all(len(line) < 2**14 for line in text.splitlines())
    still, video = await shown(text)
    assert (still.name, video.name) == ("samples-7.png", "val-video-9.gif")
    assert still.alt == "Picture samples of trial t at step 7"
    for file, content, frames in ((still, PNG, 1), (video, GIF, 3)):
        assert SCRIPT in content
        assert SCRIPT not in file.content
        with Image.open(BytesIO(file.content)) as new, Image.open(BytesIO(content)) as old:
            assert (new.size, getattr(new, "n_frames", 1)) == (old.size, frames)
    text = printed(("samples", 7, PNG))
    assert await shown("") == []
    assert await shown(text, [replace(POD, finished=False)]) == []
    assert await shown(text, [replace(POD, index=1)]) == []
    assert await shown(text, plan=PLAN) == []
    many = "\n".join(part(picture=f"p{number}") for number in range(100))
    assert len(read_pictures(many)) == module.MAX_PICTURES == MAX_PICTURES
    half = part(parts=2)
    assert read_pictures("\n".join([half, half, part(part=2, parts=2)])) == {"a": (1, b"xx")}


HOSTILE = {
    "more pixels than are decoded": encoded("PNG", Image.new("L", (5_000, 4_000))),
    "no picture": b"<svg onload='x()'/>",
    "another format": encoded("TIFF"),
    "half a picture": PNG[: len(PNG) // 2],
    "nothing": b"",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_picture_costs_only_itself(content):
    files = await shown(printed(("../../etc/x.png", 1, content), ("good", 2, PNG)))
    assert [file.name for file in files] == ["good-2.png"]


def part(**changes):
    about = {"picture": "a", "step": 1, "part": 1, "parts": 1, "data": b64encode(b"x").decode()}
    return json.dumps(about | changes)


@cases(
    "line",
    [
        part(parts=10**9),
        part(part=0),
        part(part=2, parts=2),
        part(data="?"),
        part(step="x"),
        part(part=1e400),
        '{"picture"',
        '{"picture": ' + "[" * 20_000,
    ],
)
def test_lines_that_are_no_whole_picture_are_ignored(line):
    assert read_pictures(f"{line}\n{part(picture='b')}") == {"b": (1, b"x")}


async def test_pictures_are_those_of_the_last_pod_of_a_trial_that_was_evicted():
    [file] = await shown(printed(("samples", 7, PNG)), pods=(replace(POD, name="t-y"), POD))
    assert file.name == "samples-7.png"


def test_picture_with_a_name_that_is_not_utf8_is_read():
    assert read_pictures(part(picture="caf\udce9.png")) == {"caf?.png": (1, b"x")}


async def test_picture_that_takes_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "ENCODE_TIMEOUT", 0.0)
    assert await asyncio.wait_for(shown(printed(("good", 2, PNG))), 60) == []


async def test_pictures_are_encoded_one_at_a_time(monkeypatch):
    running, most = 0, 0

    async def counted(*_):
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0)
        running -= 1
        return "png", PNG

    monkeypatch.setattr(module, "run_apart", counted)
    text, turn = printed(("a", 1, PNG), ("b", 2, PNG)), asyncio.Lock()
    found = await asyncio.gather(*[shown(text, turn=turn) for _ in range(8)])
    assert [len(files) for files in found] == [2] * 8
    assert most == 1
