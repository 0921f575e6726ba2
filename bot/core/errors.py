"""Errors that several rooms share."""


class UserError(Exception):
    """Something the person can fix; the text is a sentence for them: what is wrong, where, what to do."""


class RetryAfterError(Exception):
    """Another system asks to wait: the item runs again after `seconds`, and has not failed."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class PermanentError(Exception):
    """An error that a retry is not expected to fix; several in a row quarantine the item."""
