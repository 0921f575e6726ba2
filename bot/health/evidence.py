"""What is known of one trial, or of an experiment that has none yet: objects as the API gave them. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.health.diagnosis import Diagnosis
from k8s.katib.spec import MAIN
from k8s.objects import Manifest, parse_time, true_conditions
from k8s.pods import COLLECTORS, read_pod

SHOWN = 20  # lines of a log


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    now: datetime
    metric: str
    gpus: int
    experiment: Manifest
    suggestion: Manifest | None = None
    services: tuple[Manifest, ...] = ()  # pods of the search service
    trial: Manifest | None = None
    job: Manifest | None = None
    pod: Manifest | None = None  # the latest one
    workload: Manifest | None = None  # Kueue's, of a suspended Job
    nodes: tuple[Manifest, ...] = ()  # none: not asked, or not allowed to
    events: tuple[Manifest, ...] = ()  # about any of these, the latest last
    log: str = ""  # the training's last lines
    collector_log: str = ""

    @property
    def status(self) -> Manifest:
        """Of the pod."""
        found: Manifest = (self.pod or {}).get("status", {})
        return found

    @property
    def waiting(self) -> tuple[str, str]:
        """Reason and message of the first container that has not started; init containers come first."""
        for state in self._states():
            if waits := state.get("waiting"):
                return waits.get("reason", ""), waits.get("message", "")
        return "", ""

    @property
    def exit(self) -> Manifest | None:
        """How the training ended; in a restarted container, how it ended before."""
        for each in self.status.get("containerStatuses") or ():
            if each["name"] == MAIN:
                past = (each.get("lastState") or {}).get("terminated")
                return (each.get("state") or {}).get("terminated") or past
        return None

    @property
    def collector_exit(self) -> Manifest | None:
        for each in self.status.get("containerStatuses") or ():
            if each["name"] in COLLECTORS:
                return (each.get("state") or {}).get("terminated")
        return None

    @property
    def abandoned(self) -> bool:
        """The collector had failed before the training started: nothing reads its metrics."""
        return self.pod is not None and read_pod(self.pod, MAIN).abandoned is not None

    @property
    def running(self) -> bool:
        """The training, as far as its node has said."""
        states = self.status.get("containerStatuses") or ()
        return any(each["name"] == MAIN and (each.get("state") or {}).get("running") for each in states)

    @property
    def being_made(self) -> bool:
        """The pod has a node, and its containers are on their way."""
        placed = self.pod is not None and bool(self.pod["spec"].get("nodeName"))
        fresh = self.waiting[0] in {"", "ContainerCreating", "PodInitializing"}
        return placed and fresh and self.status.get("phase") == "Pending"

    @property
    def disrupted(self) -> str:
        """Why the pod had to go through nobody's fault: the Job makes another one."""
        found = true_conditions({"status": self.status}).get("DisruptionTarget")
        return f"{found.get('reason', '')}: {found.get('message', '')}" if found else ""

    @property
    def ended_badly(self) -> bool:
        failed = self.trial and {"Failed", "MetricsUnavailable"} & true_conditions(self.trial).keys()
        return bool(failed) or (self.status.get("phase") == "Failed" and not self.disrupted)

    @property
    def unscheduled(self) -> Manifest | None:
        """The condition that says why no node takes the pod."""
        for each in self.status.get("conditions") or ():
            if each["type"] == "PodScheduled" and each["status"] == "False":
                found: Manifest = each
                return found
        return None

    @property
    def tail(self) -> str:
        return "\n".join(self.log.splitlines()[-SHOWN:])

    def last(self, *reasons: str) -> Manifest | None:
        """The latest event with one of these reasons."""
        return next((e for e in reversed(self.events) if e.get("reason") in reasons), None)

    def line(self, pattern: str) -> str:
        """The last line of the log that has the pattern."""
        found = [line for line in self.log.splitlines() if re.search(pattern, line)]
        return found[-1].strip() if found else ""

    def found(
        self,
        key: str,
        text: str,
        fix: str = "",
        detail: str = "",
        *,
        soft: bool = False,
        lasting: bool = False,
        tell_at: datetime | None = None,
    ) -> Diagnosis:
        assignments = (self.trial or {}).get("spec", {}).get("parameterAssignments") or ()
        return Diagnosis(
            key=key,
            text=text,
            fix=fix,
            detail=detail,
            trial=(self.trial or {}).get("metadata", {}).get("name", ""),
            parameters={each["name"]: str(each["value"]) for each in assignments},
            failed=self.ended_badly,
            lasting=lasting or self.ended_badly,
            soft=soft,
            tell_at=tell_at,
        )

    def _states(self) -> Iterator[Manifest]:
        for group in ("initContainerStatuses", "containerStatuses"):
            for each in self.status.get(group) or ():
                yield each.get("state") or {}


def born(obj: Manifest | None, *, later: float = 0) -> datetime | None:
    """When it was made, and `later` seconds."""
    at = parse_time((obj or {}).get("metadata", {}).get("creationTimestamp"))
    return at and at + timedelta(seconds=later)


def said_at(event: Manifest, *, first: bool = False) -> datetime | None:
    keys = ("firstTimestamp", "eventTime") if first else ("lastTimestamp", "eventTime", "firstTimestamp")
    return next((parse_time(event[key]) for key in keys if event.get(key)), born(event))


def since(condition: Manifest, *, later: float = 0) -> datetime | None:
    at = parse_time(condition.get("lastTransitionTime"))
    return at and at + timedelta(seconds=later)
