"""Errors of calls to the Kubernetes API."""

from dataclasses import dataclass, field


@dataclass
class ApiError(Exception):
    """An error response of the API server. `reason` is that of the Status object; can be empty."""

    status: int
    reason: str
    message: str  # its first 500 characters
    wait: float = field(default=0, compare=False)  # seconds, where it says Retry-After; 60 at most

    def __str__(self) -> str:
        return f"{self.message} ({self.status}{' ' * bool(self.reason)}{self.reason})"

    @property
    def absent(self) -> bool:
        """The object doesn't exist."""
        return self.status == 404 and self.reason == "NotFound"

    @property
    def exists(self) -> bool:
        """There is one already, which is not about to go: that one says "object is being deleted: ..."."""
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
    def permanent(self) -> bool:
        """A retry fails until somebody fixes the cause.

        Webhooks reject with 400, quotas with 403; 404 is a missing namespace or a kind that is not installed;
        413 is a body beyond the server's 3 MiB.
        """
        return self.status in {400, 403, 404, 413, 422}


class UnreachableError(Exception):
    """The API server did not answer, or stopped in the middle."""
