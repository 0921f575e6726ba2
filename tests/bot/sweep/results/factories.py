"""Results of ended sweeps, for tests."""

from dataclasses import replace
from datetime import timedelta

from bot.core.record import Phase
from bot.sweep.results.models import SweepResults, TrialResult
from k8s.engine import TrialState
from tests.bot.factories import COMMIT, NOW, OWNER, SPACE

SWEEP = "lr-brave-otter"


def a_result(name="t1", value=0.5, state=TrialState.SUCCEEDED, **facts):
    known = {"parameters": {"lr": "0.01", "layers": "2", "optimizer": "adam"}}
    return TrialResult(name=f"{SWEEP}-{name}", state=state, value=value, **known | facts)


def some_results(*trials, **facts):
    known = {
        "sweep": SWEEP,
        "request_id": "trigger-1",
        "phase": Phase.SUCCEEDED,
        "owner": OWNER,
        "channel": "C1",
        "repo_url": "https://git.example/digits.git",
        "branch": "main",
        "commit": COMMIT,
        "space": replace(SPACE, max_trials=max(len(trials), 1)),
        "gpus": 1,
        "started": NOW,
        "ended": NOW + timedelta(hours=2),
    }
    return SweepResults(**known | {"trials": trials} | facts)
