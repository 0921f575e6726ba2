"""Format logs: one line per record, as JSON or text, with its sweep, and with secrets masked."""

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from bot.text.masking import Mask

log = logging.getLogger(__name__)

_sweep: ContextVar[str] = ContextVar("sweep", default="")


@contextmanager
def about(sweep_id: str) -> Iterator[None]:
    """Add the sweep to each line logged in the body, and in tasks and threads started there."""
    token = _sweep.set(sweep_id)
    try:
        yield
    finally:
        _sweep.reset(token)


def current_sweep() -> str:
    """Return the sweep, or other work item, that this task works on; "" for none."""
    return _sweep.get()


class JsonLines(logging.Formatter):
    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": when.replace("+00:00", "Z"), "level": record.levelname, "logger": record.name}
        line["message"] = self._mask(_message(record))
        if sweep := _sweep.get():
            line["sweep"] = self._mask(sweep)
        if record.exc_info and record.exc_info[0]:
            line["exception"] = self._mask(self.formatException(record.exc_info))
        return visible(json.dumps(line, ensure_ascii=False))


class TextLines(logging.Formatter):
    def __init__(self, mask: Mask) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(sweep)s: %(message)s")
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = visible(self._mask(_message(record))), None
        record.sweep = f" [{_sweep.get()}]" if _sweep.get() else ""
        return self._mask(super().format(record))


def visible(text: str) -> str:
    """Escape line breaks, control characters, and marks of direction, by which users could forge lines."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _message(record: logging.LogRecord) -> str:
    """Return the message; format errors must not reach logging's own handler, which prints unmasked."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - whatever %-formatting and foreign __str__ methods raise
        return f"{record.msg!r} {record.args!r}"


def start(level: str, style: Literal["json", "text"], mask: Mask) -> None:
    """Configure logging for this process, including warnings and uncaught exceptions."""
    os.environ.setdefault("MLFLOW_CONFIGURE_LOGGING", "false")  # otherwise MLflow adds its own handler
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(mask) if style == "json" else TextLines(mask))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = lambda *error: log.critical("uncaught exception, exiting", exc_info=error)
    sys.unraisablehook = threading.excepthook = _log_uncaught


def _log_uncaught(what: "sys.UnraisableHookArgs | threading.ExceptHookArgs") -> None:
    log.error("uncaught exception", exc_info=what.exc_value)
