"""Trials of several nodes as PyTorchJobs: refused before a build where the cluster can't run them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.core.errors import UserError
from bot.launch.plan import plan
from bot.launch.preview import facts
from bot.launch.trial_kinds import check_trial_kind, kind_refusal
from k8s.errors import ApiError
from k8s.katib.trial_pod import PodShape
from k8s.trial_kinds import JOB, PYTORCH_JOB
from tests.bot.factories import CONFIG, ORDER, REQUEST, SETTINGS


class Cluster:
    def __init__(self, error=None):
        self.error, self.listed = error, []

    async def list(self, kind, namespace, *, labels):
        self.listed.append((kind, namespace))
        assert labels
        if self.error:
            raise self.error
        return []


def planned(nodes):
    order = replace(
        ORDER,
        request=replace(REQUEST, nodes=nodes),
        shape=PodShape(multi_node=PYTORCH_JOB),
        namespace="vision",
    )
    return plan(order, SETTINGS)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ApiError(404, "", "the cluster doesn't serve it"), "Training Operator isn't installed"),
        (ApiError(403, "Forbidden", "no"), "Sweepbot has no permission to list PyTorchJobs"),
    ],
)
async def test_check_trial_kind_refuses_what_the_cluster_does_not_serve(error, why):
    with pytest.raises(UserError, match=why) as refused:
        await check_trial_kind(planned(4), SimpleNamespace(trials=Cluster(error)))
    assert "nodes=4 can't run: `trials.multi_node` makes the trials PyTorchJobs, but" in str(refused.value)
    assert "*Fix:*" in str(refused.value)


async def test_check_trial_kind_asks_the_namespace_of_the_trials_and_passes():
    cluster = Cluster()
    await check_trial_kind(planned(4), SimpleNamespace(trials=cluster))
    assert cluster.listed == [("PyTorchJob", "vision")]


async def test_check_trial_kind_costs_no_request_with_jobs():
    cluster = Cluster(ApiError(404, "", ""))
    await check_trial_kind(planned(1), SimpleNamespace(trials=cluster))
    assert await kind_refusal(JOB, "vision", SimpleNamespace(trials=cluster)) == ""
    assert cluster.listed == []


async def test_kind_refusal_of_an_outage_is_an_error():
    with pytest.raises(ApiError):
        await kind_refusal(PYTORCH_JOB, "vision", SimpleNamespace(trials=Cluster(ApiError(503, "", ""))))


def test_plan_shows_the_kind_of_trials_that_are_no_jobs():
    assert dict(facts(REQUEST, planned(4), CONFIG))["Trial kind"] == "PyTorchJob"
    assert "Trial kind" not in dict(facts(REQUEST, planned(1), CONFIG))
