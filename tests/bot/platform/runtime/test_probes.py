"""Probes: quick whatever hangs, true within a period, quiet at the end."""

import asyncio
import logging

import pytest

from bot.platform.runtime import probes as module
from bot.platform.runtime.probes import ProbeFailedError, Probes
from bot.text.masking import Mask


@pytest.fixture
async def probes():
    probes = Probes(lambda: probes.ending, Mask(["hunter2"]))
    probes.ending = False
    yield probes
    await probes.close()


class Part:
    """A dependency of a process."""

    def __init__(self):
        self.trouble, self.asked = None, 0

    async def __call__(self):
        self.asked += 1
        if self.trouble:
            raise self.trouble
        return "well"


def message_of(probes, name="part"):
    return probes.ready()[1]["checks"][name]["message"]


async def test_readiness_is_false_until_each_part_of_the_process_has_added_its_checks(probes):
    probes.expect(2)
    probes.started()
    ready, page = probes.ready()
    assert (ready, page["checks"]["process"]["message"]) == (False, "starting")
    probes.started()
    assert probes.ready() == (True, {"ready": True, "checks": {}})


async def test_readiness_is_false_before_the_first_check(probes):
    assert probes.ready() == (True, {"ready": True, "checks": {}})
    probes.check("part", Part())
    ready, page = probes.ready()
    assert (ready, page["checks"]["part"]["message"]) == (False, "not checked yet")


async def test_readiness_shows_a_failed_part_and_its_recovery(probes, wait_until, caplog):
    caplog.set_level(logging.INFO)
    part = Part()
    probes.check("part", part, every=0.01)
    await wait_until(lambda: probes.ready()[0], "it is ready")
    part.trouble = ProbeFailedError("the password hunter2 is refused")
    await wait_until(lambda: not probes.ready()[0], "the failure shows")
    assert message_of(probes) == "the password *** is refused"
    part.trouble = None
    await wait_until(lambda: probes.ready()[0], "it is ready again")
    assert [record.getMessage() for record in caplog.records] == [
        "ready: part: well",
        "not ready: part: the password *** is refused",
        "ready: part: well",
    ]


async def test_hanging_check_blocks_no_other(probes, wait_until, monkeypatch):
    monkeypatch.setattr(module, "PROBE_TIMEOUT", 0.05)
    probes.check("part", asyncio.Event().wait, every=0.01)
    probes.check("other", Part(), every=0.01)
    await wait_until(lambda: message_of(probes) == "no answer within 0 s", "the silence shows")
    assert message_of(probes, "other") == "well"


async def test_old_check_result_is_unknown(probes, wait_until, monkeypatch):
    part = Part()
    probes.check("part", part, every=1000)
    await wait_until(lambda: probes.ready()[0], "it is ready")
    monkeypatch.setattr(module, "monotonic", lambda: asyncio.get_running_loop().time() + 1010)
    ready, page = probes.ready()
    assert (ready, page["checks"]["part"]["message"]) == (False, "check is stuck; last result: well")


async def test_failed_check_without_text_shows_its_exception(probes, wait_until):
    part = Part()
    part.trouble = ConnectionError()
    probes.check("part", part)
    await wait_until(lambda: message_of(probes) == "ConnectionError", "the failure shows")


async def test_shutdown_is_not_ready_and_logs_no_errors(probes, wait_until, caplog):
    part = Part()
    probes.check("part", part, every=0.01)
    await wait_until(lambda: probes.ready()[0], "it is ready")
    probes.ending, part.trouble = True, ProbeFailedError("is closed")
    assert probes.ready()[1]["checks"]["process"]["message"] == "shutting down"
    await wait_until(lambda: message_of(probes) == "is closed", "it was checked again")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_two_checks_of_one_system_share_a_request(probes, wait_until):
    first, second = Part(), Part()
    probes.check("part", first, every=0.01)
    probes.check("part", second, every=0.01)
    await wait_until(lambda: first.asked > 2, "it was checked")
    assert second.asked == 0
