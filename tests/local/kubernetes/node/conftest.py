"""Kubelets that stop with their test."""

import pytest

from tests.local.kubernetes.node.pods import KubernetesClient


@pytest.fixture
async def start(tmp_path):
    clusters = []

    def make(**options) -> KubernetesClient:
        clusters.append(KubernetesClient(tmp_path / "pods", **options))
        return clusters[-1]

    yield make
    for cluster in clusters:
        await cluster.kubelet.close()
