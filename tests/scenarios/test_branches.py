"""A sweep that compares branches (`branch=a,b`), with real processes: builds, Katib, the search, Slack."""

import re
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.scenarios.local_world import Instance, Sweep, instance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.features("branches"),
]

PROGRAM = """
import random, sys
values = dict(word[2:].split("=") for word in sys.argv[1:])
assert values.keys() == {{"width", "seed"}}, values
luck = random.Random(f"{label}{{values}}").gauss(0, 0.02)
print("loss=" + repr(1 + float(values["width"]) / 100 - {gain} + luck))
"""
SPACE = """\
command: python compare.py
objective: {metric: loss, goal: minimize}
metrics: {from: stdout}
trials: {max: 32, parallel: 4, max_failed: 4}
parameters:
  width: {min: 1, max: 64}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="instance")
async def _lab(tmp_path_factory: pytest.TempPathFactory, mlflow_url: str) -> AsyncIterator[Instance]:
    async with instance(tmp_path_factory.mktemp("instance"), mlflow_url) as made:
        yield made


def _publish(instance: Instance, branch: str, gain: float, **files: str) -> None:
    program = PROGRAM.format(label=branch, gain=gain)
    made = {"compare.py": program, "requirements.txt": "six\n", "sweeps/compare.yaml": SPACE, **files}
    instance.commit(f"Gain {gain}", made, branch=branch)


async def test_planted_better_branch_is_named_with_its_interval(instance: Instance) -> None:
    """Of three: one is so much worse that it leaves at half of the shared settings."""
    for branch, gain in (("plain", 0), ("ada/better", 0.1), ("worse", -1)):
        _publish(instance, branch, gain)
    sweep = await instance.sweep("branch=plain,ada/better,worse space=compare gpus=0")
    await sweep.shows("Compares `plain` @ ", "`ada/better` @ ", "✓ Image: ")
    end = await sweep.posts("Finished: 32 trials done", "8 pairs", "`worse` didn't reach the finals")
    assert re.search(r"`ada-better` is better than `plain` by [\d.]+% of `loss` \(95%: ", end)
    assert "Best:" not in sweep.story()
    _ran_in_pairs(sweep)
    await sweep.posts("Results of ", "32 trials in `results.csv`.")
    thread = instance.slack.messages(sweep.channel, sweep.parent()["ts"])
    files = {each["name"]: each for message in thread for each in message.get("files", [])}
    assert files.keys() == {f"{sweep.id}.png", "results.csv"}


def _ran_in_pairs(sweep: Sweep) -> None:
    """Each setting and seed ran on two branches or on all, each with the image of its commit."""
    ran = Counter[tuple[str, str]]()
    images = dict[str, set[str]]()
    for trial in sweep.objects("Trial"):
        values = {each["name"]: each["value"] for each in trial["spec"]["parameterAssignments"]}
        ran[values["width"], values["seed"]] += 1
        container = trial["spec"]["runSpec"]["spec"]["template"]["spec"]["containers"][0]
        images.setdefault(values["branch"].partition("@")[0], set()).add(container["image"])
        assert container["image"].endswith(f":{values['branch']}")
    assert Counter(ran.values()) == {3: 3, 2: 11, 1: 1}
    assert images.keys() == {"plain", "ada-better", "worse"}
    assert len(set.union(*images.values())) == 3
