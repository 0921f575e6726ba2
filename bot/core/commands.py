"""Commands on existing sweeps: their actions, which ones everyone can use, the verbs that denials have for
them, and the entries of the audit log.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bot.core.stored_format import parse, strict_adapter


class Action(StrEnum):
    """What users can do to a sweep. Values are stored in records; `label` is for users."""

    CANCEL = "cancel"
    DRAIN = "drain"  # start no more trials; running trials finish
    PAUSE = "pause"  # running trials finish
    PAUSE_NOW = "pause now"  # running trials are stopped
    RESUME = "resume"
    KILL = "end a trial of"
    STOP_IDLE = "stop the idle trial of"  # given by the GPU monitor alone, without a user
    EXTEND = "extend"
    BUDGET = "raise the budget of"
    APPROVE = "approve"  # above a limit of a month
    DECLINE = "decline"
    OPEN = "start all trials of"  # without waiting for the first one
    RETRY = "try again"  # run a held sweep's first trial again
    LAUNCH = "launch"
    RERUN = "rerun"  # start the same request as a new sweep
    PROMOTE = "promote"  # start a new sweep: the best parameters with several seeds
    BISECT = "bisect"  # start sweeps of one trial until the commit that broke it is known
    COMPARE = "compare"
    HISTORY = "see the history of"  # a space, not a sweep
    STATUS = "look at"
    LOGS = "read the logs of"
    RESULTS = "see the results of"
    TRIALS = "see the trials of"
    CURVES = "see the learning curves of"
    SHOW = "see the pictures of"
    KEEP = "keep the idle GPUs of"  # handled by the GPU monitor
    MEASURES = "see the GPU use of"  # as above
    ASK = "ask the owner of"  # a pod outside sweeps; handled by the GPU monitor
    RELEASE = "release"  # from quarantine; handled by the queue
    QUEUE = "see the queue"  # no sweep
    RAISE = "raise the priority of"
    LOWER = "lower the priority of"
    MOVE = "move to another queue"
    HOLD = "hold the waiting trials of"
    UNHOLD = "release the waiting trials of"
    EXAMINE = "examine"  # the installation, not a sweep
    OPERATE = "operate"  # a command of an admin; `changes` has its words

    @property
    def label(self) -> str:
        """Return the verb phrase that goes before a sweep's name."""
        return _LABELS.get(self, self.value)

    @property
    def starts_sweep(self) -> bool:
        """Whether it starts another sweep, whose own reconcile checks who can launch."""
        return self in {Action.RERUN, Action.PROMOTE, Action.BISECT}

    @property
    def is_approval(self) -> bool:
        """Whether others than those who control a sweep decide; the rule of the command says who."""
        return self in {Action.APPROVE, Action.DECLINE}

    @property
    def is_question(self) -> bool:
        """Whether it only wants an answer, so that its user repeats it if none comes."""
        return self in _QUESTIONS

    @property
    def is_read_only(self) -> bool:
        """Whether it leaves this sweep unchanged, so that everyone can use it."""
        return self.is_question or self.starts_sweep


_LABELS = {
    Action.KILL: "cancel a trial of",
    Action.MOVE: "choose the queue of",
    Action.PAUSE_NOW: "pause",
    Action.RETRY: "retry the first trial of",
    Action.KEEP: "snooze GPU warnings for",
    Action.STATUS: "see the status of",
    Action.MEASURES: "see the GPU utilization of",
}


_QUESTIONS = {
    *(Action.COMPARE, Action.STATUS, Action.LOGS, Action.RESULTS, Action.TRIALS, Action.CURVES),
    Action.SHOW,
    *(Action.HISTORY, Action.MEASURES, Action.QUEUE, Action.EXAMINE),
}


API = "API"  # where a command came from, if not from Slack


@dataclass(frozen=True, kw_only=True)
class Command:
    """A typed command or a click, waiting for the next reconcile."""

    action: Action
    user: str
    user_name: str
    response_url: str = ""
    trial: str = ""  # kill: the trial's name or its end; below a GPU warning, several with spaces between
    trials: int = 0  # extend: the new total
    queue: str = ""  # move: the new queue
    budget: str = ""  # budget: the new one, as typed
    reason: str = ""  # decline
    metric: str = ""  # curves: another one than the objective
    changes: str = ""  # rerun, promote: options to change, as typed; compare: the other sweeps
    request_id: str = ""  # rerun, promote, and kill below a GPU warning: Slack's id of the request
    channel: str = ""  # rerun, promote: of the new thread; "" is the sweep's own channel
    in_thread: bool = False  # sent in the sweep's thread, where it is answered
    clicked: str = ""  # channel and ts of the clicked message, unless it is in a thread
    view: str = ""  # trials: id of the modal
    alert: str = ""  # keep, measures, kill: id of the warning; ask: pods as namespace/pod, with spaces
    hours: int = 0  # keep
    via: str = ""  # API, or API for CI NAME; "" is Slack

    @property
    def about(self) -> str:
        """The trial, the queue, the budget, or the number of trials that it names."""
        return self.trial or self.queue or self.budget or (f"{self.trials} trials" if self.trials else "")


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """A command that a user gave, applied or denied."""

    at: datetime
    user: str
    action: Action
    name: str = ""  # of the user
    about: str = ""  # a trial, a queue, a budget, a number of trials
    refused: str = ""  # why it was denied; "" if applied
    via: str = ""  # as in Command


_COMMAND = strict_adapter(Command)


def dump_command(command: Command) -> str:
    """Serialize without defaults: the same command has the same text even after fields were added."""
    return _COMMAND.dump_json(command, exclude_defaults=True).decode()


def load_command(text: str | bytes) -> Command:
    """Raise NewerFormatError for a newer one, which could mean something else without its unknown fields."""
    return parse(_COMMAND, text, "a command")
