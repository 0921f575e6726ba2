"""What real systems write into a first trial's pods, events, and logs when it fails."""

from bot.core.record import Phase
from local.katib.metrics import Reported
from tests.bot.sweep.features.health import real_messages

NOW, MINUTE = 0, 61  # seconds until it must be reported


def says(**status):
    return lambda simulation, pod: (simulation.bind(pod), simulation.set_status(pod, **status))


def unscheduled(message, reason="Unschedulable"):
    return lambda simulation, pod: simulation.unscheduled(pod, message, reason)


def event(reason, message, wait="ContainerCreating"):
    def happens(simulation, pod):
        simulation.waits(pod, wait)
        simulation.event(pod, reason, message)

    return happens


def waits(reason, message):
    return lambda simulation, pod: simulation.waits(pod, reason, message)


def ends(code=1, reason="Error", log="", message="", **more):
    def happens(simulation, pod):
        simulation.cluster.logs |= {"main": log, "metrics-collector": real_messages.NO_DB}
        simulation.ends(pod, code, reason, message, **more)

    return happens


def runs(log="", **more):
    def happens(simulation, pod):
        simulation.cluster.logs["main"] = log
        simulation.runs(pod, **more)

    return happens


def too_large(simulation, pod):
    simulation.node(gpus=4)
    unscheduled(real_messages.UNSCHEDULABLE)(simulation, pod)


def unbound(simulation, pod):
    unscheduled(real_messages.UNBOUND)(simulation, pod)
    simulation.event(pod, "FailedBinding", real_messages.NO_CLASS, "Normal", "persistentvolume-controller")


def node_fails(simulation, pod):
    simulation.node(ready="Unknown", message=real_messages.NO_KUBELET)
    simulation.runs(pod, conditions=[{"type": "Ready", "status": "False"}])


def node_fails_unobserved(simulation, pod):
    """Sweepbot has no permission to read nodes."""
    simulation.runs(pod, conditions=[{"type": "Ready", "status": "False"}])
    simulation.event(pod, "NodeNotReady", real_messages.NODE_NOT_READY, component="node-controller")


def disk_fills(simulation, pod):
    """During training: the kubelet reports that the pod isn't to blame, and the Job creates another one."""
    if simulation.last.phase is not Phase.RUNNING:
        return simulation.runs(pod)
    why = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    conditions = [{**why, "message": real_messages.EVICTED}]
    return simulation.set_status(
        pod, phase="Failed", reason="Evicted", message=real_messages.EVICTED, conditions=conditions
    )


def sandbox_then_pulls(simulation, pod):
    simulation.waits(pod, "ContainerCreating")
    simulation.event(pod, "FailedCreatePodSandBox", real_messages.NO_NETWORK)
    simulation.event(pod, "Pulling", real_messages.PULLING, "Normal")


def reserved(simulation, pod):
    simulation.node("cpu", gpus=0)
    simulation.node("gpu", taints=[{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}])
    simulation.unscheduled(pod, real_messages.TAINTED_GPUS)


def without_gpus(simulation, pod):
    simulation.node(gpus=0)
    simulation.unscheduled(pod, real_messages.UNSCHEDULABLE)


def node_fails_early(simulation, pod):
    simulation.node(ready="Unknown", message=real_messages.NO_KUBELET)
    simulation.waits(pod, "ContainerCreating")


def infinite(simulation, pod):
    simulation.katib.metrics.report(
        pod["metadata"]["labels"]["katib.kubeflow.org/trial"], [Reported("inf", 1)]
    )
    simulation.ends(pod, 0, "Completed")


def no_metrics(simulation, pod):
    simulation.ends(pod, 0, "Completed")
    trial = simulation.kubernetes.get(
        "Trial", "sweeps", pod["metadata"]["labels"]["katib.kubeflow.org/trial"]
    )
    why = {"type": "MetricsUnavailable", "status": "True", "reason": "MetricsUnavailable"}
    simulation.set_status(trial, conditions=[{**why, "message": real_messages.NO_METRICS}])
