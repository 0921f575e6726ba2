"""What the cluster runs is in docs/versions.md. Versions that were never tried are named by a skip."""

import pytest

from k8s.api.client import KubernetesClient
from tests.conformance.versions import Supported, installed, table


async def images(cluster: KubernetesClient) -> list[str]:
    specs = [each["spec"]["template"]["spec"] for each in await cluster.list("Deployment", "")]
    return [container["image"] for spec in specs for container in spec["containers"]]


async def test_versions_in_the_cluster_are_supported(cluster: KubernetesClient) -> None:
    found = {"Kubernetes": await cluster.version(), **installed(await images(cluster))}
    faults = [table()[part].fault(part, version) for part, version in found.items()]
    assert [fault for too_old, fault in faults if too_old] == []
    if untried := [fault for _, fault in faults if fault]:
        pytest.skip("; ".join(untried))


@pytest.mark.parametrize(
    ("found", "too_old", "fault"),
    [
        ("v1.26.9", True, "Thing v1.26.9 is older than docs/versions.md supports"),
        ("v1.27.0-gke.100", False, ""),
        ("v1.30.9", False, ""),
        ("1.31", False, "Thing 1.31 wasn't tried: if the other tests pass, add it to docs/versions.md"),
    ],
)
def test_version_is_compared_with_oldest_and_tried(found: str, too_old: bool, fault: str) -> None:
    assert Supported((1, 27), (1, 30, 2)).fault("Thing", found) == (too_old, fault)


def test_versions_are_read_from_images() -> None:
    named = [
        "ghcr.io/kubeflow/katib/katib-controller:v0.19.0",
        "mirror.example:5000/kueue/kueue:v0.19.2@sha256:1",
    ]
    assert installed([*named, "mirror.example/kueue-viz:v1.0"]) == {"Katib": "v0.19.0", "Kueue": "v0.19.2"}
