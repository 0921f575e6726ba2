"""One log line per call to another system, with the sweep: DEBUG, or INFO if it failed."""

import json
import logging

import pytest

from bot.core.metrics import log, measured
from bot.platform.runtime.log_format import JsonLines, about
from bot.text.masking import Mask


def lines(caplog, level):
    return [record for record in caplog.records if record.name == log.name and record.levelno == level]


def test_call_is_logged_at_debug_with_its_sweep(caplog):
    caplog.set_level("DEBUG", log.name)
    with about("lr-brave-otter"), measured("slack", operation="chat.postMessage"):
        pass
    [line] = lines(caplog, logging.DEBUG)
    assert line.getMessage().startswith("call: slack chat.postMessage in 0.")
    assert line.getMessage().endswith("s: ok")
    with about("lr-brave-otter"):
        assert json.loads(JsonLines(Mask()).format(line))["sweep"] == "lr-brave-otter"


def test_failed_call_is_logged_at_info_on_one_line(caplog):
    caplog.set_level("INFO", log.name)
    with (
        pytest.raises(OSError, match="refused"),
        measured("git", operation="fetch https://git.example/x.git"),
    ):
        raise OSError("refused\nFATAL forged line" + "x" * 1000)
    with measured("git"):
        pass
    [line] = lines(caplog, logging.INFO)
    assert "\n" not in line.getMessage()
    assert len(line.getMessage()) < 400
    assert lines(caplog, logging.DEBUG) == []


def test_ordinary_answer_is_logged_at_debug(caplog):
    caplog.set_level("DEBUG", log.name)
    with pytest.raises(KeyError), measured("kubernetes", lambda _: True, "GET /x"):
        raise KeyError("not found")
    assert lines(caplog, logging.INFO) == []
    [line] = lines(caplog, logging.DEBUG)
    assert line.getMessage().endswith("'not found'")
