"""A whole sweep in memory: real reconciles and store, and a cluster with Katib's and Kubernetes' controllers.

Only time, containers, git, the registry, and Slack are simulated. Every call to another system passes a
`CrashingProxy`, so that a worker can die at any of them.
"""

import asyncio
import contextlib
import inspect
import re
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.work_item import ItemKind, WorkItem
from bot.measure.gpus.hourly_store import HourlyStore
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.images import ImageRef
from bot.platform.repos.git_commands import GitUnavailableError
from bot.platform.storage.free_capacity import CapacityStore
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Lease, Queue
from bot.sweep.builds import provenance
from bot.sweep.clients import SweepClients
from bot.sweep.reports.trial_runs_job import TrialRunsJob
from bot.sweep.sweeps.informer import SweepInformer
from bot.sweep.sweeps.reconciler import reconcile
from k8s.api.errors import ApiError, UnreachableError
from k8s.katib.pod_shape import PodShape
from k8s.objects import BUILD_LABEL
from k8s.trial_kinds import JOB, PYTORCH_JOB, TRAIN_JOB, TRIAL_KINDS, TRIAL_LABEL, owner_of, pod_index
from local import trainer, training_operator
from local.katib import Katib
from local.katib.metrics import Reported
from local.kubernetes.apiserver import store as kubernetes
from local.kubernetes.controllers.jobs import Controllers
from tests.bot.factories import CONFIG, FILES, NOW, OWNER, PLAN, SETTINGS, a_sweep
from tests.scenarios.evictions import evict
from tests.scenarios.fakes import (
    DIGEST,
    DirectCluster,
    FakeGit,
    FakeLive,
    FakePictures,
    FakeRegistry,
    FakeResults,
    FakeRunWriter,
    FakeSlack,
)
from tests.settled import settled

SPACE = """
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {max: 3, parallel: 2, max_failed: 1}
parameters:
  width: [a, b, c]
"""
OPERATORS = {"pytorch": PYTORCH_JOB, "trainer": TRAIN_JOB}
SWEEP = "lr-brave-otter"
ROUNDS = 60
AFTERWARDS = 2  # an ended sweep that is woken stays as it is


class WorkerCrash(BaseException):
    """The worker's end, during a call. No handler may catch it."""


class Clock:
    """Counts calls to other systems; the worker dies at one of them."""

    def __init__(self, crash_at: int | None) -> None:
        self.calls, self.crash_at = 0, crash_at

    def tick(self) -> None:
        self.calls += 1
        if self.calls == self.crash_at:
            self.crash_at = None
            raise WorkerCrash


class CrashingProxy:
    """Passes calls on; the worker can die at each of them."""

    def __init__(self, inner: Any, clock: Clock) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method) or inspect.isasyncgenfunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await method(*args, **kwargs)
            finally:
                self._clock.tick()

        return call


class SimulatedSweep:
    """`acts`: the owner's actions and their phases; `endless`: no training ends.

    `crash`: every training fails; "unseen": before its pod is observed running; "seen": once the record has a
    running one. `drained`: the second worker of each trial is evicted once; it ends "at once", "later", or
    "unseen", with all pods gone before the next reconcile.
    `search`: the search service is installed, but never answers.
    `pytorch` or `trainer`: the Training Operator, or Kubeflow Trainer, is installed, and runs
    trials of several nodes.
    """

    def __init__(self, redis: Redis, clock: Clock, **scenario: Any) -> None:
        self.clock, self.scenario = clock, scenario
        self.rounds_since = 0
        self.acts = dict(scenario.get("acts", {}))
        self.evicted: dict[
            str, str
        ] = {}  # by trial: the UID of the Job whose worker was evicted; "": not yet
        self.redis = redis
        self.kubernetes = kubernetes.Store()
        self.katib, self.controllers = Katib(self.kubernetes), Controllers(self.kubernetes)
        self.operator: Any = training_operator.TrainingOperator(self.kubernetes)
        if scenario.get("trainer"):
            self.operator = trainer.Trainer(self.kubernetes)
        kind = next((kind for name, kind in OPERATORS.items() if scenario.get(name)), JOB)
        self.slack = FakeSlack(invited=scenario.get("invited", True))
        self.live, self.run_writer = FakeLive(), FakeRunWriter()
        self.registry, self.git = (
            FakeRegistry(),
            FakeGit(scenario.get("space", SPACE), scenario.get("files", FILES)),
        )
        self.cluster = DirectCluster(self.kubernetes)
        self.registry.push("lab/ready:latest", DIGEST)
        self.store = Store(redis, prefix="life")
        self.clients = SweepClients(
            **{
                name: CrashingProxy(part, clock)
                for name, part in {
                    "store": self.store,
                    "cluster": self.cluster,
                    "registry": self.registry,
                    "git": self.git,
                    "slack": self.slack,
                    "results": FakeResults(),
                    "live": self.live,
                    "queue": Queue(redis, prefix="life:queue"),
                    "usage": HourlyStore(redis),
                    "capacity": CapacityStore(redis),
                }.items()
            },
            pictures=FakePictures(),
            settings=SETTINGS,
            config=replace(
                CONFIG, trials=PodShape(multi_node=kind), search_service=scenario.get("search", False)
            ),
            now=lambda: NOW,
        )

    async def run(self) -> "SimulatedSweep":
        async with self.started():
            over = 0
            for number in range(ROUNDS):
                await self.round(worker=f"worker-{number}")
                over = over + 1 if self.last.phase.final else 0
                if over > AFTERWARDS:
                    break
            return self

    @contextlib.asynccontextmanager
    async def started(self):
        labels = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
        namespace = {"metadata": {"name": "sweeps", "labels": labels}}
        self.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", **namespace})
        for name, operator in (("pytorch", training_operator), ("trainer", trainer)):
            if self.scenario.get(name):
                operator.install(self.kubernetes)
        for part in (self.katib, self.controllers, self.operator):
            part.start()
        watches = [asyncio.create_task(each) for each in self.watches()]
        try:
            first = a_sweep(request_id="trigger-1", **self.scenario.get("sweep", {}))
            await self.store.create(first, [SWEEP], "trigger-1")
            if self.scenario.get("image"):
                await self.has(PLAN.image_repository, PLAN.image_tag)
            yield self
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            for part in (self.katib, self.controllers, self.operator):
                await part.close()
            await self.redis.flushall()

    def watches(self):
        """What keeps the worker's memory of the cluster; it is never part of a crash."""
        self.informer = SweepInformer(self.redis, replace(self.clients, cluster=self.cluster))
        return [self.informer._follow(cache) for cache in self.clients.caches]

    async def has(self, repository, tag, digest=DIGEST):
        """An earlier sweep's build has created it."""
        self.registry.push(f"{repository}:{tag}", digest)
        direct = replace(self.clients, cluster=self.cluster)
        await provenance.record(ImageRef(repository, tag), digest, direct)

    async def record(self):
        self.last = await self.store.get(SWEEP) or self.last
        return self.last

    async def round(self, failures: int = 0, *, item: str = SWEEP, worker: str = "worker") -> None:
        """Run one reconcile, then advance the time. `failures`: of the earlier reconciles."""
        lease = Lease(WorkItem.sweep(item), worker, failures=failures, key=f"life:lease:{worker}")
        await self.redis.set(lease.key, worker)
        with contextlib.suppress(
            WorkerCrash, ApiError, UnreachableError, SlackApiError, RegistryError, GitUnavailableError
        ):  # another worker runs the next reconcile
            await reconcile(lease, self.clients)
            await self._complete_runs(item)
        await self.redis.delete(lease.key)
        await self.settle()
        await self._time_passes()
        await self.settle()
        if self.scenario.get("drained") == "unseen" and any(self.evicted.values()):
            await self._time_passes()  # until no pod is left
            await self.settle()
        await self._interfere((await self.record()).phase)

    async def _complete_runs(self, sweep_id: str) -> None:
        """Handle the work item of the runs, if the sweep's end has queued it."""
        queued, item = "life:queue:ready", str(WorkItem(ItemKind.TRIAL_RUNS, sweep_id))
        if await self.redis.zscore(queued, item) is not None:
            again = await TrialRunsJob(self.clients, self.run_writer).run(sweep_id)
            await (self.redis.zrem(queued, item) if again is None else asyncio.sleep(0))

    async def settle(self) -> None:
        await settled()

    async def _time_passes(self) -> None:
        """The kubelet's work: bind, run, end, and remove a deleted pod."""
        for pod in [*self.kubernetes.peek("Pod")]:
            labels = pod["metadata"]["labels"]
            if "deletionTimestamp" in pod["metadata"]:
                if pod["status"]["phase"] == "Running":
                    self._status(pod, "Failed", {"terminated": {"exitCode": 143, "reason": "Error"}})
                self.kubernetes.delete(*kubernetes.place(pod), grace=0)
            elif not pod["spec"].get("nodeName"):
                self.kubernetes.patch(*kubernetes.place(pod), {"spec": {"nodeName": "n1"}})
            elif pod["status"]["phase"] == "Pending":
                self._status(pod, "Running", {"running": {"startedAt": "2026-11-21T12:00:00Z"}})
                if self.scenario.get("crash") == "unseen":
                    self._end(pod, labels)
            elif pod["status"]["phase"] == "Running" and self.scenario.get("drained") and self._drained(pod):
                continue
            elif pod["status"]["phase"] == "Running" and self._ends(labels):
                self._end(pod, labels)

    def _drained(self, pod) -> bool:
        """Evict the second worker of each trial once. Return whether the pod is in that group, and hangs."""
        trial, job = pod["metadata"]["labels"].get(TRIAL_LABEL), owner_of(pod)["uid"]
        if trial is None:
            return False
        self.evicted.setdefault(trial, "")
        if self.evicted[trial] == "" and pod_index(pod) == 1 and self._all_run(job):
            self.evicted[trial] = job
            evict(self.kubernetes, pod)
            if self.scenario["drained"] != "later":
                self._status(pod, "Failed", {"terminated": {"exitCode": 143, "reason": "Error"}})
        return self.evicted[trial] in {"", job}

    def _all_run(self, job) -> bool:
        pods = [pod for pod in self.kubernetes.peek("Pod") if owner_of(pod).get("uid") == job]
        return len(pods) == self.last.plan.nodes and all(p["status"]["phase"] == "Running" for p in pods)

    def _ends(self, labels) -> bool:
        """`patient`: some rounds after the last action; `one_ends`: only one trial ends."""
        self.rounds_since += not self.acts
        if self.scenario.get("endless") == "trainings":
            return BUILD_LABEL in labels
        if self.scenario.get("crash") == "seen" and BUILD_LABEL not in labels:
            return self.last.phase is Phase.RUNNING
        if self.scenario.get("one_ends"):
            trials = [trial["metadata"]["name"] for trial in self.kubernetes.peek("Trial")]
            return labels.get("katib.kubeflow.org/trial") == self.scenario.setdefault("the one", min(trials))
        return not self.scenario.get("endless") and not (
            self.scenario.get("patient") and self.rounds_since < 12
        )

    def _end(self, pod, labels) -> None:
        build = BUILD_LABEL in labels
        bad = self.scenario.get("crash")
        if build:
            bad = self.scenario.get("bad_build", "none") in labels[BUILD_LABEL]
        over = {"exitCode": 1, "reason": "Error"} if bad else {"exitCode": 0, "reason": "Completed"}
        if build and not bad:
            destination = next(
                a for a in pod["spec"]["containers"][0]["args"] if a.startswith("--destination=")
            )
            self.registry.push(destination.split("/", 1)[1], DIGEST)
            over |= {"message": DIGEST}
        if not build and not bad:
            trial = labels["katib.kubeflow.org/trial"]
            value = self._width(pod["metadata"]["namespace"], trial)
            self.katib.metrics.report(trial, [Reported(value, 1)])
        self._status(pod, "Failed" if bad else "Succeeded", {"terminated": over})

    def _width(self, namespace: str, trial: str) -> str:
        values = self.kubernetes.find("Trial", namespace, trial)["spec"]["parameterAssignments"]
        return {"a": "0.5", "b": "0.3", "c": "0.1", "d": "0.2", "e": "0.4"}[values[0]["value"]]

    def _status(self, pod, phase, state) -> None:
        statuses = [
            {"name": c["name"], "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
            for c in pod["spec"]["containers"]
        ]
        patch = {"status": {"phase": phase, "containerStatuses": statuses}}
        self.kubernetes.patch(*kubernetes.place(pod), patch, subresource="status")

    async def _interfere(self, phase: Phase) -> None:
        for action in [action for action, when in self.acts.items() if when is phase]:
            await self._ask(action)
        if phase is self.scenario.get("forget_in"):
            await self.redis.flushall()

    async def _ask(self, action: Action) -> None:
        """Once for each act; a repeated click is another story."""
        jobs = (job for kind in TRIAL_KINDS for job in self.kubernetes.list(kind))
        live = [job for job in jobs if not job["metadata"]["name"].startswith("build")]
        trial = min((job["metadata"]["name"] for job in live), default="")
        if action is not Action.KILL or trial:
            del self.acts[action]
            await self.store.add_command(
                SWEEP, Command(action=action, user=OWNER, user_name="ada", trial=trial, trials=5)
            )

    def objects(self) -> set[tuple[str, str]]:
        """The remaining objects in the cluster, with their end; without random suffixes."""
        found = set()
        for kind in ("ConfigMap", *TRIAL_KINDS, "Pod", "Experiment", "Trial"):
            for obj in self.kubernetes.list(kind):
                conditions = obj.get("status", {}).get("conditions") or []
                true_now = sorted(c["type"] for c in conditions if c["status"] == "True")
                found.add((kind, _steady(obj["metadata"]["name"]), tuple(true_now)))
        return found

    def texts(self) -> list[str]:
        """Drop intermediate events (a running pod, a better result): they depend on the observation times."""
        passing = r":chart|:seedling|:runner: Running again|:warning: \d+ more trial"
        return [_steady(text) for text in self.slack.posted if not re.match(passing, text)]

    def gpus_held(self) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.kubernetes.list("Pod")
            if pod["status"]["phase"] not in {"Succeeded", "Failed"}
        ]


def _steady(text: str) -> str:
    """Without what chance decides: suffixes, seconds, and which of the widths comes first."""
    text = re.sub(r"(\n\d\. )0\.\d ", r"\1* ", text)
    text = re.sub(r"in \d+ s", "in * s", text)
    text = re.sub(r"(slack\.com/C1)/[\d.]+", r"\1/*", text)
    text = re.sub(r"\n\d+ more trials? failed the same way\.", "", text)
    text = re.sub(r"width=[a-e]", "width=*", re.sub(r"\*0\.\d\*", "*0.x*", text))
    return re.sub(rf"({SWEEP})-[a-z0-9-]+", r"\1-*", re.sub(r"-[a-z0-9]{5}$", "-*", text))
