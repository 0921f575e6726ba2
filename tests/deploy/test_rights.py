"""The permissions that deploy/ grants are exactly those Sweepbot uses.

Whole sweeps and the watches of a worker pass the local API server, which enforces the Role.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from bot.core.commands import Action
from bot.core.commands import Command as Ordered
from bot.core.record import Phase
from bot.core.work_item import QUEUE
from bot.platform.config.policy import parse_config
from bot.sweep.answers import queue_job
from bot.sweep.sweeps.informer import SweepInformer, watched_in_trials
from bot.sweep.sweeps.retention import SweepGc
from bot.sweep.sweeps.transient_errors import PLAN_TIMEOUT
from k8s.api.client import KubernetesClient
from k8s.objects import BUILD_LABEL
from k8s.rbac import FOR_BUILDS, FOR_RECORDS, FOR_TRIALS
from local import kueue, manifests
from local.kubernetes.apiserver.api import serve
from local.kubernetes.apiserver.kinds import Refused, refusal
from local.kubernetes.apiserver.rbac import AccessRequest
from tests.bot.factories import NOW, OWNER, REQUEST, a_sweep
from tests.scenarios.moments import sample
from tests.scenarios.queued_sweep import POLICY, create_queues
from tests.scenarios.sweep_in_memory import OPERATORS, SWEEP, Clock, SimulatedSweep
from tests.scenarios.test_any_crash import STORIES

DEPLOY = Path(__file__).parents[2] / "deploy"
WORKER = "system:serviceaccount:sweepbot:sweepbot-work"
EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
# Together they use all rights but those of builds, watches, the garbage collection, queues, and claims.
WITH_TRIALS = (
    "extended",
    "several nodes, cancelled while running",
    "PyTorchJobs, one drained",
    "TrainJobs, cancelled while running",
)
ON_NODES = {"sweep": {"request": replace(REQUEST, nodes=3)}}
PER_KIND: tuple[dict[str, Any], ...] = ({}, ON_NODES | {"pytorch": True}, ON_NODES | {"trainer": True})
WITH_BUILDS = ("calm", "bad build", "dependencies and code", "two builds cancelled")
CLAIMS = """\
repositories: {digits: {url: https://git.example/digits.git}}
profiles: {h100: {gpus: 1, device_class: gpu.nvidia.com}}
pools: {h100: {gpus: 8, resource: deviceclass.resource.kubernetes.io/gpu.nvidia.com}}
"""
Rights = dict[tuple[str, str], set[str]]


def deployed(file: str) -> list[dict[str, Any]]:
    return manifests.read(DEPLOY / file)


def role() -> dict[str, Any]:
    return next(obj for obj in deployed("base/rights.yaml") if obj["kind"] == "Role")


def granted(rules: Iterable[dict[str, Any]]) -> Rights:
    found: Rights = defaultdict(set)
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found[group, resource] |= set(rule["verbs"])
    return found


def used(commands: Iterable[AccessRequest], namespace: str = "sweeps") -> Rights:
    found: Rights = defaultdict(set)
    for command in commands:
        assert (command.user, command.namespace) == (WORKER, namespace)
        found[command.group, command.resource].add(command.verb)
    return found


class Guarded(SimulatedSweep):
    """A simulation whose worker calls the API server, where its Role has these rules."""

    def __init__(self, redis: Redis, folder: Path, rules: list[dict[str, Any]], **scenario: Any) -> None:
        super().__init__(redis, Clock(None), **scenario)
        self.folder, self.rules = folder, rules

    @asynccontextmanager
    async def started(self) -> AsyncIterator["Guarded"]:
        async with super().started():
            await self.move_in()
            try:
                yield self
            finally:
                await self.clients.cluster.close()
                await self.server.close()

    async def move_in(self) -> None:
        for obj in (*deployed("base/namespaces.yaml"), *deployed("base/rights.yaml")):
            if obj["kind"] == "Role":
                obj["rules"] = self.rules
            with suppress(Refused):  # a simulation starts with one of the namespaces
                self.kubernetes.create(obj)
        self.server = await serve(self.kubernetes)
        self.server.logs = lambda *_: "the last lines"
        self.server.tokens["worker"] = WORKER
        self.server.kubeconfig(self.folder / "kubeconfig", "worker")
        self.clients = replace(self.clients, cluster=await KubernetesClient.connect())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return tmp_path


async def watches(simulation: Guarded, wait_until: Any, *, namespaces: int = 1) -> None:
    """What the watches of a worker do, until they follow every kind."""

    def followed() -> bool:
        followed = [command for command in simulation.server.granted if command.verb == "watch"]
        return len(followed) == len(watched_in_trials(simulation.clients.config)) * namespaces

    async with simulation.started():
        waking = asyncio.create_task(SweepInformer(simulation.redis, simulation.clients).run())
        await wait_until(followed, "every kind is watched")
        waking.cancel()
        await asyncio.gather(waking, return_exceptions=True)


async def leaves(simulation: Guarded) -> None:
    """What is done when the days of an ended sweep are over."""
    async with simulation.started():
        while not ((await simulation.record()).durable_phase or Phase.RECEIVED).final:  # posted and stored
            await simulation.round()
        clients = copy(simulation.clients)
        clients.settings = clients.settings.model_copy(update={"sweep_days": 1})
        clients.now = lambda: NOW + timedelta(days=2)
        await SweepGc(clients).run()
        await simulation.settle()
        assert {kind for kind, _, _ in simulation.objects()} == {"ConfigMap"}, "but for the name"


def no_pods(_pod: Any) -> Any:
    raise refusal(403, "exceeded quota", "Forbidden")


def suspended(job: Any) -> Any:
    """As Kueue's webhook makes the Jobs of trials."""
    return (
        job if BUILD_LABEL in job["metadata"]["labels"] else job | {"spec": {**job["spec"], "suspend": True}}
    )


def in_trouble(kind: type[Guarded], redis: Redis, folder: Path, rules: list[dict[str, Any]]) -> list[Guarded]:
    """Lives without pods, without trials, with trials that Kueue keeps waiting, and with claimed GPUs."""
    without_pods, without_trials, queued = (kind(redis, folder, rules, image=True) for _ in range(3))
    without_pods.kubernetes.admission("Pod", no_pods)
    without_trials.katib.start = lambda: None
    queued.kubernetes.admission("Job", suspended)
    return [without_pods, without_trials, queued, claiming(kind, redis, folder, rules)]


def claiming(kind: type[Guarded], redis: Redis, folder: Path, rules: list[dict[str, Any]]) -> Guarded:
    simulation = kind(redis, folder, rules, image=True)
    parsed = parse_config(CLAIMS, "c.yaml")
    config = replace(simulation.clients.config, profiles=parsed.profiles, pools=parsed.pools)
    simulation.clients = replace(simulation.clients, config=config)
    return simulation


async def in_queues(simulation: Guarded, namespace: str = "sweeps") -> None:
    """Trials wait in a queue without quota; they are moved and held, and someone looks at the queue."""
    kueue.install(simulation.kubernetes)
    controller = kueue.Kueue(simulation.kubernetes)
    controller.start()
    try:
        async with simulation.started():
            create_queues(simulation.kubernetes, 0, namespace)
            config = replace(simulation.clients.config, **vars(POLICY), admins=(OWNER,))
            simulation.clients = replace(simulation.clients, config=config)
            for action in (None, Action.MOVE, Action.HOLD):
                if action:
                    command = Ordered(action=action, user=OWNER, user_name="ada", queue="urgent")
                    await simulation.store.add_command(SWEEP, command)
                for _ in range(5):
                    await simulation.round()
            ask = Ordered(action=Action.QUEUE, user=OWNER, user_name="ada")
            await simulation.store.add_command(str(QUEUE), ask)
            await queue_job.answer_commands("now", simulation.clients)
            assert f"Held: `{SWEEP}`" in simulation.slack.ephemeral_messages[-1][1]
    finally:
        await controller.close()


@pytest.mark.features("device_claims", "extension", "health", "interruptions", "nodes", "pause", "queue")
async def test_role_is_used_completely_by_sweeps_and_watches(
    redis: Redis, folder: Path, wait_until: Any
) -> None:
    """Live a sample of the stories; CRASH_EVERY=1 takes all."""
    sampled = [list(STORIES)[number] for number in sample(range(len(STORIES)), every=len(STORIES))]
    lives = [
        Guarded(redis, folder, EVERYTHING, **STORIES[story])
        for story in dict.fromkeys(("calm", *WITH_TRIALS, *sampled))
    ]
    lives.append(Guarded(redis, folder, EVERYTHING, forget_in=Phase.RUNNING, image=True))
    lives += in_trouble(Guarded, redis, folder, EVERYTHING)
    watching = [Guarded(redis, folder, EVERYTHING, **{operator: True}) for operator in OPERATORS]
    leaving = Guarded(redis, folder, EVERYTHING, image=True)
    for simulation in lives:
        await simulation.run()
    for simulation in watching:
        await watches(simulation, wait_until)
    await leaves(leaving)
    queued = [Guarded(redis, folder, EVERYTHING, image=True, **kind) for kind in PER_KIND]
    for simulation in queued:
        await in_queues(simulation)
    commands = {
        command
        for simulation in (*lives, *watching, leaving, *queued)
        for command in simulation.server.granted
    }
    assert used(commands) == granted(role()["rules"])


def test_doctor_checks_exactly_the_role() -> None:
    assert {key: set(verbs) for key, verbs in FOR_RECORDS.items()} == granted(role()["rules"])


class Away(Guarded):
    """A simulation whose channel has its trials in the namespace `vision`."""

    async def move_in(self) -> None:
        labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
        meta = {"name": "vision", "labels": labels}
        self.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        for obj in deployed("namespace/rights.yaml"):
            self.kubernetes.create(obj | {"metadata": obj["metadata"] | {"namespace": "vision"}})
        await super().move_in()
        channel = a_sweep().requester.channel
        config = replace(self.clients.config, namespaces=("vision",), channel_namespaces={channel: "vision"})
        self.clients = replace(self.clients, config=config)


@pytest.mark.slow
@pytest.mark.features("device_claims", "extension", "health", "interruptions", "nodes", "pause", "queue")
async def test_channel_namespace_has_the_trials_and_the_main_one_everything_else(
    redis: Redis, folder: Path, wait_until: Any
) -> None:
    lives = [Away(redis, folder, role()["rules"], **STORIES[story]) for story in WITH_TRIALS]
    lives.append(claiming(Away, redis, folder, role()["rules"]))
    for simulation in lives:
        await simulation.run()
        assert (
            simulation.kubernetes.list("Experiment", "sweeps")
            == simulation.kubernetes.list("ConfigMap", "vision")
            == []
        )
    assert any(simulation.last.phase is Phase.SUCCEEDED for simulation in lives)
    watching = [Away(redis, folder, role()["rules"], **{operator: True}) for operator in OPERATORS]
    leaving = Away(redis, folder, role()["rules"], image=True)
    for simulation in watching:
        await watches(simulation, wait_until, namespaces=2)
    await leaves(leaving)
    queued = [Away(redis, folder, role()["rules"], image=True, **kind) for kind in PER_KIND]
    for simulation in queued:
        await in_queues(simulation, "vision")
    commands = {
        command
        for simulation in (*lives, *watching, leaving, *queued)
        for command in simulation.server.granted
    }
    there = {command for command in commands if command.namespace == "vision"}
    assert used(there, "vision") == {key: set(verbs) for key, verbs in FOR_TRIALS.items()}
    assert used(there, "vision") == granted(deployed("namespace/rights.yaml")[0]["rules"])


class Apart(Guarded):
    """A simulation whose builds have their own namespace."""

    async def move_in(self) -> None:
        for obj in deployed("builds/rights.yaml"):
            self.kubernetes.create(obj)
        await super().move_in()
        settings = self.clients.settings.model_copy(update={"build_namespace": "sweepbot-builds"})
        self.clients = replace(self.clients, settings=settings)


async def test_build_namespace_has_the_builds_and_the_main_one_everything_else(
    redis: Redis, folder: Path, wait_until: Any
) -> None:
    lives = [Apart(redis, folder, role()["rules"], **STORIES[story]) for story in WITH_BUILDS]
    refused, suspended = (Apart(redis, folder, role()["rules"]) for _ in range(2))
    refused.kubernetes.admission("Pod", no_pods)
    suspended.kubernetes.admission("Job", lambda job: job | {"spec": {**job["spec"], "suspend": True}})
    for simulation in (*lives, refused):
        await simulation.run()
        ours = [
            job
            for job in simulation.kubernetes.list("Job", "sweeps")
            if BUILD_LABEL in job["metadata"]["labels"]
        ]
        assert ours == simulation.kubernetes.list("ConfigMap", "sweepbot-builds") == []
    assert any(simulation.last.phase is Phase.SUCCEEDED for simulation in lives)
    assert refused.last.building.trouble
    await cancelled_while_building(suspended)
    watching = Apart(redis, folder, role()["rules"])
    commands = {
        command for simulation in (*lives, refused, suspended) for command in simulation.server.granted
    }
    async with watching.started():
        waking = asyncio.create_task(SweepInformer(watching.redis, watching.clients).run())
        there = {("", "pods", "watch"), ("batch", "jobs", "watch")}
        await wait_until(lambda: there <= builds_asked(watching.server.granted), "its builds are watched")
        waking.cancel()
        await asyncio.gather(waking, return_exceptions=True)
    commands |= set(watching.server.granted)
    mine = {command for command in commands if command.namespace == "sweepbot-builds"}
    assert used(mine, "sweepbot-builds") == {key: set(verbs) for key, verbs in FOR_BUILDS.items()}
    assert used(mine, "sweepbot-builds") == granted(deployed("builds/rights.yaml")[1]["rules"])


async def cancelled_while_building(simulation: Guarded) -> None:
    async with simulation.started():
        while not simulation.kubernetes.list("Job", "sweepbot-builds"):
            await simulation.round()
        await simulation.round()  # diagnoses the Job that does not start
        await simulation.store.add_command(SWEEP, Ordered(action=Action.CANCEL, user=OWNER, user_name="ada"))
        while not (await simulation.record()).phase.final:
            await simulation.round()
        assert simulation.kubernetes.list("Job", "sweepbot-builds") == []


def builds_asked(commands: Iterable[AccessRequest]) -> set[tuple[str, str, str]]:
    return {
        (command.group, command.resource, command.verb)
        for command in commands
        if command.namespace == "sweepbot-builds"
    }


async def test_role_is_sufficient_for_a_sweep(redis: Redis, folder: Path) -> None:
    simulation = await Guarded(redis, folder, role()["rules"]).run()
    assert simulation.last.phase is Phase.SUCCEEDED


async def test_role_without_any_one_verb_stops_a_sweep(redis: Redis, folder: Path) -> None:
    rules = role()["rules"]
    next(rule for rule in rules if rule["resources"] == ["jobs"])["verbs"].remove("create")
    simulation = Guarded(redis, folder, rules)
    async with simulation.started():
        while not (await simulation.record()).outage.since:
            await simulation.round()
        # Until then, the server could just have started.
        late = simulation.clients.now() + PLAN_TIMEOUT
        simulation.clients = replace(simulation.clients, now=lambda: late)
        while not (await simulation.record()).phase.final:
            await simulation.round()
    assert (await simulation.record()).phase is Phase.FAILED
    assert any('cannot create resource "jobs" in API group "batch"' in text for text in simulation.texts())
