"""What the doctor finds about `elastic:`."""

from dataclasses import replace

import pytest

from bot.core.finding import Level
from bot.operate.check_elastic import elastic
from k8s.api.errors import ApiError
from tests.bot.factories import CONFIG, SETTINGS
from tests.bot.workspaces.elastic.factories import LLM, deployment_of

NAMED = {"metadata": {"name": "llm"}}
SCALES = NAMED | {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}}}


class Cluster:
    """One Deployment with its class; other objects by kind. KEDA isn't installed."""

    def __init__(self, value=-100, *, allowed=True, marks=None, strategy=None, spec=None, **found):
        self.value, self.allowed, self.found = value, allowed, found
        self.deployment = deployment_of(**(spec or {}))
        self.deployment["metadata"]["labels"] = marks or {}
        self.deployment["spec"] |= {"strategy": strategy} if strategy else {}

    async def get(self, ref):
        return {"Deployment": self.deployment, "PriorityClass": {"value": self.value}}[ref.kind]

    async def list(self, kind, namespace):
        if kind not in self.found and kind == "ScaledObject":
            raise ApiError(404, "", "the cluster doesn't serve scaledobjects")
        return [{"kind": kind} | each for each in self.found.get(kind, ())]

    async def create(self, review):
        return {"status": {"allowed": self.allowed}}


async def found(cluster, *deployments):
    return await elastic(cluster, SETTINGS, replace(CONFIG, elastic=deployments))


async def test_doctor_passes_a_good_deployment():
    assert {each.level for each in await found(Cluster(), LLM)} == {Level.OK}


def selecting(labels):
    return [NAMED | {"spec": {"selector": {"matchLabels": labels}}}]


@pytest.mark.parametrize(
    ("cluster", "level", "what"),
    [
        (Cluster(0), Level.BROKEN, "isn't below 0: PriorityClass sweepbot-elastic is 0"),
        (Cluster(spec={"gpus": 2}), Level.BROKEN, "requests 2 GPUs, but gpus in elastic: is 1"),
        (Cluster(allowed=False), Level.BROKEN, "missing list nodes"),
        (Cluster(HorizontalPodAutoscaler=[SCALES]), Level.BROKEN, "scaled by HorizontalPodAutoscaler llm"),
        (Cluster(ScaledObject=[SCALES]), Level.BROKEN, "also scaled by ScaledObject llm"),
        (Cluster(PodDisruptionBudget=selecting({"app": "llm"})), Level.WARNING, "PodDisruptionBudget llm"),
        (Cluster(strategy={"type": "RollingUpdate"}), Level.WARNING, "maxSurge is 25%"),
        (Cluster(marks={"argocd.argoproj.io/instance": "x"}), Level.WARNING, "Argo CD manages it"),
        (Cluster(marks={"kustomize.toolkit.fluxcd.io/name": "x"}), Level.WARNING, "Flux manages it"),
    ],
)
async def test_doctor_names_each_fault_of_an_elastic_deployment(cluster, level, what):
    faults = [each for each in await found(cluster, LLM) if each.level is not Level.OK]
    assert faults[0].level is level
    assert what in faults[0].text
    assert faults[0].fix


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(PodDisruptionBudget=selecting({"app": "asr"})),
        Cluster(HorizontalPodAutoscaler=[NAMED | {"spec": {"scaleTargetRef": {"name": "asr"}}}]),
        Cluster(strategy={"type": "Recreate"}),
    ],
)
async def test_doctor_leaves_out_what_concerns_other_deployments(cluster):
    assert {each.level for each in await found(cluster, LLM)} == {Level.OK}
