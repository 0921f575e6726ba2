"""Which kinds of series the GPUs of a cluster have, so that a query leaves out the others. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bot.measure.sources.prometheus import Device, Row
from k8s.nodes.dcgm import ENGINE, LOAD, UTIL

POD_NAMES = {
    "exported_namespace, exported_pod": 'exported_namespace!="",exported_pod!=""',
    "namespace, pod": 'exported_namespace="",exported_pod="",pod!=""',
    # A scrape renames only the labels that its target has, too.
    "exported_namespace, pod": 'exported_namespace!="",exported_pod="",pod!=""',
    "namespace, exported_pod": 'exported_namespace="",exported_pod!=""',
}
POD, BY_HOST = ("namespace", "pod"), "gpu, Hostname, hostname"
GPU_NAMES = {"UUID": 'UUID!=""', BY_HOST: 'UUID=""'}


class Naming(NamedTuple):
    labels: str  # that name a GPU and its pod
    selector: str  # of the series with them
    restored: bool = False  # the labels are those after `promql.original`


NAMINGS = tuple(
    Naming(f"{gpu}, {pod}", f"{has_gpu},{has_pod}")
    for pod, has_pod in POD_NAMES.items()
    for gpu, has_gpu in GPU_NAMES.items()
)
RESTORED = tuple(
    Naming(f"{gpu}, namespace, pod", has_gpu, restored=True) for gpu, has_gpu in GPU_NAMES.items()
)
# A row for each naming in use, with its index. Google's Prometheus has no regular expressions for `__name__`.
NAMINGS_IN_USE = " or ".join(
    f'label_replace(count({UTIL}{{{has}}} or {ENGINE}{{{has}}}), "naming", "{index}", "", "")'
    for index, (_, has, _) in enumerate(NAMINGS)
)
LOADS_IN_USE = " or ".join(f'label_replace(count({each}), "metric", "{each}", "", "")' for each in LOAD)


@dataclass(frozen=True)
class SeriesKinds:
    engine_only: bool = False  # GR_ENGINE_ACTIVE measures every GPU that GPU_UTIL does
    namings: tuple[Naming, ...] = NAMINGS
    loads: frozenset[str] = frozenset()  # those metrics of `Load` that exist


ALL_KINDS = SeriesKinds()


def namings_of(series: Iterable[Row]) -> tuple[Naming, ...]:
    """Return those of these series; `RESTORED` if two scrapes of one GPU name its pod by other labels."""
    found: dict[Device, set[str]] = defaultdict(set)
    for row in series:
        its = (f"exported_{each}" if f"exported_{each}" in row.labels else each for each in POD)
        found[row.device].add(", ".join(["UUID" if row.labels.get("UUID") else BY_HOST, *its]))
    if any(len(each) > 1 for each in found.values()):
        return RESTORED
    used = set[str]().union(*found.values())
    return tuple(each for each in NAMINGS if each.labels in used)


def namings_in_use(indexes: set[str]) -> tuple[Naming, ...]:
    """Return the namings with these indexes; all of them without metrics."""
    return tuple(each for index, each in enumerate(NAMINGS) if str(index) in indexes) or NAMINGS
