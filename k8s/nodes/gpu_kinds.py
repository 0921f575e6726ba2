"""What a node offers as GPUs, and how its model is then named: whole ones, MIG slices by profile, or shares
of a GPU for several pods. Pure.

NVIDIA's device plugin offers each GPU several times for time-slicing and MPS (`replicas`). Nothing but the
number tells so everywhere: nodes have more GPUs to allocate than their exporter has devices.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

SHARE = re.compile(r" shared 1/(\d+)$")  # behind the model's name
PROFILE = re.compile(r"nvidia[._]com[/_]mig[-_](.+?)(?:[._]shared)?")  # also as kube-state-metrics spells it
SLICE = " MIG "  # between the model's name and its profile


@dataclass(frozen=True)
class NodeDevices:
    """The devices that a node's exporter reports."""

    models: Mapping[str, int] = field(default_factory=dict)  # number by model, a slice's with its profile
    complete: bool = False  # none is left out, such as free ones by relabeling

    @classmethod
    def of(cls, counted: Mapping[tuple[str, str], int]) -> "NodeDevices":
        """`counted`: devices by model and index; NVIDIA counts from 0, so a gap is a GPU left out."""
        models = Counter[str]()
        for (model, _), number in counted.items():
            models[model] += number
        indexes = {index for _, index in counted}
        has_all = indexes == {str(number) for number in range(len(indexes))}
        one_each = all(number == 1 for (model, _), number in counted.items() if SLICE not in model)
        return cls(models, has_all and one_each)

    def model(self, resource: str, total: int) -> str:
        """Return the model of what the node offers as `resource`, `total` times; "" if unknown."""
        found = PROFILE.fullmatch(resource)
        wanted = _spelled(found[1]) if found else ""
        slices = {model: number for model, number in self.models.items() if SLICE in model}
        fits = {model: number for model, number in self.models.items() if _profile(model) == wanted}
        if not found and slices and (not fits or sum(fits.values()) != total == sum(slices.values())):
            fits = slices  # MIG strategy "single": slices are requested like whole GPUs
        if not fits:
            return ""
        model, number = max(fits, key=lambda each: fits[each]), sum(fits.values())
        # Exporters needn't have the slices that are free.
        countable = self.complete if SLICE not in model else resource.endswith("shared")
        is_multiple = total > number and total % number == 0
        return f"{model} shared 1/{total // number}" if countable and is_multiple else model


def _profile(model: str) -> str:
    return _spelled(model.partition(SLICE)[2])


def _spelled(profile: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", profile.lower())


def is_shared(model: str) -> bool:
    return bool(SHARE.search(model))


def with_share(model: str, offered: str) -> str:
    """Return a device's model as a share of it, if the node offers shares."""
    found = SHARE.search(offered)
    return model + found[0] if found else model


def is_whole(model: str) -> bool:
    return SLICE not in model and not is_shared(model)
