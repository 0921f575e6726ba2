"""The API server alone, as a process."""

import asyncio
import signal
import sys

import pytest

from k8s.api.client import KubernetesClient


@pytest.mark.parametrize("stop", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
async def test_command_serves_until_stopped(tmp_path, monkeypatch, stop):
    config = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "local", "kubernetes", "--port", "0", "--kubeconfig", str(config)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    address = (await process.stdout.readline()).decode().strip()
    assert address.startswith("http://127.0.0.1:")
    monkeypatch.setenv("KUBECONFIG", str(config))
    cluster = await KubernetesClient.connect()
    assert await cluster.version() == "v1.36.2"
    assert await cluster.list("Experiment", "default") == []
    await cluster.close()
    process.send_signal(stop)
    assert await process.wait() == 0
