"""What people want of a running sweep, and the audit log of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import TypeAdapter


class Action(StrEnum):
    """What users can do to a sweep. Values are stored in records; `label` is for users."""

    CANCEL = "cancel"
    DRAIN = "drain"  # start no more trials, let the running ones end
    KILL = "end a trial of"
    EXTEND = "extend"
    LAUNCH = "launch"
    RERUN = "rerun"  # the same request as another sweep
    STATUS = "look at"
    LOGS = "read the logs of"
    RESULTS = "see the results of"
    TRIALS = "see the trials of"
    KEEP = "keep the idle GPUs of"  # heard where GPUs are watched
    MEASURES = "see the GPU use of"  # as above
    RELEASE = "release"  # from quarantine; heard by the queue
    EXAMINE = "examine"  # not a sweep but the whole installation

    @property
    def label(self) -> str:
        """Return the verb phrase that goes before a sweep's name."""
        return _LABELS.get(self, self.value)

    @property
    def is_read_only(self) -> bool:
        """It stays as it is, so everybody may; a rerun is another sweep, whose turn asks who may launch."""
        return self in {Action.RERUN, Action.STATUS, Action.LOGS, Action.RESULTS, Action.TRIALS}


_LABELS = {
    Action.KILL: "cancel a trial of",
    Action.KEEP: "snooze GPU warnings for",
    Action.STATUS: "see the status of",
    Action.MEASURES: "see the GPU utilization of",
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A click or a word on a living sweep, waiting for its next turn."""

    action: Action
    user: str
    user_name: str
    response_url: str = ""
    trial: str = ""  # kill: the trial's name, or its end; several with blanks where GPUs are watched
    trials: int = 0  # extend: how many there shall be in all
    changes: str = ""  # rerun: what shall differ, as typed
    request_id: str = ""  # rerun, and kill where GPUs are watched: Slack's id of the wish
    channel: str = ""  # rerun: where its thread shall be; empty: where the sweep's is
    in_thread: bool = False  # asked in the sweep's thread, where it is answered
    clicked: str = ""  # channel and ts of the message whose button it was, outside of threads
    view: str = ""  # trials: the modal that shows them
    alert: str = ""  # keep, measures, kill: which warning it is about
    hours: int = 0  # keep


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """What somebody did to a sweep, or was refused."""

    at: datetime
    user: str
    action: Action
    name: str = ""  # of the user
    about: str = ""  # a trial, a number of trials
    refused: str = ""  # why; empty: it was done


_COMMAND: TypeAdapter[Command] = TypeAdapter(Command)


def dump_command(command: Command) -> str:
    """The same text for the same ask, also when Ask has got more fields since: so it is found again."""
    return _COMMAND.dump_json(command, exclude_defaults=True).decode()


def load_command(text: str | bytes) -> Command:
    return _COMMAND.validate_json(text)
