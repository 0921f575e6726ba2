"""Requests about environments, from a command, a form, or a button, for one work item: their verbs, how long
one is kept, and its line in the audit log.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from bot.core.stored_format import parse, strict_adapter
from bot.core.work_item import WorkItem
from bot.platform.runtime.audit import audit
from bot.workspaces.services.snippet import Service

ITEM = WorkItem("environment-commands", "now")
KEEP = timedelta(days=1)  # a start that comes later would surprise


class Verb(StrEnum):
    START = "start"
    LIST = "list"
    OPEN = "open"
    STOP = "stop"
    KEEP = "keep"
    DELETE = "delete"
    DELETE_HOME = "delete home"


@dataclass(frozen=True, kw_only=True)
class EnvironmentRequest:
    verb: Verb
    user: str
    user_name: str = ""
    channel: str = ""
    response_url: str = ""
    request_id: str = ""  # Slack's id: a repeated delivery starts no second environment
    name: str = ""  # of the environment, or of the home; "": the user's only one
    suggested: str = ""  # start without a name: the name of a new environment
    image: str = ""  # start; "" leaves it as it is, or is the default; also below
    size: str = ""
    gpus: int | None = None
    profile: str = ""
    home: str = ""  # a size, or the name of a home
    hours: int = 0  # keep
    which: str = ""  # list: "", "team", or "idle"
    view: str = ""  # open: id of the modal
    services: bool = False  # it is about services: the ones to list, and the one to delete
    service: Service | None = None  # start

    @property
    def has_options(self) -> bool:
        """Return whether a start sets anything but the name."""
        return bool(self.image or self.size or self.gpus is not None or self.profile or self.home)


_REQUEST = strict_adapter(EnvironmentRequest)


def write_audit(request: EnvironmentRequest, name: str, refusal: str = "") -> None:
    """Log a request about the environment or home `name`. `refusal`: why it is denied."""
    audit.info(
        "user=%s action=environment_%s environment=%s: %s",
        request.user,
        request.verb.replace(" ", "_"),
        name or "new",
        f"denied: {refusal}" if refusal else "allowed",
    )


def dump(request: EnvironmentRequest) -> str:
    return _REQUEST.dump_json(request, exclude_defaults=True).decode()


def load(stored: str | bytes) -> EnvironmentRequest:
    """Raises NewerFormatError for a request that only a newer version can read completely."""
    return parse(_REQUEST, stored, "a request about environments")
