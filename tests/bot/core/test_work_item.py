"""Work items, as stored in Redis, named in logs, and typed after `/sweep release`."""

import pytest

from bot.core.work_item import ItemKind, WorkItem


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (WorkItem.sweep("lr-brave-otter"), "lr-brave-otter"),
        (WorkItem(ItemKind.IDLE_GPUS, "gpus"), "watch: gpus"),
        (
            WorkItem(ItemKind.GIT_NAMES, "https://git/a.git my branch: x"),
            "look: https://git/a.git my branch: x",
        ),
        (WorkItem("newer", "x"), "newer: x"),
    ],
)
def test_work_item_round_trips(item, text):
    assert str(item) == text
    assert WorkItem.parse(text) == item


def test_work_item_of_a_job_never_parses_as_a_sweep():
    assert {WorkItem.parse(str(WorkItem(kind, "lr-brave-otter"))).kind for kind in ItemKind} == set(ItemKind)
