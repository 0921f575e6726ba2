"""Assess trials without GPUs: CPUs that they request and hardly use, and their memory.

Small requests cause no warning. Requests and starts are those of the pods, as the worker watches them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf

from bot.core.record import Phase, SweepRecord
from bot.measure.gpus.models import BUSY, Gpu
from bot.measure.gpus.overrequest import GIB, LARGE_CPU, LARGE_RAM
from bot.measure.gpus.pod_owners import PodKey
from bot.measure.sources.cpu_use import CpuQueries, CpuUse
from bot.platform.clients import Clients
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.platform.slack.mrkdwn import code
from bot.watch.idle.detector import (
    LOW_P95,
    LOW_WINDOW,
    SETTLING,
    GpuAllocation,
    Kind,
    measurement_window,
)
from bot.watch.idle.messages import duration
from k8s.api.cache import CacheReader
from k8s.nodes.gpus import device_sizes, requested
from k8s.objects import SWEEP_LABEL, Manifest
from k8s.pods import Pod, read_trial_pod
from k8s.trial_kinds import TRIAL_LABEL

PHASES_WITH_TRIALS = {Phase.PENDING, Phase.RUNNING}
MAX_SHOWN = 16  # trials in a private reply
MAX_LIFE = timedelta(days=1)  # over which the peak of the memory is measured


@dataclass(frozen=True, kw_only=True)
class CpuTrial:
    """A running trial; its pods are alike, one for each node."""

    sweep: SweepRecord
    namespace: str
    name: str
    pods: tuple[Pod, ...]
    cores: float  # that one pod requests; 0: none, also below
    ram: float  # bytes that one pod requests
    limit: float  # bytes

    @property
    def keys(self) -> tuple[PodKey, ...]:
        return tuple((self.namespace, pod.name) for pod in self.pods)

    @property
    def started(self) -> datetime | None:
        starts = [pod.running_since for pod in self.pods if pod.running_since]
        return max(starts) if len(starts) == len(self.pods) else None

    @property
    def all_cores(self) -> str:
        return f"{self.cores * len(self.pods):g} CPUs"

    def share(self, use: Mapping[PodKey, float | None]) -> float | None:
        """Return the used cores as a share of those requested; None if those of a pod are unknown."""
        cores = [use.get(pod) for pod in self.keys]
        known = [each for each in cores if each is not None]
        return sum(known) / self.cores / len(cores) if self.cores and len(known) == len(cores) else None

    def peak(self, use: Mapping[PodKey, float | None]) -> float | None:
        """Return the memory of the pod that used the most, in bytes."""
        return max((each for pod in self.keys if (each := use.get(pod)) is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the pods of all trials used, by pod."""

    cores: Mapping[PodKey, float | None]
    ram: Mapping[PodKey, float | None]

    @classmethod
    def of(cls, use: Mapping[PodKey, CpuUse]) -> "Measured":
        return cls(
            cores={pod: each.cores for pod, each in use.items()},
            ram={pod: each.ram for pod, each in use.items()},
        )


async def running_trials(clients: Clients, sweeps: Iterable[SweepRecord]) -> list[CpuTrial]:
    """Return the trials on nodes, of those sweeps that have no GPUs. Raises ApiError, UnreachableError."""
    reader, found = CacheReader(clients.trial_caches, clients.trials), list[CpuTrial]()
    for sweep in sweeps:
        if sweep.plan is None or sweep.plan.gpus or sweep.phase not in PHASES_WITH_TRIALS:
            continue
        namespace = sweep.plan.experiment_ref.namespace
        pods = await reader.list("Pod", namespace, labels=f"{SWEEP_LABEL}={sweep.id}")
        found += await asyncio.to_thread(_trials, sweep, namespace, pods)
    return found


def _trials(sweep: SweepRecord, namespace: str, pods: Iterable[Manifest]) -> list[CpuTrial]:
    """Run it in a thread: 10,000 pods take a second."""
    groups: dict[str, list[tuple[Pod, Manifest]]] = defaultdict(list)
    for obj in pods:
        pod, trial = read_trial_pod(obj), (obj["metadata"].get("labels") or {}).get(TRIAL_LABEL)
        lives = pod.node and not (pod.finished or pod.deleted)
        if trial and lives and not device_sizes(obj["spec"]):
            groups[trial].append((pod, obj))
    found = []
    for name, mine in groups.items():
        first, obj = mine[0]
        training = [each for each in obj["spec"]["containers"] if each["name"] == first.container]
        trial = CpuTrial(
            sweep=sweep,
            namespace=namespace,
            name=name,
            pods=tuple(pod for pod, _ in mine),
            cores=requested(training, "cpu") or 0.0,
            ram=requested(training, "memory") or 0.0,
            limit=requested(training, "memory", "limits") or 0.0,
        )
        found.append(trial)
    return found


class CpuAssessor:
    """Measures trials; each window is queried once for all."""

    def __init__(self, queries: CpuQueries, trials: Collection[CpuTrial], now: datetime) -> None:
        self._queries, self._trials, self._now = queries, trials, now
        self._namespaces = {trial.namespace for trial in trials}

    async def assess(self, thresholds: Mapping[str, IdleThresholds]) -> list[tuple[GpuAllocation, Kind]]:
        """Return each trial with its state. `thresholds`: by sweep. Raises NoGpuDataError."""
        if not self._trials:
            return []
        windows = {name: measurement_window(thresholds[name]) for name in thresholds}
        over = {each: await self._over(each) for each in {LOW_WINDOW, *windows.values()}}
        long = await self._with_history(over[LOW_WINDOW], thresholds)

        def classified() -> list[tuple[GpuAllocation, Kind]]:
            found = []
            for trial in self._trials:
                name = trial.sweep.id
                kind, what, share = classify(trial, over[windows[name]], long, thresholds[name], self._now)
                found.append((_allocation(trial, what, share), kind))
            return found

        return await asyncio.to_thread(classified)

    async def _over(self, window: timedelta) -> Measured:
        return Measured.of(await self._queries.use(window, self._namespaces))

    async def _with_history(self, long: Measured, thresholds: Mapping[str, IdleThresholds]) -> Measured:
        """Check what would cause a warning: drop bursty trials' cores, and return memory since the start."""
        low = [trial for trial in self._trials if _is_low(trial, long, thresholds[trial.sweep.id])]
        spare = [trial for trial in self._trials if _is_spare(trial, long, thresholds[trial.sweep.id])]
        cores, ram = dict(long.cores), dict(long.ram)
        if low:
            bursts = await self._queries.bursts(LOW_WINDOW, self._namespaces)
            bursty = [trial for trial in low if (trial.share(bursts) or 0.0) >= LOW_P95]
            cores |= {pod: None for trial in bursty for pod in trial.keys}
        if spare:
            ages = [self._now - trial.started for trial in spare if trial.started]
            life = min(MAX_LIFE, max([LOW_WINDOW, *ages]))
            pods = [pod for trial in spare for pod in trial.keys]
            ram |= await self._queries.peaks(life, self._namespaces, pods)
        return replace(long, cores=cores, ram=ram)


def classify(
    trial: CpuTrial, lately: Measured, long: Measured, thresholds: IdleThresholds, now: datetime
) -> tuple[Kind, str, float]:
    """Return the trial's state, and what it is about: as text, and its used share.

    Args:
        lately: over `measurement_window`.
        long: over LOW_WINDOW; the memory since the start.
    """
    share, peak = trial.share(lately.cores), trial.peak(lately.ram)
    age = now - trial.started if trial.started else timedelta(0)
    settled = thresholds.idle_minutes and age >= measurement_window(thresholds) * SETTLING
    if settled and trial.cores >= LARGE_CPU and share is not None and share < BUSY:
        return Kind.IDLE, trial.all_cores, share
    if peak is not None and trial.limit and 100 * peak >= (thresholds.memory_percent or inf) * trial.limit:
        return Kind.FULL, f"memory limit of {gib(trial.limit)}", peak / trial.limit
    if age >= LOW_WINDOW and _is_low(trial, long, thresholds):
        return Kind.LOW, trial.all_cores, trial.share(long.cores) or 0.0
    if age >= LOW_WINDOW and _is_spare(trial, long, thresholds):
        return Kind.SPARE, f"{gib(trial.ram)} of memory", (trial.peak(long.ram) or 0.0) / trial.ram
    return (Kind.UNKNOWN if share is None and peak is None else Kind.FINE), trial.all_cores, share or 0.0


def _is_low(trial: CpuTrial, long: Measured, thresholds: IdleThresholds) -> bool:
    share = trial.share(long.cores)
    return trial.cores >= LARGE_CPU and share is not None and 100 * share < thresholds.low_percent


def _is_spare(trial: CpuTrial, long: Measured, thresholds: IdleThresholds) -> bool:
    peak = trial.peak(long.ram)
    return trial.ram >= LARGE_RAM and peak is not None and 100 * peak < thresholds.low_percent * trial.ram


def _allocation(trial: CpuTrial, what: str, share: float) -> GpuAllocation:
    """Return the trial as one device, whose utilization is the share."""
    return GpuAllocation(
        namespace=trial.namespace,
        name=trial.name,
        sweep=trial.sweep.id,
        pods=tuple(pod.name for pod in trial.pods),
        nodes=tuple(sorted({pod.node for pod in trial.pods})),
        started=trial.started,
        began=trial.started,
        allocated=1,
        gpus=(Gpu(device="", peak=share, mean=share),),
        busy_ever=True,
        what=what,
    )


def gib(size: float) -> str:
    return f"{size / GIB:.4g} GiB"


async def cpu_utilization(queries: CpuQueries, trials: Sequence[CpuTrial], window: timedelta) -> str:
    """Return a list of what trials use. Raises NoGpuDataError."""
    if not trials:
        return "The trials have ended."
    use = Measured.of(await queries.use(window, {trial.namespace for trial in trials}))
    rest = [f"… and {len(trials) - MAX_SHOWN} more"] if len(trials) > MAX_SHOWN else []
    head = f"CPU and memory use over the last {duration(window)} (Prometheus):"
    return "\n".join([head, *(_line(trial, use) for trial in trials[:MAX_SHOWN]), *rest])


def _line(trial: CpuTrial, use: Measured) -> str:
    share, peak = trial.share(use.cores), trial.peak(use.ram)
    cores = "too few samples" if share is None else f"mean {100 * share:.1f}% of {trial.all_cores}"
    cores = cores if trial.cores else "no CPUs requested"
    memory = "" if peak is None else f", memory max {gib(peak)}"
    most = f" of {gib(trial.limit or trial.ram)}" if memory and (trial.limit or trial.ram) else ""
    return f"• {code(trial.name)}: {cores}{memory}{most}"
