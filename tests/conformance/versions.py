"""The table of docs/versions.md: which versions of other systems are supported, and which were tried."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/versions.md"
ROW = re.compile(r"^\| ([\w -]+) \| ([\d.]+|-) \| ([\d.]+|-) \|", re.MULTILINE)
# Whose image has this in its name, in the cluster.
IMAGES = {
    "Katib": "katib-controller",
    "Kueue": "kueue",
    "Training Operator": "training-operator",
    "Trainer": "trainer-controller-manager",
    "Prometheus operator": "prometheus-operator",
}


@dataclass(frozen=True)
class Supported:
    """Versions as numbers; empty if the page has none."""

    oldest: tuple[int, ...]
    tried: tuple[int, ...]

    def fault(self, part: str, found: str) -> tuple[bool, str]:
        """Return whether a version is too old, and what to say if it isn't one that was tried."""
        version = numbers(found)
        if version < self.oldest:
            return True, f"{part} {found} is older than docs/versions.md supports"
        if version[:2] > self.tried[:2]:
            return False, f"{part} {found} wasn't tried: if the other tests pass, add it to docs/versions.md"
        return False, ""


def numbers(version: str) -> tuple[int, ...]:
    """Return (1, 36, 2) of `v1.36.2-gke.100`."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


def table() -> dict[str, Supported]:
    return {
        part: Supported(numbers(oldest), numbers(tried))
        for part, oldest, tried in ROW.findall(PAGE.read_text())
    }


def installed(images: list[str]) -> dict[str, str]:
    """Return the version of each part that runs one of the images."""
    named = {part: re.compile(rf"/{name}:(v?\d[^@]*)") for part, name in IMAGES.items()}
    found = [(part, name.search(image)) for part, name in named.items() for image in images]
    return {part: tag[1] for part, tag in found if tag}
