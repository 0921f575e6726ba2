"""Metrics count what happened once, under labels that can't grow. Each call has one log line, with its sweep:
DEBUG, or INFO if it failed.
"""

import asyncio
import json
import logging

import pytest
from prometheus_client import REGISTRY as DEFAULT

from bot.core.errors import RetryAfterError
from bot.core.metrics import CALLS, REGISTRY, log, measured, running, slack_called
from bot.platform.runtime.log_format import JsonLines, about
from bot.platform.storage.queue_state import QUEUE, SWEEPS
from bot.text.masking import Mask


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0


class Grew:
    """How much a sample grew since this was made."""

    def __init__(self, name, **labels):
        self.name, self.labels, self.before = name, labels, value(name, **labels)

    def __call__(self):
        return value(self.name, **self.labels) - self.before


async def failing(error, is_answer=lambda _: False):
    with measured("git", is_answer):
        raise error


async def test_calls_are_counted_by_result():
    fine, bad = (Grew("sweepbot_calls_total", service="git", result=each) for each in ("ok", "error"))
    timed = Grew("sweepbot_call_duration_seconds_count", service="git")
    with measured("git"):
        pass
    with pytest.raises(OSError, match="away"):
        await failing(OSError("away"))
    with pytest.raises(KeyError):
        await failing(KeyError("no such branch"), lambda error: isinstance(error, KeyError))
    assert (fine(), bad(), timed()) == (2, 1, 3)


async def test_cancelled_call_is_not_counted():
    timed = Grew("sweepbot_call_duration_seconds_count", service="git")
    with pytest.raises(asyncio.CancelledError):
        await failing(asyncio.CancelledError())
    assert timed() == 0


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, "ok"),
        (RetryAfterError("busy", 3), "postponed"),
        (ValueError("bug"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_run_is_counted_by_its_result(error, result):
    grew = Grew("sweepbot_work_items_total", kind="sweep", result=result)
    try:
        with running("sweep", 0):
            if error:
                raise error
    except (RetryAfterError, ValueError, asyncio.CancelledError):
        pass
    assert grew() == 1


def test_reaction_time_is_from_due_to_the_first_slack_call():
    count, total = Grew("sweepbot_slack_reaction_seconds_count"), Grew("sweepbot_slack_reaction_seconds_sum")
    with running("sweep", 7):
        slack_called()
        slack_called()
    slack_called()  # of no item: a probe
    with running("digest", 3600):
        slack_called()
    assert count() == 1
    assert 7 <= total() < 60


def test_labels_never_name_a_sweep_or_a_person():
    """Of all metrics, also of those that nothing in this process has set: a sample exists only then."""
    names = {label for each in REGISTRY._collector_to_names for label in getattr(each, "_labelnames", ())}
    few = {"service", "result", "kind", "namespace", "cluster", "lease", "figures", "url"}
    assert names == few | {"state", "phase"}
    assert {QUEUE, SWEEPS, CALLS} <= REGISTRY._collector_to_names.keys()
    assert not any(family.name.startswith("sweepbot") for family in DEFAULT.collect())


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
