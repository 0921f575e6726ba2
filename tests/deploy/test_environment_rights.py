"""The permissions for environments are exactly those that Sweepbot uses; and what environments can call."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from bot.operate.check_environments import FOR_ENVIRONMENTS, FOR_SERVICES
from bot.platform.config.environments import ServiceConfig
from bot.workspaces.environments import reconciler
from bot.workspaces.environments.reconciler import EnvironmentInformer
from bot.workspaces.environments.requests import Verb
from bot.workspaces.services.snippet import Service
from k8s.api.client import KubernetesClient
from k8s.environments import Workload, labels
from k8s.objects import SERVICE_LABEL
from local.kubernetes.apiserver.api import serve
from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.store import place
from tests.bot.workspaces.environments.world import NAMESPACE, World
from tests.deploy.kustomize import DEPLOY, of, render
from tests.deploy.test_isolation import BUILD, CONNECTIONS, TRIAL, can_call
from tests.deploy.test_rights import WORKER, deployed, granted, used

SERVICES = ServiceConfig(images=("ghcr.io/lab/",))
LLM = Service(image="ghcr.io/lab/llm:3", port=8000)
POD = Workload(name="lab", namespace=NAMESPACE, owner="U1", image="x", cpu="1", memory="1Gi", gpus=0)
LAB = labels(POD)
SERVICE = LAB | {SERVICE_LABEL: "lab"}


async def test_environments_use_exactly_their_role(redis, tmp_path, monkeypatch, wait_until):
    monkeypatch.setattr(reconciler, "NAMESPACE_INTERVAL", 0.01)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    async with World(redis, services=SERVICES).started() as world:
        rights = deployed("environments/rights.yaml")
        for obj in (*deployed("base/namespaces.yaml"), *deployed("base/rights.yaml"), *rights):
            with suppress(Refused):  # the world has some of the namespaces
                world.kubernetes.create(obj)
        server = await serve(world.kubernetes)
        server.tokens["worker"] = WORKER
        server.kubeconfig(tmp_path / "kubeconfig", "worker")
        cluster = await KubernetesClient.connect()
        world.clients = replace(world.clients, cluster=cluster)
        try:
            await whole_life(world)
            await watch(world, server, wait_until)
        finally:
            await cluster.close()
            await server.close()
        here = [each for each in server.granted if each.namespace == NAMESPACE]
    assert used(here, NAMESPACE) == granted(rights[0]["rules"])
    assert used(here, NAMESPACE) == {
        key: set(verbs) for key, verbs in (FOR_ENVIRONMENTS | FOR_SERVICES).items()
    }


async def whole_life(world):
    await world.ask(Verb.START)
    await world.ready()
    await world.ask(Verb.LIST, name="")
    await world.ask(Verb.STOP)
    await world.end_pod()
    await world.ask(Verb.START, request_id="again")
    await world.ask(Verb.DELETE)
    await world.end_pod()
    await world.ask(Verb.DELETE_HOME)
    await world.ask(Verb.START, name="llm", request_id="llm", service=LLM)
    await world.ask(Verb.DELETE, name="llm", request_id="no llm")
    for pod in world.kubernetes.list("Pod", NAMESPACE):
        world.kubernetes.delete(*place(pod), grace=0)
    await world.rounds(2)
    assert world.objects() == []


async def watch(world, server, wait_until):
    configured, world.clients.config = world.clients.config, replace(world.clients.config, environments=None)
    task = asyncio.create_task(EnvironmentInformer(world.clients).run())
    await asyncio.sleep(0)
    world.clients.config = configured  # a changed file
    await wait_until(
        lambda: sum(each.verb == "watch" for each in server.granted) == 2, "pods and StatefulSets are watched"
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_network_policies_allow_environments_the_required_connections():
    folders = [render(DEPLOY / folder) for folder in ("isolation", "environments")]
    policies = [each for folder in folders for each in of(folder, "NetworkPolicy")]
    reached = [(to, port, environment) for to, port, _, _, environment in CONNECTIONS]
    ours = [((NAMESPACE, SERVICE), 9000, True), ((NAMESPACE, LAB), 8888, False)]
    for to, port, allowed in (*reached, *ours):
        assert [can_call(policies, pod, to, port, NAMESPACE) for pod in (LAB, SERVICE)] == [allowed] * 2
    for to, port, allowed in ours:
        assert [can_call(policies, pod, to, port) for pod in (BUILD, TRIAL)] == [False, allowed]
