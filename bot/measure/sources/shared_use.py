"""Leave out use that can't be assigned to one pod: exporters measure whole GPUs, also shared ones. Pure.

Of a GPU in use, an exporter names one of the pods that share it, or each of them with the use of all. It
says only of an idle GPU what each of them does.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from bot.measure.gpus.models import BUSY, Gpu, HourUse, PodUse
from k8s.nodes.dcgm import NO_LOAD
from k8s.nodes.gpus import is_shared


def assignable(pods: Iterable[PodUse]) -> tuple[PodUse, ...]:
    """Return a cluster's pods; the use of a shared GPU is unknown, unless it is idle or of the only pod."""
    known = tuple(pods)
    on_node = Counter(pod.node for pod in known)

    def checked(pod: PodUse) -> PodUse:
        if on_node[pod.node] == 1 or not any(is_shared(gpu.model) for gpu in pod.gpus):
            return pod
        return replace(pod, gpus=tuple(map(_if_idle, pod.gpus)), busy_ever=pod.busy_ever and None)

    return tuple(map(checked, known))


def _if_idle(gpu: Gpu) -> Gpu:
    if not is_shared(gpu.model):
        return gpu
    is_idle = gpu.peak is not None and gpu.peak < BUSY
    return replace(gpu, load=NO_LOAD) if is_idle else Gpu(device=gpu.device, model=gpu.model)


def assignable_hour(uses: Iterable[HourUse]) -> tuple[HourUse, ...]:
    """Return the pods of a cluster's hour; of shared GPUs, only idle half-hours are known."""
    known = tuple(uses)
    on_node = Counter(use.node for use in known)
    return tuple(
        use._replace(used=0.0, observed=use.idle) if is_shared(use.model) and on_node[use.node] > 1 else use
        for use in known
    )
