"""Errors that several rooms share. The root of all errors is `k8s.api.errors.SweepbotError`."""

from k8s.api.errors import SweepbotError


class UserError(SweepbotError):
    """An error the user can fix. The message says what is wrong, where, and what to do.

    `field` is the option or form field it concerns, such as `branch`; "" if there is no single one.
    """

    exit_code = 2  # of the command line

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class UnknownNameError(UserError):
    """What the user named doesn't exist."""

    exit_code = 1


class RetryAfterError(SweepbotError):
    """Another system asks to wait: the item runs again after `seconds`, and has not failed."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class FailedCallError(SweepbotError):
    """Another system doesn't do what it was asked to. The item is retried, and its text says all."""


class PermanentError(SweepbotError):
    """An error that a retry is not expected to fix; several in a row quarantine the item."""
