"""A simulated sweep with failing first trials: statuses, events, and logs as real systems write them.

The clock can be advanced, so no test waits.
"""

from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.sweep.features.health.state import HealthState
from k8s.api.errors import ApiError
from k8s.objects import BUILD_LABEL, timestamp
from k8s.pods import is_trial_pod
from local import manifests
from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.rbac import AccessRequest, why
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.sweep_in_memory import SWEEP, Clock, SimulatedSweep

DEPLOY = Path(__file__).parents[2] / "deploy"
WORKER = "system:serviceaccount:sweepbot:sweepbot-work"


class FaultyCluster(DirectCluster):
    """With Kueue's workloads, which the local cluster lacks, and with logs."""

    def __init__(self, store):
        super().__init__(store)
        self.kueue, self.logs = None, {}  # Kueue's message for each suspended Job; None: no Kueue

    async def list(self, kind, namespace, *, labels="", fields="", only=None):
        if kind != "Workload" or not self.kueue:
            return await super().list(kind, namespace, labels=labels, fields=fields, only=only)
        access = AccessRequest(WORKER, "list", "kueue.x-k8s.io", "workloads", namespace, "")
        if why(access, self.store) is None:
            raise ApiError(403, "Forbidden", access.refused().body["message"])
        return [w for w in self._workloads(namespace) if _selected(w, labels)]

    def _workloads(self, namespace):
        reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": self.kueue}
        for job in self.store.list("Job", namespace) if self.kueue else ():
            if job["spec"]["suspend"]:
                meta = {"name": f"job-{job['metadata']['name']}-1a2b3"}
                labels = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
                yield {"metadata": {**meta, "labels": labels}, "status": {"conditions": [reserved]}}

    async def log(self, namespace, pod, container, *, tail, previous=False):
        return self.logs.get(pod) or self.logs.get(container, "")


def _selected(obj, labels):
    return dict(pair.split("=", 1) for pair in labels.split(",")).items() <= obj["metadata"]["labels"].items()


class FailingTrials(SimulatedSweep):
    def __init__(self, redis, happens, **scenario):
        super().__init__(redis, Clock(None), image=True, **scenario)
        self.happens = happens
        self.ahead = timedelta(0)
        self.cluster = FaultyCluster(self.kubernetes)
        self.clients = replace(self.clients, cluster=self.cluster, now=lambda: datetime.now(UTC) + self.ahead)
        self.pods = 0

    @asynccontextmanager
    async def started(self):
        """With the rights that deploy/ gives."""
        async with super().started():
            for file in ("namespaces.yaml", "rights.yaml"):
                for obj in manifests.read(DEPLOY / "base" / file):
                    with suppress(Refused):  # a simulation starts with one of the namespaces
                        self.kubernetes.create(obj)
            yield self

    async def rounds(self, number=12):
        for _ in range(number):
            await self.round()

    async def after(self, seconds):
        """Advance the clock while nothing else changes."""
        self.ahead += timedelta(seconds=seconds)
        await self.rounds(2)

    async def message(self):
        """The text of the only message; None if there is none."""
        record = await self.record()
        if (ts := record.of(HealthState).ts) is None:
            return None
        return self.slack.posted[int(ts.partition(".")[2]) - 1]

    async def _time_passes(self):
        for pod in self.kubernetes.list("Pod", "sweeps"):
            if is_trial_pod(pod) and BUILD_LABEL not in pod["metadata"]["labels"]:
                if "deletionTimestamp" in pod["metadata"]:
                    if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running":
                        self.ends(pod, 143)  # the kubelet reports the end before it removes the pod
                    self.kubernetes.delete("Pod", "sweeps", pod["metadata"]["name"], grace=0)
                else:
                    self.happens(self, pod)

    # What a kubelet, a scheduler or a controller does to a pod

    def bind(self, pod, node="n1"):
        if not pod["spec"].get("nodeName"):
            self._patch(pod, {"spec": {"nodeName": node}})
            self.set_status(
                pod,
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "True",
                        "lastTransitionTime": timestamp(datetime.now(UTC)),
                    }
                ],
            )

    def set_status(self, pod, **status):
        current = self.kubernetes.get(pod["kind"], "sweeps", pod["metadata"]["name"])
        status = {**current.get("status", {}), **status}
        if status != current.get("status"):
            self.kubernetes.set_status(current, status)

    def waits(self, pod, reason, message=""):
        self.bind(pod)
        self.set_status(
            pod,
            phase="Pending",
            containerStatuses=self.states(pod, {"waiting": {"reason": reason, "message": message}}),
        )

    def runs(self, pod, **more):
        self.bind(pod)
        running = {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
        self.set_status(pod, phase="Running", containerStatuses=self.states(pod, running), **more)

    def ends(self, pod, code, reason="Error", message="", collector=0, **more):
        self.bind(pod)
        over = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
        states = self.states(pod, over)
        for each in states:
            if each["name"] == "metrics-collector":
                each["state"] = {
                    "terminated": {"exitCode": collector, "reason": "Error" if collector else "Completed"}
                }
        self.set_status(
            pod, phase="Failed" if code or collector else "Succeeded", containerStatuses=states, **more
        )

    def states(self, pod, state):
        common = {"ready": False, "restartCount": 0, "image": "", "imageID": ""}
        return [{"name": c["name"], "state": state, **common} for c in pod["spec"]["containers"]]

    def unscheduled(self, pod, message, reason="Unschedulable"):
        known = {c["type"] for c in pod["status"].get("conditions") or ()}
        if "PodScheduled" not in known:
            at = timestamp(datetime.now(UTC))
            why = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
            self.set_status(pod, conditions=[{**why, "lastTransitionTime": at, "lastProbeTime": None}])

    def event(self, obj, reason, message, type_="Warning", component="kubelet"):
        about = (obj["metadata"]["uid"], reason)
        if about not in self.scenario.setdefault("seen", set()):
            self.scenario["seen"].add(about)
            self.kubernetes.record_event(obj, type_, reason, message, component)

    def node(self, name="n1", gpus=8, ready="True", message="", taints=()):
        status = {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": ready, "message": message}],
        }
        if not self.kubernetes.get("Node", "", name):
            meta, spec = {"name": name}, {"taints": list(taints)}
            self.kubernetes.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec})
        self.kubernetes.set_status(self.kubernetes.get("Node", "", name), status)

    def _patch(self, obj, patch):
        self.kubernetes.patch(obj["kind"], "sweeps", obj["metadata"]["name"], patch)

    def suggestion(self, *conditions):
        """As Katib makes it, where no Katib runs."""
        meta = {"name": SWEEP, "namespace": "sweeps"}
        if self.kubernetes.get("Experiment", "sweeps", SWEEP) and not self.kubernetes.get(
            "Suggestion", "sweeps", SWEEP
        ):
            made = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Suggestion", "metadata": meta}
            self.kubernetes.create({**made, "spec": {"algorithm": {"algorithmName": "grid"}, "requests": 2}})
            made = self.kubernetes.get("Suggestion", "sweeps", SWEEP)
            at = timestamp(datetime.now(UTC))
            self.kubernetes.set_status(
                made, {"conditions": [{**c, "lastTransitionTime": at} for c in conditions]}
            )
