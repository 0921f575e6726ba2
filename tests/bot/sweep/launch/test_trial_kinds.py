"""Trials of several nodes by an operator: refused before a build where the cluster can't run them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.core.errors import UserError
from bot.core.flags import FlagStyle
from bot.sweep.form.preview import facts
from bot.sweep.launch.clusters import check_trial_kind, kind_refusal
from bot.sweep.launch.plan import plan
from k8s.api.errors import ApiError
from k8s.katib.pod_shape import PodShape
from k8s.trial_kinds import JOB, PYTORCH_JOB, TRAIN_JOB
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


async def test_check_trial_kind_asks_the_namespace_of_the_trials_once():
    missing = SimpleNamespace(trials=Cluster(ApiError(404, "", "the cluster doesn't serve it")))
    why = await kind_refusal(TRAIN_JOB, "vision", missing)
    assert why == "Kubeflow Trainer 2 isn't installed in the cluster"
    assert missing.trials.listed == [("TrainJob", "vision")]
    cluster = Cluster()
    await check_trial_kind(planned(4), SimpleNamespace(trials=cluster))
    assert cluster.listed == [("PyTorchJob", "vision")]
    cluster = Cluster(ApiError(404, "", ""))
    await check_trial_kind(planned(1), SimpleNamespace(trials=cluster))
    assert await kind_refusal(JOB, "vision", SimpleNamespace(trials=cluster)) == ""
    assert cluster.listed == []
    with pytest.raises(ApiError):
        await kind_refusal(PYTORCH_JOB, "vision", SimpleNamespace(trials=Cluster(ApiError(503, "", ""))))
    assert dict(facts(REQUEST, planned(4), CONFIG))["Trial kind"] == "PyTorchJob"
    assert "Trial kind" not in dict(facts(REQUEST, planned(1), CONFIG))


def variables(count, flags=FlagStyle.DOTS):
    """A plan of TrainJobs with `count` variables in `env:`, or that many parameters."""
    names = [f"V{number}" for number in range(count)]
    space = ORDER.space
    more = (
        {"fixed": dict.fromkeys(names, "1")} if flags is FlagStyle.ENV else {"env": dict.fromkeys(names, "1")}
    )
    order = replace(
        ORDER,
        request=replace(REQUEST, nodes=4),
        shape=PodShape(multi_node=TRAIN_JOB),
        space=replace(space, flags=flags, **more),
    )
    return plan(order, SETTINGS)


def env_of(made):
    return made.experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["trainer"]["env"]


@pytest.mark.parametrize(
    ("flags", "fix"),
    [(FlagStyle.DOTS, "Use fewer `secrets:`"), (FlagStyle.ENV, "as arguments, without `flags: env`")],
)
async def test_check_trial_kind_refuses_more_variables_than_a_train_job_can_have(flags, fix):
    clients = SimpleNamespace(trials=Cluster())
    own = len(env_of(variables(0, flags)))
    most = variables(128 - own, flags)
    assert len(env_of(most)) == 128
    await check_trial_kind(most, clients)
    with pytest.raises(UserError, match=r"at most 128 variables\. This sweep has 129") as refused:
        await check_trial_kind(variables(129 - own, flags), clients)
    assert fix in str(refused.value)


async def test_check_trial_kind_does_not_count_variables_of_other_kinds():
    many = replace(ORDER.space, env={f"V{number}": "1" for number in range(200)})
    order = replace(ORDER, request=replace(REQUEST, nodes=4), space=many)
    for kind in (JOB, PYTORCH_JOB):
        made = plan(replace(order, shape=PodShape(multi_node=kind)), SETTINGS)
        await check_trial_kind(made, SimpleNamespace(trials=Cluster()))
