"""The cluster of the scale benchmark, as a process: its API server must not share a loop with what measures.

`python -m bench.scale_cluster SWEEPS KUBECONFIG [TRIALS]` creates the objects of running sweeps of 20, or so
many, trials, serves them, and prints "ready". On SIGUSR1 it makes pods start and stop at random, and prints
each change as `SWEEP SECONDS` by the machine's monotonic clock, and then "done".
"""

import asyncio
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic

from bot.core.plan import SweepPlan
from bot.sweep.launch.plan import plan
from k8s.katib.manifest import with_image
from k8s.katib.spec import EXPERIMENT_LABEL
from k8s.objects import MANAGED_BY, SWEEP_LABEL, Manifest
from k8s.trial_kinds import JOB_LABEL, TRIAL_LABEL
from local.kubernetes.apiserver.api import serve
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import ORDER, SETTINGS

TRIALS = 20
RATE, SECONDS = 20, 20  # changes per second, and for how long
DIGEST = f"sha256:{'d' * 64}"


def sweep_name(number: int) -> str:
    return f"lr-{number:04}"


def trial_name(sweep: str, number: int) -> str:
    return f"{sweep}-{number:08}"


def planned(name: str) -> tuple[SweepPlan, str]:
    """Return the plan of a sweep, and its image."""
    found = plan(replace(ORDER, sweep=name, request_id=name), SETTINGS)
    return found, f"{found.image_repository}@{DIGEST}"


async def main() -> None:
    size, kubeconfig = int(sys.argv[1]), Path(sys.argv[2])
    trials = int(sys.argv[3]) if sys.argv[3:] else TRIALS
    cluster, start = a_cluster(size, trials), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, start.set)
    server = await serve(cluster)
    server.kubeconfig(kubeconfig)
    print("ready", flush=True)
    await start.wait()
    await change(cluster, size, trials)
    print("done", flush=True)
    await asyncio.Event().wait()


def a_cluster(size: int, trials: int = TRIALS) -> Store:
    cluster = Store()
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    for name in map(sweep_name, range(size)):
        found, image = planned(name)
        experiment = with_image(found.experiment, image)
        cluster.create({**experiment, "spec": {**experiment["spec"], "maxTrialCount": trials}})
        for number in range(trials):
            add_trial(cluster, name, number)
    return cluster


def add_trial(cluster: Store, sweep: str, number: int) -> None:
    """Add a trial with its Job and pod. The first has succeeded, so nothing examines it any more."""
    name, labels = trial_name(sweep, number), {MANAGED_BY: "sweepbot", SWEEP_LABEL: sweep}
    labels |= {EXPERIMENT_LABEL: sweep, TRIAL_LABEL: name}
    meta = {"name": name, "namespace": "sweeps", "labels": labels}
    spec = {"parameterAssignments": [{"name": "lr", "value": "0.1"}], "runSpec": {"command": "x" * 2000}}
    cluster.create({"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "metadata": meta, "spec": spec})
    if number == 0:
        succeed(cluster, name, "0.5")
        return
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i", "env": _variables()}]}
    job = {"template": {"metadata": {"labels": labels}, "spec": pod}}
    cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job})
    meta = {**meta, "name": f"{name}-pod", "labels": {**labels, JOB_LABEL: name}}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})


def succeed(cluster: Store, trial: str, value: str) -> None:
    """End a trial with this value of its metric."""
    _status(cluster, "Trial", trial, {"conditions": [_condition("Succeeded")], **_observed(value)})


def _variables() -> list[Manifest]:
    return [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)]


def _condition(type_: str) -> Manifest:
    return {"type": type_, "status": "True", "reason": f"Trial{type_}", "message": f"Trial has {type_}"}


def _observed(value: str) -> Manifest:
    metric = {"name": ORDER.space.metric, "min": value, "max": value, "latest": value}
    return {"observation": {"metrics": [metric]}}


def _status(cluster: Store, kind: str, name: str, status: Manifest) -> None:
    cluster.patch(kind, "sweeps", name, {"status": status}, subresource="status")


async def change(cluster: Store, size: int, trials: int) -> None:
    """Start and stop pods at random, RATE a second."""
    chance, running, begin = random.Random(7), set[str](), monotonic()  # noqa: S311
    for number in range(RATE * SECONDS):
        await asyncio.sleep(max(0.0, begin + number / RATE - monotonic()))
        sweep = sweep_name(chance.randrange(size))
        print(sweep, monotonic(), flush=True)
        toggle(cluster, f"{trial_name(sweep, chance.randrange(1, trials))}-pod", running)


def toggle(cluster: Store, pod: str, running: set[str]) -> None:
    """Start the pod, or stop it if it is in `running`; keep that up."""
    started_at = {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
    state = {"waiting": {"reason": "ContainerCreating"}} if pod in running else started_at
    status = {"name": "main", "state": state, "ready": pod not in running, "restartCount": 0}
    status |= {"image": "i", "imageID": ""}
    phase = "Pending" if pod in running else "Running"
    _status(cluster, "Pod", pod, {"phase": phase, "containerStatuses": [status]})
    running ^= {pod}


if __name__ == "__main__":
    asyncio.run(main())
