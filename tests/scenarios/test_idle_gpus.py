"""Real processes: an idle trial is reported in its sweep's thread, and each button has its effect."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bot.watch.idle.messages import CANCEL_IDLE, SNOOZE_4, UTILIZATION
from tests.scenarios.local_world import Instance, Sweep, instance, shown, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SPACE = """\
command: python tiny.py --wait=1
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 2}
watch: {idle_minutes: 0.1, first_use_minutes: 0.1}
parameters:
  width: {min: 1, max: 2}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="instance")
async def _lab(tmp_path_factory: pytest.TempPathFactory, mlflow_url: str) -> AsyncIterator[Instance]:
    async with instance(tmp_path_factory.mktemp("instance"), mlflow_url) as made:
        made.commit("Add a space whose trainings wait", {"sweeps/asleep.yaml": SPACE})
        yield made


def warnings(sweep: Sweep, *words: str) -> list[dict[str, Any]]:
    parent = sweep.parent()
    thread = sweep.instance.slack.messages(sweep.channel, parent["ts"])[1:] if parent else []
    return [m for m in thread if m.get("blocks") and all(word in shown(m) for word in words)]


def current(sweep: Sweep, trial: str) -> list[dict[str, Any]]:
    """Warnings of a condition that lasts; a condition that changed has an older message beside."""
    return warnings(sweep, f"{trial}`: 1 GPU")


async def press(sweep: Sweep, action: str, trial: str, person: str = "ada") -> None:
    message = current(sweep, trial)[-1]  # a repeat is posted before the older message is deleted
    assert await sweep.instance.slack.click(person, sweep.channel, message["ts"], action) is None


async def test_idle_trial_is_reported_snoozed_and_cancelled_by_button(instance: Instance) -> None:
    sweep = await instance.sweep("branch=main gpus=1 space=asleep")

    def trials() -> list[str]:
        return [trial["metadata"]["name"] for trial in sweep.objects("Trial")]

    await until(lambda: len(trials()) == 2, "both trials run", sweep.story)
    kept, ended = trials()
    await until(lambda: current(sweep, kept) and current(sweep, ended), "both are flagged", sweep.story)
    await press(sweep, SNOOZE_4, kept)
    await until(lambda: warnings(sweep, kept, "Snoozed by"), "who snoozed it is shown", sweep.story)
    await until(lambda: warnings(sweep, ended, "*Still idle.*"), "the other warning is repeated", sweep.story)
    await until(lambda: len(current(sweep, ended)) == 1, "the older message is deleted", sweep.story)
    assert len(current(sweep, kept)) == 1
    await press(sweep, UTILIZATION, kept, person="grace")
    await until(
        lambda: [m for m in instance.slack.ephemerals("grace") if "(dcgm-exporter):" in m["text"]],
        "grace sees the utilization",
    )
    await press(sweep, CANCEL_IDLE, ended)
    await sweep.posts(":no_entry_sign:", ended, "Its GPUs are free")
    await until(lambda: warnings(sweep, ended, "ended"), "its warning is over", sweep.story)
    assert current(sweep, ended) == []
    assert [pod for pod in sweep.pods_alive() if pod.startswith(ended)] == []
    assert [pod for pod in sweep.pods_alive() if pod.startswith(kept)] != []
    instance.hold.unlink()
    await sweep.posts("Finished:")
    await until(lambda: warnings(sweep, kept, "ended"), "so is the other's", sweep.story)
    assert current(sweep, kept) == []
