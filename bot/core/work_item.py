"""The items of the work queue: a sweep to reconcile, or a job of another kind."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class ItemKind(StrEnum):
    """The kind of an item, which bot.work_process maps to its handler; comments say what the key is.

    Workspaces have kinds of their own (bot.workspace_table).
    """

    SWEEP = "sweep"  # the sweep's ID
    DOCTOR = "doctor"  # "now"
    IDLE_GPUS = "watch"  # "gpus"
    GPU_QUESTIONS = "gpus"  # "now"
    GIT_NAMES = "look"  # URL, or URL and branch
    PREVIEW = "preview"  # ID of the Slack view
    SETUP = "setup"  # "now", or the Slack user ID of a new user
    DIGEST = "digest"  # channel and day
    QUEUE = "queue"  # "now"
    HISTORY = "history"  # the space's name
    QUESTION = "question"  # its ID (bot.sweep.questions)
    PLAN_QUESTION = "plan"  # the ID of one that a slow git host delays
    TRIAL_RUNS = "runs"  # the ID of an ended sweep
    BISECT = "bisect"  # the ID of an ended sweep
    IMAGE_GC = "registry"  # "tidy"
    SWEEP_GC = "sweeps"  # "retire"
    QUIET = "quiet"  # the Slack user ID of a person with quiet hours
    CONFIG = "config"  # "valid", or the version of a rejected configuration file
    OPERATOR = "operator"  # "now"


@dataclass(frozen=True)
class WorkItem:
    """`kind` is an ItemKind, that of a workspace, or one that only another version of Sweepbot knows."""

    kind: str
    key: str

    @classmethod
    def sweep(cls, sweep_id: str) -> Self:
        return cls(ItemKind.SWEEP, sweep_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `str`: a bare sweep ID, or `kind: key`."""
        kind, separator, key = text.partition(": ")
        return cls(kind, key) if separator else cls.sweep(text)

    def __str__(self) -> str:
        return self.key if self.kind == ItemKind.SWEEP else f"{self.kind}: {self.key}"


DOCTOR = WorkItem(ItemKind.DOCTOR, "now")
OPERATOR = WorkItem(ItemKind.OPERATOR, "now")
QUEUE = WorkItem(ItemKind.QUEUE, "now")
