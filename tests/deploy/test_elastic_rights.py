"""The permissions of deploy/elastic are exactly those that Sweepbot uses, for the named Deployment only."""

from dataclasses import replace

import pytest

from bot.core.finding import Level
from bot.operate.check_elastic import FOR_ELASTIC, FOR_ELASTIC_DEPLOYMENT, elastic
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.objects import Ref
from local.kubernetes.apiserver.api import serve
from tests.bot.factories import SETTINGS
from tests.bot.workspaces.elastic.factories import SERVING
from tests.bot.workspaces.elastic.world import PRIORITY, ElasticWorld
from tests.deploy.kustomize import DEPLOY, render
from tests.deploy.test_rights import WORKER, deployed, granted

ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount"}
REPORTING = ("authorization.k8s.io", "selfsubjectaccessreviews")


def rules(kind):
    return next(each for each in deployed("elastic/rights.yaml") if each["kind"] == kind)["rules"]


@pytest.fixture
async def world(tmp_path, monkeypatch):
    """A world whose worker calls the API server with the permissions of deploy/elastic."""
    made = ElasticWorld()
    made.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweepbot"}})
    for obj in (*deployed("base/rights.yaml"), *deployed("elastic/rights.yaml")):
        made.store.create(obj)
    made.server = await serve(made.store)
    made.server.tokens["worker"] = WORKER
    made.server.kubeconfig(tmp_path / "kubeconfig", "worker")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    made.clients = replace(made.clients, cluster=await KubernetesClient.connect())
    yield made
    await made.clients.cluster.close()
    await made.server.close()


async def test_elastic_replicas_use_exactly_their_roles(world, wait_until):
    patient = {"metadata": {"name": "patient"}, "value": 1000, "preemptionPolicy": "Never"}
    world.store.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"} | patient)
    world.clients.config = replace(
        world.clients.config, elastic=(replace(world.clients.config.elastic[0], min=4),)
    )
    async with world.started(), world.led():
        await wait_until(lambda: len(world.running()) == 4, "the minimum runs")
        world.clients.config = replace(
            world.clients.config, elastic=(replace(world.clients.config.elastic[0], min=0),)
        )
        world.start_pod(gpus=3, priorityClassName="patient")
        await wait_until(lambda: world.replicas == 1, "three replicas are given away")
        findings = await elastic(world.clients.cluster, SETTINGS, world.clients.config)
        assert {each.level for each in findings} == {Level.OK}, findings
    used = {}
    for each in world.server.granted:
        used.setdefault(each.namespace, {}).setdefault((each.group, each.resource), set()).add(each.verb)
    everywhere, here = used.pop(""), used.pop(SERVING)
    assert everywhere.pop(REPORTING) == {"create"}
    assert (
        everywhere == granted(rules("ClusterRole")) == {key: {*verbs} for key, verbs in FOR_ELASTIC.items()}
    )
    wanted = {key: {*verbs} for key, verbs in FOR_ELASTIC_DEPLOYMENT.items()}
    assert wanted == granted(rules("Role"))
    assert here == wanted
    assert used == {"sweeps": {("", "configmaps"): {"create", "get", "patch"}}}


async def test_role_covers_no_other_deployment(world):
    for name, subresource in (("asr", "scale"), ("llm", "")):  # of llm, only the scale
        ref, body = Ref("Deployment", SERVING, name), {"spec": {"replicas": 0}}
        with pytest.raises(ApiError) as error:
            await world.clients.cluster.merge(ref, body, subresource=subresource)
        assert error.value.status == 403


def test_component_renders_with_kubectl():
    kinds = sorted(each["kind"] for each in render(DEPLOY / "elastic"))
    assert kinds == ["ClusterRole", "ClusterRoleBinding", "PriorityClass", "Role", "RoleBinding"]


def test_deployed_priority_class_is_the_tested_one():
    (found,) = deployed("elastic/priority.yaml")
    assert {key: found[key] for key in ("value", "preemptionPolicy", "metadata")} == {
        key: PRIORITY[key] for key in ("value", "preemptionPolicy", "metadata")
    }
