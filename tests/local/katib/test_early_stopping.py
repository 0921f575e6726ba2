"""Medianstop in the local Katib: rules, their refusals, and a running training that is stopped."""

import asyncio
import os
import signal
import sys

import pytest

from local.katib import early_stopping
from local.katib.metrics import MetricsStore, Reported

SPEC = {
    "objective": {"type": "minimize", "objectiveMetricName": "loss"},
    "earlyStopping": {"algorithmName": "medianstop"},
}


def done(name):
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}


def test_medianstop_rules_are_the_mean_of_means_after_enough_trials():
    metrics = MetricsStore()
    for name, values in {"a": "9 1 1 1 0", "b": "5 3 3 1 0", "c": "6 2 2 2 0"}.items():
        metrics.report(name, [Reported(value, n) for n, value in enumerate(values.split())])
    assert early_stopping.rules(SPEC, [done("a"), done("b")], metrics) == []
    [rule] = early_stopping.rules(SPEC, [done("a"), done("b"), done("c")], metrics)
    assert rule == {"name": "loss", "value": "3.0", "comparison": "greater", "startStep": 4}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("min_trials_required", "0", "min_trials_required must be greater than zero (>0)"),
        ("start_step", "0", "start_step must be greater or equal than one (>=1)"),
        ("start_step", "x", "failed to validate start_step(x): invalid literal"),
        ("steps", "1", "unknown setting steps for algorithm medianstop"),
    ],
)
def test_settings_are_rejected_in_the_services_words(name, value, why):
    setting = {"algorithmName": "medianstop", "algorithmSettings": [{"name": name, "value": value}]}
    assert early_stopping.objection(SPEC | {"earlyStopping": setting}).startswith(why)


@pytest.mark.parametrize(("loss", "stopped"), [("9", True), ("1", False)])
async def test_rule_stops_the_shells_only_child_at_its_step(tmp_path, loss, stopped, wait_until):
    training = f"import time; print('loss={loss} loss={loss}', flush=True); time.sleep(60)"
    command = f'( {sys.executable} -c "{training}" ) > {tmp_path}/m.log'
    text = f"{{ {command} & wait $!; }}; echo completed > {tmp_path}/$$.pid"
    process = await asyncio.create_subprocess_exec("sh", "-c", text, start_new_session=True)
    file, log = tmp_path / "m.log", []
    rule = early_stopping.watch(file, "loss;3.0;greater;2", "minimize", [r"(loss)=(\d+)"], log.append)
    watching = asyncio.create_task(rule)
    try:
        await wait_until(lambda: file.exists() and file.read_text().count("loss") == 2, "it trains")
        if stopped:
            assert await watching == process.pid
            await process.wait()
            assert log == ["Training container is early stopped"]
        else:
            await asyncio.sleep(3 * early_stopping.POLL)
            assert (watching.done(), process.returncode) == (False, None)
    finally:
        watching.cancel()
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
