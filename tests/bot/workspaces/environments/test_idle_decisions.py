"""Whether an environment is in use, and what follows: a warning, its end, or a stop."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.measure.gpus.models import BUSY, Gpu, PodUse
from bot.platform.config.environments import EnvironmentIdle
from bot.workspaces.environments.idle import (
    Activity,
    Quiet,
    ServerUse,
    Step,
    Use,
    code_server_use,
    cores,
    decide,
    gpu_peak,
    jupyter_use,
    observe,
    unwarned,
    warned,
)
from bot.workspaces.environments.record import EnvironmentRecord, Wanted
from tests.bot.factories import NOW, OWNER
from tests.cases import cases

RECORD = {"name": "lab", "owner": OWNER, "channel": "C1", "request_id": "1", "image": "jupyter", "size": "m"}
RECORD |= {"gpus": 0, "home": "lab", "home_size": "20Gi", "since": NOW}
LONG_AGO = ServerUse(busy=False, last=NOW - timedelta(hours=9))
IDLE = Activity(at=NOW, gpu=0.0, server=LONG_AGO, cpu=0.01)
STATUS = '{"last_activity": "2026-11-21T03:00:00.000000Z", "kernels": 1, "connections": 0}'


@cases(
    ("change", "use"),
    [
        ({}, Use.IDLE),
        ({"gpu": 0.5}, Use.BUSY),
        ({"gpu": BUSY}, Use.BUSY),
        ({"gpu": BUSY / 2}, Use.IDLE),
        ({"gpu": None}, Use.UNKNOWN),
        ({"cpu": 0.9}, Use.BUSY),
        ({"cpu": 0.2}, Use.BUSY),
        ({"cpu": 0.19}, Use.IDLE),
        ({"cpu": None}, Use.UNKNOWN),
        ({"server": None}, Use.UNKNOWN),
        ({"server": replace(LONG_AGO, busy=True)}, Use.BUSY),
        ({"server": replace(LONG_AGO, last=NOW - timedelta(minutes=1))}, Use.BUSY),
        ({"server": replace(LONG_AGO, last=NOW - timedelta(minutes=10))}, Use.IDLE),
        ({"server": replace(LONG_AGO, last=NOW + timedelta(days=1))}, Use.BUSY),
    ],
)
def test_use_needs_gpu_server_and_cpu_together(change, use):
    assert replace(IDLE, **change).use is use


@pytest.mark.parametrize(
    ("change", "minutes", "since"),
    [
        ({}, 5, 0),
        ({}, 15, 0),
        ({}, 16, 16),  # a measurement is missing
        ({"uid": "other"}, 5, 5),
        ({"starts": 2}, 5, 5),
        ({"since": None}, 5, 5),
    ],
)
def test_observe_continues_only_the_same_start_without_a_gap(change, minutes, since):
    before = Quiet(uid="u", starts=1, since=NOW, at=NOW)
    later = NOW + timedelta(minutes=minutes)
    after = observe(replace(before, **change), "u", 1, replace(IDLE, at=later))
    assert (after.since, after.at) == (NOW + timedelta(minutes=since), later)
    assert observe(before, "u", 1, replace(IDLE, at=later, cpu=2.0)).since is None


WARNED = {"warned_at": NOW, "stop_at": NOW + timedelta(hours=3)}


@cases(
    ("record", "hours", "settings", "step"),
    [
        ({}, 2, {}, Step.WARN),
        ({}, 1.9, {}, Step.NONE),
        ({}, 2, {"hours": 0}, Step.NONE),
        ({}, None, {}, Step.NONE),
        ({"keep_until": NOW + timedelta(hours=3)}, 2, {}, Step.NONE),
        ({"keep_until": NOW + timedelta(hours=2)}, 2, {}, Step.WARN),
        (WARNED, 2.9, {}, Step.NONE),
        (WARNED, 3, {}, Step.STOP),
        (WARNED | {"stop_at": None}, 3, {}, Step.NONE),
        (WARNED, 3, {"stop": False}, Step.NONE),
        (WARNED, None, {}, Step.UNWARN),
        (WARNED | {"keep_until": NOW + timedelta(hours=9)}, 3, {}, Step.UNWARN),
        (WARNED | {"wanted": Wanted.STOPPED}, 3, {}, Step.NONE),
        ({"wanted": Wanted.DELETED}, 3, {}, Step.NONE),
    ],
)
def test_decide_warns_first_and_stops_when_due(record, hours, settings, step):
    at = NOW + timedelta(hours=hours or 3)
    quiet = Quiet(uid="u", starts=1, since=None if hours is None else NOW, at=at)
    settings = replace(EnvironmentIdle(hours=2, stop=True), **settings)
    assert decide(EnvironmentRecord(**RECORD | record), quiet, settings) is step


def test_gpu_peak_is_unknown_unless_all_gpus_have_samples():
    def pod(*peaks):
        gpus = tuple(Gpu(device=str(n), peak=peak) for n, peak in enumerate(peaks))
        return PodUse(namespace="environments", pod="p", node="n", allocated=2, gpus=gpus)

    assert gpu_peak(pod(0.0, 0.7), 2) == 0.7
    assert gpu_peak(pod(0.0), 2) is gpu_peak(pod(0.0, None), 2) is gpu_peak(None, 2) is None
    assert gpu_peak(None, 0) == 0.0


@pytest.mark.parametrize(("text", "number"), [("250000000n", 0.25), ("12m", 0.012), ("2", 2.0), ("x", None)])
def test_cores_reads_quantities_of_metrics(text, number):
    containers = [{"usage": {"cpu": "1"}}, {"usage": {"cpu": text}}]
    assert cores({"containers": containers[1:]}) == number
    assert cores({"containers": containers}) == (number and 1 + number)


@pytest.mark.parametrize(
    ("status", "kernels", "busy"),
    [
        (STATUS, "[]", False),
        (STATUS, '[{"execution_state": "idle"}]', False),
        (STATUS, '[{"execution_state": "busy"}, {"execution_state": "idle"}]', True),
        (STATUS, '{"message": "Forbidden"}', None),
        ("<html>", "[]", None),
        ('{"last_activity": 5}', "[]", None),
        ("[" * 100_000, "[]", None),
    ],
)
def test_jupyter_answer_of_another_form_is_unknown(status, kernels, busy):
    found = jupyter_use(status, kernels)
    assert (found.busy if found else None) is busy


def test_code_server_is_described_without_kernels():
    server = code_server_use('{"status": "alive", "lastHeartbeat": 1795359600000}')
    assert "kernel" not in replace(IDLE, server=server).described(1)
    assert "no kernel busy" in IDLE.described(1)
    assert IDLE.described(1).endswith("CPU 0.01 cores")
    assert ("GPU max 0%" in IDLE.described(1), "GPU" in IDLE.described(0)) == (True, False)


def test_code_server_without_a_browser_so_far_is_unknown():
    assert code_server_use('{"status": "expired", "lastHeartbeat": 0}') is None
    assert code_server_use('{"status": "alive", "lastHeartbeat": 1800000000000}').last.year == 2027
    assert code_server_use('{"lastHeartbeat": 1e400}') is None


@pytest.mark.parametrize(("stop", "stop_at"), [(True, NOW + timedelta(minutes=30)), (False, None)])
def test_warning_announces_when_it_stops(stop, stop_at):
    quiet = Quiet(uid="u", starts=1, since=NOW - timedelta(hours=2), at=NOW)
    settings = EnvironmentIdle(hours=2, stop=stop, notice_minutes=30)
    after = warned(EnvironmentRecord(**RECORD), quiet, settings, "GPU max 0%")
    assert (after.warned_at, after.stop_at) == (NOW, stop_at)
    assert (after.idle_since, after.measured) == (quiet.since, "GPU max 0%")
    assert unwarned(after) == EnvironmentRecord(**RECORD)
