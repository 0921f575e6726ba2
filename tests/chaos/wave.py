"""Run some sweeps at once under faults until all have ended, and check what then must be true."""

import asyncio
import random
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from bot.core.commands import Action, Command
from bot.core.record import Phase
from bot.core.request import Requester, SweepRequest
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.config.live_policy import LivePolicy
from bot.platform.storage import sweep_configmap
from bot.sweep.channels.models import ChannelSetup
from bot.sweep.channels.store import REQUESTS, SetupRequest, SetupWriter
from bot.sweep.channels.store import dump as dump_setup
from bot.sweep.reports.trial_runs_job import TrialRunsJob
from bot.sweep.sweeps.durable_record import recover
from bot.sweep.sweeps.informer import SweepInformer
from bot.sweep.sweeps.reconciler import handle
from bot.sweep.sweeps.unconfirmed import CHECK_SECONDS, UnconfirmedRequests
from bot.worker import Worker, keyed
from bot.workspaces.environments.cluster import KIND
from bot.workspaces.environments.request_job import RequestJob
from bot.workspaces.environments.requests import ITEM as ENVIRONMENTS
from bot.workspaces.environments.requests import KEEP, EnvironmentRequest, Verb, dump
from k8s.api.errors import ApiError, UnreachableError
from k8s.objects import SWEEP_LABEL
from tests.bot.factories import ADMIN
from tests.bot.workspaces.environments.world import NAMESPACE
from tests.chaos.figures import Figures
from tests.chaos.gate import ACTOR, CLOCKS, OUTAGE, SERVER, Actor, Gate, Gated
from tests.chaos.judge import judge
from tests.chaos.simulation import BAD_BRANCHES, Published, Simulation, fate
from tests.handlers.factories import a_context
from tests.scenarios.sweep_in_memory import WorkerCrash

WORKERS = 4
STEP = 0.02  # seconds between two calls
STEPS = 10  # until the next check for ended sweeps
LEASE = 30.0  # seconds, as the queue's
RESYNC = 300.0  # seconds, as the informer's
LONGEST_JUMP = 60.0
TIMEOUT_SECONDS = (
    4 * 3600.0
)  # simulated seconds after the last fault; a sweep that is not over by then is lost
FATES = ("calm", "calm", "calm", "endless", "endless", "crashing")
COMMANDS = (
    *(Action.DRAIN, Action.KILL, Action.STATUS, Action.LOGS, Action.RESULTS),
    *(Action.RERUN, Action.PROMOTE),
)
PEOPLE = ("UOWNER", "UADA", "UALAN")


class Wave:
    """`faults`: how many to reach before the last sweep is over."""

    def __init__(self, redis: Redis, seed: str, sweeps: int, faults: int, *, flush: bool = False) -> None:
        self.rng, self.redis, self.sweeps, self.wanted = Random(seed), redis, sweeps, faults
        self.gate = Gate(self.rng, self._flush if flush else None)
        self.figures = Figures(sweeps=sweeps)
        self.taken: dict[str, float] = {}  # acknowledged sweeps, and when
        self.cancels: dict[str, float] = {}  # acknowledged, and when
        self.starts: dict[str, str] = {}  # acknowledged reruns and promotions: of which sweep, by request id
        self.environments: set[str] = set()  # acknowledged
        self.setups: dict[str, int] = {}  # acknowledged hours of digests, by channel
        self.agenda: list[tuple[float, str, Action]] = []
        self.ids: set[str] = set()
        # When, and what Redis had of each sweep; None: not yet claimed.
        self.flushes: list[tuple[float, dict[str, Phase | None]]] = []
        self.actors: set[asyncio.Task[None]] = set()
        self.idle, self.jump, self.next_resync, self.next_check = False, 1.0, 0.0, 0.0
        self.half_open_until = 0.0

    async def run(self) -> "Wave":
        with _predictable(self.rng), TemporaryDirectory() as folder:
            self.folder = Path(folder)
            self.simulation = Simulation(self.redis, self.gate)
            async with self._running():
                await self._under_faults()
                await judge(self)
        return self

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        simulation, labels = self.simulation, {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
        for name in ("sweeps", NAMESPACE):
            meta = {"name": name, "labels": labels}
            simulation.kubernetes.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        simulation.katib.start()
        simulation.controllers.start()
        self.changes = simulation.kubernetes.follow(simulation.kubernetes.version)
        config = simulation.clients.config
        published: Any = Gated(Published(self.redis), "store", self.gate)
        self.worker = Worker(
            simulation.clients.queue,
            1,
            {
                ItemKind.SWEEP: partial(handle, clients=simulation.clients),
                ItemKind.TRIAL_RUNS: keyed(TrialRunsJob(simulation.clients, simulation.run_writer).run),
                ENVIRONMENTS.kind: keyed(RequestJob(simulation.clients).run),
                KIND: keyed(_nothing),  # its pods are another story
                ItemKind.SETUP: keyed(SetupWriter(simulation.clients, published, LivePolicy(config)).run),
            },
        )
        self.informer = SweepInformer(self.redis, simulation.clients)
        self.informer.wakes._clock = lambda: self.gate.seconds
        for cache in simulation.clients.caches:
            cache.listed.set()
        self._new_server()
        try:
            yield
        finally:
            for task in self.actors:
                task.cancel()
            await asyncio.gather(*self.actors, return_exceptions=True)
            await simulation.katib.close()
            await simulation.controllers.close()
            await self.redis.flushall()

    async def _under_faults(self) -> None:
        to_launch = [self.rng.choice(FATES) for _ in range(self.sweeps)]
        last_fault = 0.0
        while to_launch or not await self._all_over():
            faults = self.gate.faults.total()
            over = len(self.taken) - len(await self.simulation.store.active())
            behind = faults < self.wanted * (over + 1) / self.sweeps
            self.gate.rate = 0 if faults >= self.wanted else 0.2 if behind else 0.02
            if to_launch and self.rng.random() < 0.2:
                await self._launch(to_launch.pop())
                await self._ask_jobs()
            for _ in range(STEPS):
                await self._step()
            if self.gate.faults.total() > faults or to_launch:
                last_fault = self.gate.seconds
            if self.gate.seconds - last_fault > TIMEOUT_SECONDS:
                return

    async def _all_over(self) -> bool:
        """Nothing is active and nothing waits, neither in Redis nor in the cluster."""
        if self.actors or self.agenda or await self.simulation.store.active():
            return False
        if self.context.unconfirmed._open:
            return False
        if "active" in self.records_in_cluster().values():
            return False
        for sweep_id in self.ids:
            record = await self.simulation.store.get(sweep_id)
            if record and (
                record.outbox or record.quarantined or await self.simulation.store.commands(sweep_id)
            ):
                return False
        return not self.simulation.alive()

    def records_in_cluster(self) -> dict[str, str]:
        """Sweeps that have a ConfigMap, and its state."""
        labels = [each["metadata"].get("labels", {}) for each in self.simulation.kubernetes.peek("ConfigMap")]
        return {
            each[SWEEP_LABEL]: each[sweep_configmap.STATE_LABEL] for each in labels if SWEEP_LABEL in each
        }

    async def _step(self) -> None:
        self.gate.seconds += STEP
        await self._watch()
        await self._people()
        if len(self.actors) < WORKERS and not self.idle:
            self._start_turn()
            await self.simulation.settle()
        if self.rng.random() < 0.05:
            await self.simulation.kubelet()
        if not self.gate.release_one() and self.idle:
            await self._wait()
        await self.simulation.settle()
        self.actors = {task for task in self.actors if not task.done()}

    async def _wait(self) -> None:
        """No task can run: advance the clock, further with each time in a row."""
        is_unconfirmed = bool(self.context.unconfirmed._open)
        most = CHECK_SECONDS if is_unconfirmed else LONGEST_JUMP
        self.gate.seconds += min(self.jump, most)
        self.jump = min(2 * self.jump, LONGEST_JUMP)
        self.idle = False
        await self.simulation.kubelet()

    def _start_turn(self) -> None:
        clock = self.rng.choice(CLOCKS)
        actor = Actor(f"worker-{self.rng.randrange(10**6):06}", waits=True, clock=clock)
        self.actors.add(asyncio.create_task(self._turn(actor)))

    async def _turn(self, actor: Actor) -> None:
        ACTOR.set(actor)
        try:
            lease = await self.simulation.clients.queue.get(wait=0)
            if lease is None:
                self.idle = True
                return
            self.jump = 1.0
            actor.item, actor.leased_until = lease.item.key, self.gate.seconds + LEASE
            self.gate.note(actor.item, f"{actor.name} has its turn")
            await self.worker._take(lease)
        except (WorkerCrash, BaseExceptionGroup, RedisError) as end:
            self.gate.note(actor.item, f"{actor.name} ends: {type(end).__name__}")

    async def _at_once(self, name: str, item: str, work: Awaitable[Any]) -> Any:
        """Run it as another process would, between two calls of the workers. Return or raise what it does."""
        actor = Actor(name, item=item)
        before = ACTOR.set(actor)
        try:
            return await work
        finally:
            ACTOR.reset(before)
            self.idle = False

    async def _watch(self) -> None:
        """Keep the workers' memory, and wake; an interrupted watch is read again with the next resync.

        A half-open watch seems to be complete, and brings its changes late.
        """
        if self.half_open_until <= self.gate.seconds and self.rng.random() < self.gate.rate / 10:
            self.half_open_until = self.gate.seconds + self.rng.uniform(*OUTAGE)
            self.gate.faults["watches half-open"] += 1
        while self.half_open_until <= self.gate.seconds and not self.changes.empty():
            change = self.changes.get_nowait()
            meta = change.object["metadata"]
            for cache in self.simulation.clients.caches:
                if (cache.kind, cache.namespace) == (change.object["kind"], meta.get("namespace")):
                    cache.remove(meta["name"]) if change.type == "DELETED" else cache.put(change.object)
        resync = self.gate.seconds >= self.next_resync
        try:
            if self.informer.wakes._pause() == 0:
                await self._at_once("informer", "", self.informer.wakes.send())
            if resync:
                self.next_resync = self.gate.seconds + RESYNC
                await self._at_once("informer", "", self._resync())
                self._complete(True)
        except (WorkerCrash, BaseExceptionGroup, RedisError, ApiError, UnreachableError):
            self.next_resync = self.gate.seconds + 5
            self._complete(self.rng.random() < 0.5)

    async def _resync(self) -> None:
        await self.simulation.clients.queue.hurry()
        await recover(self.informer._clients)

    def _complete(self, complete: bool) -> None:
        for cache in self.simulation.clients.caches:
            cache.complete = complete

    async def _people(self) -> None:
        if self.gate.seconds >= self.next_check:
            self.next_check = self.gate.seconds + CHECK_SECONDS
            await self._serve("", self.context.unconfirmed.restore_lost())
            for item in sorted(await self.simulation.queue.quarantined()):
                await self._release(item)
        due = [each for each in self.agenda if each[0] <= self.gate.seconds]
        for each in due:
            self.agenda.remove(each)
            await self._command(*each[1:])

    async def _release(self, item: str) -> None:
        why = (await self.simulation.queue.quarantined())[item].why
        record = await self.simulation.store.get(item)
        if why != "the worker died":
            self.report_broken(item, f"a bug of its own quarantined it: {why}")
        if record is None or record.quarantined or record.phase.final:
            self.figures.quarantined += 1
            await self.simulation.queue.retry(WorkItem.sweep(item))

    async def _serve(self, item: str, work: Awaitable[Any]) -> tuple[bool, Any]:
        """In the process that answers Slack. False: it was not acknowledged."""
        try:
            return True, await self._at_once(SERVER, item, work)
        except WorkerCrash:
            self._new_server()
        except (RedisError, TimeoutError):
            pass
        return False, None

    def _new_server(self) -> None:
        """Nothing of the last one's memory is left, only its file."""
        if hasattr(self, "context"):
            self.context.unconfirmed.file.close()
        store, queue = self.simulation.clients.store, self.simulation.clients.queue
        unconfirmed = UnconfirmedRequests(store, queue, self.simulation.now, self.folder)
        self.context = a_context(
            self.redis, store=store, queue=queue, unconfirmed=unconfirmed, now=self.simulation.now
        )

    async def _launch(self, kind: str) -> None:
        """Typed again, as the same delivery or another one, until it is acknowledged."""
        branch = self.rng.choice([f"branch-{self.rng.randrange(10)}"] * 8 + list(BAD_BRANCHES))
        request = SweepRequest(branch=branch, space="lr", name=kind)
        user = self.rng.choice(PEOPLE)
        trigger = f"trigger-{len(self.taken)}"
        while True:
            requester = Requester(user=user, user_name=user.lower(), channel="C1", response_url="https://h/1")
            done, record = await self._serve("", self.context.create_sweep(request, requester, trigger))
            if done:
                break
            self.gate.seconds += 3
        self.taken[record.id] = self.gate.seconds
        self.gate.note(record.id, f"{user} launched it: acknowledged")
        self._plan_commands(record.id)

    async def _ask_jobs(self) -> None:
        """Start an environment, and set up a channel: requests to other work items."""
        number = len(self.taken)
        start = EnvironmentRequest(
            verb=Verb.START, user=f"U{number}", channel="C1", request_id=f"E{number}", name=f"lab-{number}"
        )
        item = str(ENVIRONMENTS)
        done, _ = await self._serve(item, self.context.add_request(item, dump(start), ttl=KEEP))
        if done:
            self.environments.add(start.name)
        setup = SetupRequest(user=ADMIN, channel=f"C{number}", settings=ChannelSetup(hour=number % 24))
        item = str(REQUESTS)
        done, _ = await self._serve(item, self.context.add_request(item, dump_setup(setup)))
        if done:
            self.setups[setup.channel] = number % 24

    def _plan_commands(self, sweep_id: str) -> None:
        self.ids.add(sweep_id)
        now = self.gate.seconds
        if fate(sweep_id) == "endless":
            self.agenda.append((now + self.rng.expovariate(1 / 30), sweep_id, Action.CANCEL))
        for _ in range(self.rng.randrange(3)):
            action = self.rng.choice(COMMANDS)
            if fate(sweep_id) != "endless" or not action.starts_sweep:
                self.agenda.append((now + self.rng.expovariate(1 / 30), sweep_id, action))
        if fate(sweep_id) == "calm" and self.rng.random() < 0.2:
            self.agenda.append((now + self.rng.expovariate(1 / 30), sweep_id, Action.CANCEL))

    async def _command(self, sweep_id: str, action: Action) -> None:
        jobs = self.simulation.kubernetes.list("Job", labels={SWEEP_LABEL: sweep_id})
        trial = min((job["metadata"]["name"] for job in jobs), default="none")
        request_id = f"{action}-{self.figures.commands}" if action.starts_sweep else ""
        kill = {"trial": trial} if action is Action.KILL else {}
        user = request_id or ADMIN  # the judge finds a started sweep by its user
        command = Command(action=action, user=user, user_name="admin", request_id=request_id, **kill)
        self.figures.commands += 1
        done, _ = await self._serve(sweep_id, self.context.send(sweep_id, command))
        self.gate.note(sweep_id, f"{action}: {'acknowledged' if done else 'not acknowledged'}")
        if done and request_id:
            self.starts[request_id] = sweep_id
        if done and action is Action.CANCEL:
            self.cancels.setdefault(sweep_id, self.gate.seconds)
        if not done and action is Action.CANCEL:
            self.agenda.append((self.gate.seconds + 3, sweep_id, action))

    async def _flush(self, server_dies: bool) -> None:
        phases = {}
        for sweep_id in sorted(self.ids):
            record = await self.simulation.store.get(sweep_id)
            if record:
                phases[sweep_id] = record.phase if record.durable_phase else None
        self.flushes.append((self.gate.seconds, phases))
        for sweep_id in self.ids:
            self.gate.note(sweep_id, "FLUSHALL")
        await self.redis.flushall()
        if server_dies and ACTOR.get().name != SERVER:  # else it crashes in its own call
            self._new_server()

    def report_broken(self, item: str, what: str) -> None:
        self.figures.broken.append(f"{item}: {what}\n{self.history(item)}")

    def history(self, item: str) -> str:
        return "\n".join(f"    {line}" for of, line in self.gate.journal if of == item)

    def fingerprint(self) -> str:
        """The same for the same run."""
        return sha256(repr(self.gate.journal).encode()).hexdigest()[:12]


async def _nothing(_: str) -> None:
    pass


@contextmanager
def _predictable(rng: Random) -> Iterator[None]:
    """Names, ids, and jitter come from the seed, too, and work for threads runs inline."""
    loop, own = asyncio.get_running_loop(), Random(rng.random())

    def at_once(_, function, *args):
        done = loop.create_future()
        try:
            done.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "choice", own.choice)
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=own.getrandbits(128), version=4))
        patch.setattr(random, "uniform", own.uniform)
        patch.setattr(loop, "run_in_executor", at_once)
        patch.setattr("handlers.context.ACK_TIMEOUT", 200)  # of real time, on a busy machine
        yield
