"""A worker may die at any call: there is one environment, its home survives, and nothing else is left.

`CRASH_EVERY=1` dies at each call; a failure names the call, and CRASH_CALL repeats it.
"""

import itertools
import os
import secrets

from bot.platform.config.environments import ServiceConfig
from bot.workspaces.environments.requests import Verb
from bot.workspaces.services.snippet import Service
from local.kubernetes.apiserver.store import place
from tests.bot.factories import OWNER
from tests.bot.workspaces.environments.world import NAMESPACE, World

CALL, EVERY = os.environ.get("CRASH_CALL"), int(os.environ.get("CRASH_EVERY", "24"))
OFFSET = secrets.randbelow(EVERY)
RUNNING = {"StatefulSet": 1, "Pod": 1, "Service": 1, "Ingress": 1, "Secret": 1, "PersistentVolumeClaim": 1}

STOPPED = {kind: number for kind, number in RUNNING.items() if kind != "Pod"}


LLM = Service(image="ghcr.io/lab/llm:3", port=8000, replicas=2)
SERVING = {"Deployment": 1, "ReplicaSet": 1, "Pod": 2, "Service": 1, "Ingress": 1}
SERVICES = ServiceConfig(images=("ghcr.io/lab/",), ingress=True)


async def live(redis, crash_at=None):
    """Start, stop, start, and delete. Return what the world was like at each point."""
    await redis.flushall()
    async with World(redis, crash_at).started() as world:
        points = []
        for verb, request_id in ((Verb.START, "1"), (Verb.STOP, "2"), (Verb.START, "3"), (Verb.DELETE, "4")):
            await world.ask(verb, request_id=request_id)
            if verb is Verb.START:
                await world.ready()
            else:
                await world.end_pod()
            points.append((counts(world), world.record() and world.record().starts, world.slack.texts()[-1]))
        return world, points


def counts(world):
    kinds = [kind for kind, _ in world.objects()]
    return {kind: kinds.count(kind) for kind in kinds}


def crashes():
    return [int(CALL)] if CALL else itertools.count(1 + OFFSET, EVERY)


async def test_crash_at_any_call_leaves_one_environment_and_its_home(redis):
    calm, expected = await live(redis)
    assert expected == [
        (RUNNING, 1, "lab: Running"),
        (STOPPED, 1, f"lab: Stopped by <@{OWNER}>"),
        (RUNNING, 2, "lab: Running"),
        ({"PersistentVolumeClaim": 1}, None, f"lab: Deleted by <@{OWNER}>"),
    ]
    assert calm.clock.calls > 30
    for crash_at in crashes():
        hurt, points = await live(redis, crash_at)
        if hurt.clock.crash_at:  # this life had fewer calls
            break
        assert points == expected, f"died at call {crash_at}"
        assert len(hurt.slack.messages) <= 2, f"died at call {crash_at}: only one message can be repeated"
        assert await hurt.waiting() == [], f"died at call {crash_at}"


async def live_service(redis, crash_at=None):
    """Start, stop, start, and delete a service. Return what the world was like at each point."""
    await redis.flushall()
    async with World(redis, crash_at, services=SERVICES).started() as world:
        points = []
        for verb, service in ((Verb.START, LLM), (Verb.STOP, None), (Verb.START, None), (Verb.DELETE, None)):
            await world.ask(verb, service=service, request_id=f"request-{len(points)}")
            for pod in world.kubernetes.list("Pod", NAMESPACE):
                if verb is Verb.START:
                    await world.report_pod(pod, "PodScheduled", "PodReadyToStartContainers", "Ready")
                else:
                    world.kubernetes.delete(*place(pod), grace=0)
            await world.rounds(3)
            points.append((counts(world), world.slack.texts()[-1]))
        return world, points


async def test_crash_at_any_call_leaves_one_service_and_then_nothing(redis):
    calm, expected = await live_service(redis)
    stopped = {kind: number for kind, number in SERVING.items() if kind != "Pod"}
    assert expected == [
        (SERVING, "lab: Running"),
        (stopped, f"lab: Stopped by <@{OWNER}>"),
        (SERVING, "lab: Running"),
        ({}, f"lab: Deleted by <@{OWNER}>"),
    ]
    assert calm.clock.calls > 30
    for crash_at in crashes():
        hurt, points = await live_service(redis, crash_at)
        if hurt.clock.crash_at:  # this life had fewer calls
            break
        assert points == expected, f"died at call {crash_at}"
        assert len(hurt.slack.messages) <= 2, f"died at call {crash_at}: only one message can be repeated"
        assert await hurt.waiting() == [], f"died at call {crash_at}"
