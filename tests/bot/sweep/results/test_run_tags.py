"""The tags that MLflow reads from the environment of a trial."""

import json

from bot.sweep.results import run_tags
from k8s.katib.training import TRIAL_NAME

FACTS = {"sweep": "lr-otter", "owner": "ada", "owner_id": "U1", "team": "", "repository": "https://git/x"}


def test_tags_are_what_is_known_and_a_placeholder_for_the_trial():
    tags = run_tags.planned(**FACTS, branch="main", commit="ab")
    assert run_tags.TEAM not in tags
    assert tags[run_tags.TRIAL] == tags[run_tags.RUN_NAME] == TRIAL_NAME
    branch = 'a"b${trialParameters.lr}$(HOME)$$\n'
    encoded = run_tags.encode(run_tags.planned(**FACTS, branch=branch, commit="ab"))
    assert encoded.replace(TRIAL_NAME, "").count("$") == 0
    assert json.loads(encoded.replace(TRIAL_NAME, "lr-otter-x1"))[run_tags.BRANCH] == branch
    assert json.loads(encoded.replace(TRIAL_NAME, "lr-otter-x1"))[run_tags.TRIAL] == "lr-otter-x1"
    planned = run_tags.encode(run_tags.planned(**FACTS, branch="$b", commit="ab"))
    added = run_tags.added(planned, run_tags.submitted("lr-otter", "r/i@sha256:12", "https://slack/p1"))
    tags = json.loads(added)
    assert (tags[run_tags.BRANCH], tags[run_tags.IMAGE]) == ("$b", "r/i@sha256:12")
    assert tags[run_tags.NOTE] == "A trial of sweep [lr-otter](https://slack/p1)."
    assert run_tags.THREAD not in run_tags.submitted("lr-otter", "r/i@sha256:12", "")
