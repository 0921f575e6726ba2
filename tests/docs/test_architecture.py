"""docs/architecture.md names the route of a sweep in its order, and files that exist."""

import re

import pytest

from bench.route import DOCUMENT, ROOT, faults, lines, route, traced
from bot.core.record import Phase

TEXT = DOCUMENT.read_text()


async def test_route_equals_that_of_a_sweep_and_its_figures(redis):
    request, whole_way, sweep = await traced(redis)
    named, passed = route(), whole_way.files
    assert sweep.phase is Phase.SUCCEEDED
    assert faults(named, passed) == []
    (files, length), (all_files, all_lines) = re.findall(r"(\d+) files, about ([\d,]+) lines", TEXT)
    assert int(files) == len(named)
    stated = [int(each.replace(",", "")) for each in (length, all_files, all_lines)]
    assert stated == pytest.approx([lines(named), len(passed), lines(passed)], rel=0.1)
    assert f"climbs in {len(request.climbs)} function, " in " ".join(TEXT.split())
    assert f"the whole way in {len(whole_way.climbs)}: " in TEXT


PASSED = ["bot/worker.py", "bot/sweep/launch/create.py", "bot/sweep/sweeps/reconciler.py"]


@pytest.mark.parametrize(
    ("named", "fault"),
    [
        (["bot/worker.py", "bot/watch/idle/monitor.py"], "bot/watch/idle/monitor.py is not passed"),
        (PASSED[::-1], f"the order of first calls is {', '.join(PASSED)}"),
    ],
)
def test_route_with_unused_or_unlisted_files_is_found(named, fault):
    assert any(fault in each for each in faults(named, PASSED))


def test_named_files_and_folders_exist():
    names = re.findall(r"`((?:bot|handlers|k8s|reader|search|deploy|tests)/[\w/.]*)`", TEXT)
    assert len(names) > 40
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_files_named_without_their_folder_are_beside_or_below_one_of_their_row():
    for row in re.findall(r"^\|.*", TEXT, re.MULTILINE):
        places = [ROOT / name for name in re.findall(r"`([\w/]+/(?:\w+\.py)?)`", row)]
        folders = [place.parent if place.suffix else place for place in places]
        for name in re.findall(r"`(\w+\.py)`", row):
            assert not folders or any(any(folder.rglob(name)) for folder in folders), f"{name} in {row}"


def test_named_functions_and_constants_are_in_their_files():
    named = re.findall(r"`(\w+)` in `(\w+/[\w/]+\.py)`", TEXT)
    assert len(named) > 10
    assert [each for each in named if each[0] not in (ROOT / each[1]).read_text()] == []
