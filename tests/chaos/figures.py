"""The figures of a run."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Figures:
    """`broken`: the invariants that did not hold, each with the sweep's history."""

    sweeps: int = 0
    reruns: int = 0
    commands: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled_experiments: int = 0
    doubled_builds: int = 0
    failed_by_faults: int = 0  # sweeps whose builds and trainings succeed
    held: int = 0
    requests: int = 0  # acknowledged: reruns, promotions, starts of environments, setups of channels
    lost_requests: int = 0
    cancelled: int = 0
    uncancelled: int = 0
    quarantined: int = 0
    repeated_messages: int = 0
    second_threads: int = 0
    restored: int = 0
    untold: int = 0
    broken: list[str] = field(default_factory=list)

    def __iadd__(self, other: "Figures") -> Self:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    def __str__(self) -> str:
        lines = [
            f"{self.faults.total()} faults in {self.calls} calls",
            f"{self.sweeps} sweeps, {self.reruns} reruns, {self.commands} commands",
            f"faults: {_listed(self.faults)}",
            f"ended: {_listed(self.phases)}",
            f"{self.lost} sweeps lost",
            f"{self.lost_requests} of {self.requests} acknowledged reruns, promotions, /env, and setups lost",
            f"{self.doubled_experiments} doubled experiments, {self.doubled_builds} doubled builds",
            f"{self.failed_by_faults} sweeps that failed because of a fault",
            f"{self.held} sweeps that held GPUs after their end",
            f"{self.uncancelled} of {self.cancelled} acknowledged cancels without effect",
            f"{self.quarantined} quarantined and released",
            f"{self.repeated_messages} repeated messages, {self.second_threads} second threads",
        ]
        if any(name.startswith("flushed") for name in self.faults):
            lines.append(
                f"{self.restored} sweeps restored from the cluster, {self.untold} of them without a message"
            )
        return "\n".join(f"  {line}" for line in lines)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"
