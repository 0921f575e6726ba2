"""Which kinds of series the GPUs of a cluster have, so that a query leaves out the others. Pure."""

from dataclasses import dataclass

from k8s.nodes.dcgm import ENGINE, LOAD, UTIL

POD_NAMES = {
    "exported_namespace, exported_pod": 'exported_pod!=""',
    "namespace, pod": 'exported_pod="",pod!=""',
}
GPU_NAMES = {"UUID": 'UUID!=""', "gpu, Hostname, hostname": 'UUID=""'}
Naming = tuple[str, str]  # the labels that name a GPU and its pod, and a selector of the series with them
NAMINGS: tuple[Naming, ...] = tuple(
    (f"{gpu}, {pod}", f"{has_gpu},{has_pod}")
    for pod, has_pod in POD_NAMES.items()
    for gpu, has_gpu in GPU_NAMES.items()
)
# A row for each naming in use, with its index.
NAMINGS_IN_USE = " or ".join(
    f'label_replace(count({{__name__=~"{UTIL}|{ENGINE}",{selector}}}), "naming", "{index}", "", "")'
    for index, (_, selector) in enumerate(NAMINGS)
)
LOADS_IN_USE = f'count by (__name__) ({{__name__=~"{"|".join(LOAD)}"}})'


@dataclass(frozen=True)
class SeriesKinds:
    engine_only: bool = False  # GR_ENGINE_ACTIVE measures every GPU that GPU_UTIL does
    namings: tuple[Naming, ...] = NAMINGS
    loads: frozenset[str] = frozenset()  # those metrics of `Load` that exist


ALL_KINDS = SeriesKinds()


def namings_in_use(indexes: set[str]) -> tuple[Naming, ...]:
    """Return the namings with these indexes; all of them without metrics."""
    return tuple(each for index, each in enumerate(NAMINGS) if str(index) in indexes) or NAMINGS
