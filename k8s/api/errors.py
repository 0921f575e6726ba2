"""Errors of calls to the Kubernetes API, what their statuses mean (absent, conflict, throttled, forbidden,
worth a retry), and the root of all of Sweepbot's errors.
"""

from dataclasses import dataclass, field
from datetime import datetime


class SweepbotError(Exception):
    """The root of all errors that Sweepbot raises."""


@dataclass
class ApiError(SweepbotError):
    """An error response of the API server; `reason` is that of its Status object, or empty."""

    status: int
    reason: str
    message: str  # its first 500 characters
    wait: float = field(default=0, compare=False)  # seconds of Retry-After, up to 60

    def __str__(self) -> str:
        said = f"{self.message} ({self.status}{' ' * bool(self.reason)}{self.reason})"
        return f"the API server rejects Sweepbot's credentials: {said}" if self.status == 401 else said

    @property
    def absent(self) -> bool:
        """The object doesn't exist."""
        return self.status == 404 and self.reason == "NotFound"

    @property
    def exists(self) -> bool:
        """The object already exists; False if it is being deleted."""
        return self.reason == "AlreadyExists" and not self.message.startswith("object is being deleted")

    @property
    def stale(self) -> bool:
        """The object has changed since it was read, or is another one of the same name."""
        return self.reason == "Conflict"

    @property
    def expired(self) -> bool:
        """The resourceVersion or the continue token is too old: list again."""
        return self.status == 410

    @property
    def throttled(self) -> bool:
        """The server is overloaded or starting: retry after `wait` seconds."""
        return self.status == 429 and self.wait > 0

    @property
    def outage(self) -> bool:
        """A server-side failure, also of a proxy, a webhook, or an aggregated API."""
        return self.status >= 500

    @property
    def denied(self) -> bool:
        """The caller lacks a permission, or the server has just started and hasn't read all roles yet.

        The latter can take minutes (kubernetes#121635).
        """
        return self.status == 403 and '" cannot ' in self.message

    @property
    def permanent(self) -> bool:
        """Retries fail until the cause is fixed.

        Webhooks reject with 400, quotas with 403; 404 is a missing namespace or a kind that isn't installed;
        413 is a body beyond the server's 3 MiB.
        """
        return self.status in {400, 403, 404, 413, 422}


class UnreachableError(SweepbotError):
    """No response from the API server, or an incomplete one."""


class ClusterUnreachableError(UnreachableError):
    """A cluster of trials doesn't answer, or must not be used; other clusters are not affected.

    `fix`: what an admin must do; "" if the cluster only doesn't answer.
    """

    def __init__(self, cluster: str, why: str, *, seen: datetime | None = None, fix: str = "") -> None:
        super().__init__(f"cluster {cluster}: {why}")
        self.cluster, self.why, self.seen, self.fix = cluster, why, seen, fix
