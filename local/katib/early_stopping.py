"""Early stopping by medianstop: its service, and what the collector of lines does in a running pod.

It is no median: the mean, over succeeded trials, of the mean of their first `start_step` values. A trial's
rule is fixed when it is created, and judged once, at its `start_step`-th report.
"""

import asyncio
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from local.katib.metrics import MetricsStore
from local.katib.status import is_true
from local.kubernetes.apiserver.kinds import Object

DEFAULTS = {"min_trials_required": 3, "start_step": 4}
POLL = 0.1  # seconds
# Appended to a trial's command that has a rule (pkg/webhook/v1beta1/pod/utils.go, getEarlyStoppingCommand).
COMMAND = (
    "|| if test -f {0}/$$$$.pid && [ $(head -n 1 {0}/$$.pid) = early-stopped ]; then echo Training Container "
    "was Early Stopped; else echo Training Container was Failed; exit 1; fi"
)


def settings_of(spec: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in spec["earlyStopping"].get("algorithmSettings", [])}


def objection(spec: Object) -> str:
    """Return why the service rejects the settings; "" if it doesn't."""
    words = {"min_trials_required": "greater than zero (>0)", "start_step": "greater or equal than one (>=1)"}
    for name, value in settings_of(spec).items() if "earlyStopping" in spec else ():
        if name not in words:
            return f"unknown setting {name} for algorithm medianstop"
        try:
            if int(value) < 1:
                return f"{name} must be {words[name]}"
        except ValueError as error:
            return f"failed to validate {name}({value}): {error}"
    return ""


def rules(spec: Object, trials: list[Object], metrics: MetricsStore) -> list[Object]:
    """Return the rules of trials that are created now."""
    if "earlyStopping" not in spec:
        return []
    chosen = DEFAULTS | {name: int(value) for name, value in settings_of(spec).items()}
    objective, step = spec["objective"], chosen["start_step"]
    done = [trial["metadata"]["name"] for trial in trials if is_true(trial, "Succeeded")]
    if len(done) < chosen["min_trials_required"]:
        return []
    metric = objective["objectiveMetricName"]
    means = [fmean(map(float, metrics.values(name, metric)[:step])) for name in done]
    comparison = "less" if objective["type"] == "maximize" else "greater"
    return [{"name": metric, "value": str(fmean(means)), "comparison": comparison, "startStep": step}]


async def watch(file: Path, rule: str, objective: str, filters: list[str], log: Callable[[str], None]) -> int:
    """Wait until the rule is met, stop the training, and return the shell's process id; 0 if it can't."""
    name, limit, comparison, step = rule.split(";")
    while len(values := _values(file, name, filters)) < int(step):  # noqa: ASYNC110 - another process's file
        await asyncio.sleep(POLL)
    best = (max if objective == "maximize" else min)(values[: int(step)])
    if best < float(limit) if comparison == "less" else best > float(limit):
        return _stop(file.parent, log)
    return await asyncio.Event().wait()  # judged, and never again


def _values(file: Path, name: str, filters: list[str]) -> list[float]:
    """Return the metric's values in whole lines."""
    lines = file.read_text(errors="replace").split("\n")[:-1] if file.exists() else []
    found = [match for line in lines for each in filters for match in re.finditer(each, line, re.ASCII)]
    return [float(match[2]) for match in found if match[1] == name]


def _stop(folder: Path, log: Callable[[str], None]) -> int:
    log("Training container is early stopped")
    shell = _main_process(folder)
    if not shell:
        log("GetMainProcesses failed: unable to find main pid from the process list")
        return 0
    (folder / f"{shell}.pid").write_text("early-stopped")
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    if len(children) != 1:
        log(f"Multiple children processes are not supported. Children processes: {children}")
        return 0
    os.kill(int(children[0]), signal.SIGTERM)
    return shell


def _main_process(folder: Path) -> int:
    """Return the container's first process: the marker is in its command line, and it leads its session."""
    marker = f"echo completed > {folder}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(place.name)
            if marker in (place / "cmdline").read_bytes() and os.getsid(pid) == pid:
                return pid
        except OSError:  # it has ended
            continue
    return 0
