"""The Kubernetes objects and logs from which a trial is diagnosed, or an experiment without one, and the
diagnosis made of them, with its short cause. Pure.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from bot.core.space import MetricSource
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.log_cause import STALE, STALE_IF_KILLED, LogCause, find_cause, quoted
from k8s.engine import Experiment, SearchService, Trial
from k8s.objects import GPU, Manifest, condition, parse_time
from k8s.pods import COLLECTORS, READER, STARTING, read_trial_pod
from k8s.trial_kinds import TRIAL_LABEL, is_suspended, pod_index, training_container

LAST_SIGNAL = 64  # of Linux; exit(-1) is 255
# containerd, internal/cri/server/restart.go: the reason for a container that it lost, with code 255
LOST = "Unknown"
# kubelet, pkg/kubelet/eviction/eviction_manager.go: of a container, of the pod, and of a volume in the pod
OVER_DISK = (
    r'exceeded its local ephemeral storage limit "([^"]{1,40})"'
    r"|exceeds the total limit of containers (\w{1,40})"
    r'|EmptyDir volume "[^"]{1,63}" exceeds the limit "([^"]{1,40})"'
)


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    now: datetime
    metric: str
    source: MetricSource = MetricSource.TENSORBOARD
    metrics_path: str = ""  # of MetricSource.FILE
    gpus: int
    noun: str = "trial"  # what the pod belongs to, in texts
    resource: str = GPU  # that they are requested as
    experiment: Experiment | None = None  # None: the pod is of something else
    search: SearchService | None = None
    services: tuple[Manifest, ...] = ()  # pods of the search service
    trial: Trial | None = None
    job: Manifest | None = None
    pod: Manifest | None = None  # the latest one; of several workers, the one that explains the trial
    workers: int = 1  # nodes of the trial
    workload: Manifest | None = None  # Kueue's, of a suspended Job
    position: int | None = None  # of the Workload in its ClusterQueue, from 0; None: unknown
    nodes: tuple[Manifest, ...] = ()  # empty: not requested, or no permission
    events: tuple[Manifest, ...] = ()  # about any of these, oldest first
    log: str = ""  # the end of the training's log
    collector_log: str = ""

    @property
    def container(self) -> str:
        """Name of the container of the training."""
        return training_container(self.pod) if self.pod else ""

    @property
    def status(self) -> Manifest:
        """The pod's status."""
        found: Manifest = (self.pod or {}).get("status", {})
        return found

    @property
    def waiting(self) -> tuple[str, str]:
        """Reason and message of the first waiting container, init containers first."""
        for state in self._states():
            if found := state.get("waiting"):
                return found.get("reason", ""), found.get("message", "")
        return "", ""

    @property
    def exit(self) -> Manifest | None:
        """The terminated state of the training; of a restarted container, the previous one."""
        for each in self.status.get("containerStatuses") or ():
            if each["name"] == self.container:
                past = (each.get("lastState") or {}).get("terminated")
                return (each.get("state") or {}).get("terminated") or past
        return None

    @property
    def collector(self) -> str:
        """Name of the container that collects metrics; "" without one, or without Katib's webhook."""
        pod = self.pod or {"metadata": {}, "spec": {}}
        every = (c["name"] for key in ("initContainers", "containers") for c in pod["spec"].get(key) or ())
        found = next((name for name in every if name in COLLECTORS), "")
        return "" if found == READER and TRIAL_LABEL not in pod["metadata"].get("labels", {}) else found

    @property
    def collector_exit(self) -> Manifest | None:
        for each in self._statuses():
            if each["name"] in COLLECTORS:
                return (each.get("state") or {}).get("terminated")
        return None

    @property
    def abandoned(self) -> bool:
        """Katib's collector failed before the training started, so no metrics are collected."""
        return self.pod is not None and read_trial_pod(self.pod).abandoned is not None

    @property
    def init_failed(self) -> str:
        """Name of the init container that failed; empty if none did."""
        return read_trial_pod(self.pod).init_failed if self.pod else ""

    @property
    def running(self) -> bool:
        """The training's container runs, by the kubelet's last report."""
        states = self.status.get("containerStatuses") or ()
        return any(
            each["name"] == self.container and (each.get("state") or {}).get("running") for each in states
        )

    @property
    def starting(self) -> bool:
        """The pod has a node, and its containers are being created without a known error."""
        placed = self.pod is not None and bool(self.pod["spec"].get("nodeName"))
        fresh = self.waiting[0] in STARTING
        return placed and fresh and self.status.get("phase") == "Pending"

    @property
    def disrupted(self) -> str:
        """Reason and message of the condition DisruptionTarget."""
        found = condition(self.pod, "DisruptionTarget")
        return f"{found.get('reason', '')}: {found.get('message', '')}" if found else ""

    @property
    def replaced(self) -> bool:
        """The disrupted pod starts again, with all workers of its trial, unless the trial has failed."""
        return bool(self.disrupted) and not self.counted_failed

    @property
    def index(self) -> int:
        """The worker's number, from 0."""
        return pod_index(self.pod) if self.pod else 0

    @property
    def trial_failed(self) -> bool:
        ended_by_queue = is_suspended(self.job)  # as at a preemption
        pod_failed = self.status.get("phase") == "Failed" and not (self.replaced or ended_by_queue)
        return self.counted_failed or pod_failed

    @property
    def counted_failed(self) -> bool:
        return self.trial is not None and self.trial.failed

    @property
    def unscheduled(self) -> Manifest | None:
        """The condition PodScheduled while it is False."""
        return condition(self.pod, "PodScheduled", "False") or None

    @cached_property
    def cause(self) -> LogCause:
        """What the log names as the cause, once the training has failed."""
        over = self.exit or {}
        killed = 128 < over.get("exitCode", 0) <= 128 + LAST_SIGNAL  # by a signal, which leaves no message
        killed = killed or over.get("reason") == LOST
        return find_cause(self.log, stale=STALE_IF_KILLED if killed else STALE)

    @property
    def tail(self) -> str:
        """The lines of the log to show."""
        return quoted(self.log, self.cause)

    def last(self, *reasons: str) -> Manifest | None:
        """Return the latest event with one of these reasons."""
        return next((e for e in reversed(self.events) if e.get("reason") in reasons), None)

    def line(self, pattern: str) -> str:
        """Return the last line of the log that matches; empty if none does."""
        found = [line for line in self.log.splitlines() if re.search(pattern, line)]
        return found[-1].strip() if found else ""

    def failed_with(self, pattern: str) -> str:
        """Return the message of the failure, or without one a line of the log's end, that matches.

        The training survived any other such line.
        """
        lines = [self.cause.line] if self.cause.line else reversed(self.tail.splitlines())
        return next((line for line in lines if re.search(pattern, line)), "")

    def from_log(self, key: str, text: str, fix: str, *, lasting: bool = False) -> Diagnosis:
        """Return a finding whose cause is in the log, which it quotes."""
        return self.found(key, text, fix, self.tail, cause=self.cause.text, lasting=lasting)

    def found(
        self,
        key: str,
        text: str,
        fix: str = "",
        detail: str = "",
        *,
        cause: str = "",
        soft: bool = False,
        lasting: bool = False,
        report_at: datetime | None = None,
    ) -> Diagnosis:
        return Diagnosis(
            key=key,
            text=text,
            fix=fix,
            detail=detail,
            cause=cause or text.rstrip("."),
            trial=self.trial.name if self.trial else "",
            parameters=self.trial.parameters if self.trial else {},
            failed=self.trial_failed,
            lasting=lasting or self.trial_failed,
            soft=soft,
            report_at=report_at,
        )

    def _states(self) -> Iterator[Manifest]:
        """Yield the states; not that of the reader once the training runs: it can restart beside it."""
        for each in self._statuses():
            if each["name"] != READER or not (self.running or self.exit):
                yield each.get("state") or {}

    def _statuses(self) -> Iterator[Manifest]:
        for group in ("initContainerStatuses", "containerStatuses"):
            yield from self.status.get(group) or ()


Rule = Callable[[TrialEvidence], Diagnosis | None]


def created_at(obj: Manifest | None, *, later: float = 0) -> datetime | None:
    """Return its creation time plus `later` seconds."""
    at = parse_time((obj or {}).get("metadata", {}).get("creationTimestamp"))
    return at and at + timedelta(seconds=later)


def event_time(event: Manifest, *, first: bool = False) -> datetime | None:
    """Return when an event occurred last, or first; events of new and old API versions differ in fields."""
    keys = ("firstTimestamp", "eventTime") if first else ("lastTimestamp", "eventTime", "firstTimestamp")
    return next((parse_time(event[key]) for key in keys if event.get(key)), created_at(event))


def since(condition: Manifest, *, later: float = 0) -> datetime | None:
    """Return the last transition of a condition plus `later` seconds."""
    at = parse_time(condition.get("lastTransitionTime"))
    return at and at + timedelta(seconds=later)
