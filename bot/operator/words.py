"""The names of the operators' commands, and what Slack's answer and the causes share. Pure."""

from dataclasses import dataclass

COMMANDS = {
    "ps": "list unfinished sweeps and failing jobs, those in trouble first",
    "inspect": "print why a sweep doesn't continue, with its record, objects, and last errors",
    "retry": "reconcile a sweep now instead of after its delay",
    "release": "release a sweep or job from quarantine",
    "recover": "restore from ConfigMaps the records that Redis lost, and reconcile all unfinished sweeps",
}
ABOUT_ONE = {"inspect", "retry", "release"}  # need a name
MAX_NAME = 300  # characters
WORK = "deployment/sweepbot-work"
LOGS = f"`kubectl -n sweepbot logs {WORK}`"


@dataclass(frozen=True)
class Cause:
    text: str
    fix: str = ""


NO_WORKER = Cause(
    "No worker is running: no process holds a lease.",
    f"`kubectl -n sweepbot get pods`; {LOGS}; `kubectl -n sweepbot rollout restart {WORK}`",
)
