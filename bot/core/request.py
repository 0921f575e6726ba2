"""What was requested, and by whom."""

from dataclasses import dataclass
from enum import StrEnum


class Notify(StrEnum):
    """Where the owner is told of a failed first trial and of the end; the thread tells everything anyway."""

    CHANNEL = "channel"  # by name, and for the whole channel to see
    DM = "dm"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """What was asked for. None: not said, so the space file or the configuration decides."""

    branch: str
    space: str
    gpus: int = 1  # per trial
    repo: str | None = None  # a name from the configuration, or an allowed URL
    image: str | None = None  # a ready one: nothing is built
    parallel: int | None = None
    trials: int | None = None
    name: str | None = None
    cmd: str | None = None
    notify: Notify = Notify.CHANNEL
    algorithm: str | None = None
    text: str | None = None  # of the space, when it was written in the form and is in no file
    commit: str | None = None  # the one that the form's preview showed; None: the branch as it is


@dataclass(frozen=True, kw_only=True)
class Requester:
    """Who asked, and where to answer."""

    user: str  # Slack user id
    user_name: str
    channel: str  # Slack channel id
    response_url: str = ""  # for private answers; Slack keeps it 30 minutes and 5 uses
