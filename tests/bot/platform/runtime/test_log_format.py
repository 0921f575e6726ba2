"""Logs: one JSON object per line from every logger, with its sweep and without secrets."""

import asyncio
import gc
import io
import json
import logging
import sys
import threading
import warnings

import pytest

from bot.platform.runtime import log_format
from bot.platform.runtime.log_format import about
from bot.text.masking import Mask

SECRETS = ("xoxb-1-2-planted", "5ign-ing$ecret", 'p@ss/wörd "quoted"\'', "short")
log = logging.getLogger("bot.somewhere")


@pytest.fixture
def logged(monkeypatch):
    """Start logs of a style; return a function that reads the lines logged so far."""
    stream = io.StringIO()
    root, level = logging.root.handlers[:], logging.root.level
    for owner in (sys, threading):
        monkeypatch.setattr(owner, "excepthook", owner.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    def start(style="json"):
        monkeypatch.setattr(sys, "stderr", stream)  # pytest puts its own there for every phase
        logging.root.handlers = []
        log_format.start("DEBUG", style, Mask(SECRETS))
        return lambda: stream.getvalue().splitlines()

    yield start
    logging.captureWarnings(capture=False)
    logging.root.handlers = root
    logging.root.setLevel(level)


async def test_log_line_is_one_json_object_that_names_its_sweep(logged):
    lines = logged()
    record = logging.LogRecord("bot.worker", logging.WARNING, "", 0, "two\nlines of %s", ("it",), None)
    record.created = 1795262400.25
    logging.root.handle(record)
    assert [json.loads(line) for line in lines()] == [
        {
            "time": "2026-11-21T12:00:00.250Z",
            "level": "WARNING",
            "logger": "bot.worker",
            "message": "two\nlines of it",
        }
    ]

    async def reconcile(sweep):
        with about(sweep):
            await asyncio.sleep(0)
            log.info("in a task")
            await asyncio.to_thread(log.info, "in a thread")

    await asyncio.gather(reconcile("lr-brave-otter"), reconcile("lr-calm-lynx"))
    log.info("about none")
    found = [json.loads(line) for line in lines() if "bot.somewhere" in line]
    assert sorted((line["message"], line.get("sweep")) for line in found[:-1]) == [
        (message, sweep)
        for message in ("in a task", "in a thread")
        for sweep in ("lr-brave-otter", "lr-calm-lynx")
    ]
    assert "sweep" not in found[-1]


def test_log_line_for_terminals_is_text(logged):
    lines = logged("text")
    with about("lr-brave-otter"):
        log.warning("the token is %s", SECRETS[0])
    [line] = lines()
    assert line.endswith(" WARNING bot.somewhere [lr-brave-otter]: the token is ***")


@pytest.mark.parametrize("style", ["json", "text"])
@pytest.mark.parametrize("evil", ["\n", "\r", "\x1b[2K", "\x85", "\u2028", "\u202e", "\U000e0041"])
def test_log_line_can_not_be_forged(logged, style, evil):
    lines = logged(style)
    log.warning("sweep=%s: denied", f"x{evil}WARNING sweepbot.audit: user=U1: allowed")
    [line] = lines()
    assert line.isprintable()
    if style == "json":
        kept = "" if evil.startswith("\x1b") else evil  # secrets are looked for without terminal sequences
        assert f"x{kept}WARNING" in json.loads(line)["message"]


def everywhere(secret):
    """Log a secret in every way a program can."""
    log.info(secret)
    log.info("as an argument: %s", secret)
    log.info("inside one: %r", {"Authorization": secret})
    log.info("a broken call: %d", secret)
    warnings.warn(f"in a warning: {secret}", stacklevel=1)
    try:
        try:
            {}[f"the cause: {secret}"]
        except KeyError as error:
            raise ExceptionGroup("several", [KeyError(secret)]) from error
    except ExceptionGroup:
        log.exception("failed")
    thread = threading.Thread(target=lambda: {}[secret])
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError(secret), None)


class Dying:
    def __init__(self, secret):
        self.secret = secret

    def __del__(self):
        raise ValueError(self.secret)


async def forgotten(secret):
    raise ValueError(secret)


@pytest.mark.parametrize("style", ["json", "text"])
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_log_line_contains_no_secret(logged, style, secret):
    lines = logged(style)
    everywhere(secret)
    Dying(secret)
    asyncio.create_task(forgotten(secret))  # noqa: RUF006 - not awaited
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    reported = "\n".join(lines())
    assert reported.count("***") >= 12
    assert secret not in reported
    assert json.dumps(secret)[1:-1] not in reported
    assert repr(secret)[1:-1] not in reported
    if style == "json":
        assert {json.loads(line)["logger"] for line in lines()} >= {
            "bot.platform.runtime.log_format",
            "py.warnings",
            "asyncio",
        }
