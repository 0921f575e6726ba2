"""The items of the work queue: a sweep to reconcile, or a job of another kind."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class ItemKind(StrEnum):
    """What handles an item (bot.app maps each kind to its handler), and what its key means."""

    SWEEP = "sweep"  # the sweep's ID
    DOCTOR = "doctor"  # "now"
    IDLE_GPUS = "watch"  # "gpus"
    GPU_QUESTIONS = "gpus"  # "now"
    GIT_NAMES = "look"  # URL, or URL and branch
    PREVIEW = "preview"  # ID of the Slack view
    SETUP = "setup"  # "now", or the Slack user ID of somebody to greet
    DIGEST = "digest"  # channel and day
    IMAGE_GC = "registry"  # "tidy"
    SWEEP_GC = "sweeps"  # "retire"


@dataclass(frozen=True)
class WorkItem:
    """`kind` is an ItemKind, or what another version of Sweepbot queued and this one doesn't know."""

    kind: str
    key: str

    @classmethod
    def sweep(cls, sweep_id: str) -> Self:
        return cls(ItemKind.SWEEP, sweep_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` of an item wrote: a bare sweep ID, or `kind: key`."""
        kind, separator, key = text.partition(": ")
        return cls(kind, key) if separator else cls.sweep(text)

    def __str__(self) -> str:
        return self.key if self.kind == ItemKind.SWEEP else f"{self.kind}: {self.key}"
