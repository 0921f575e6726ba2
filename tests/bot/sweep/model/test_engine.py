"""The values of engines, as read through the adapter."""

from dataclasses import replace

import pytest

from bot.core.plan import BranchImage
from bot.core.record import Phase
from bot.sweep.model import engine
from tests.bot.factories import a_sweep

DIGEST = f"sha256:{'a' * 64}"


class Reader:
    """Has one trial, whose parameters are these."""

    def __init__(self, **parameters: str) -> None:
        self.given = [{"name": name, "value": value} for name, value in parameters.items()]

    async def list(self, *_: str, labels: str) -> list[dict]:
        assert "experiment=" in labels
        return [{"metadata": {"name": "t1"}, "spec": {"parameterAssignments": self.given}}]


@pytest.mark.parametrize(("compared", "branch"), [(True, "main"), (False, f"main@{DIGEST}")])
async def test_only_the_digests_of_compared_branches_are_left_out(compared, branch):
    sweep = a_sweep(Phase.RUNNING, submitted=True)
    built = {"commit": "0" * 40, "subject": "", "tag": "t", "recipe": "", "builds": (), "digest": DIGEST}
    image = BranchImage(label="main", branch="main", **built)
    plan = replace(sweep.plan, branches=(image,) if compared else ())
    reader = Reader(branch=f"main@{DIGEST}", model=f"base@{DIGEST}")
    [trial] = await engine.list_trials(sweep, plan, reader)
    assert trial.parameters == {"branch": branch, "model": f"base@{DIGEST}"}
