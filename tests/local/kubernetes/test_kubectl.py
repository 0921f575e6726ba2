"""kubectl itself, with the file that `make demo` names."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from local.kubernetes.apiserver.api import KUBECTL, ApiServer
from local.kubernetes.apiserver.store import Store

SAID = [
    ("get cm", "here"),
    ("get configmaps -A", "default"),
    ("get experiments", "No resources found in default namespace."),
    ("get jobs,trials,pods", "No resources found in default namespace."),
    ("describe configmap here", "Name:         here"),
    ("delete configmap here", 'configmap "here" deleted'),
    ("get configmap here", 'Error from server (NotFound): configmaps "here" not found'),
    ("get nonsense", 'error: the server doesn\'t have a resource type "nonsense"'),
]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl isn't installed")
async def test_kubectl_gets_and_deletes(store: Store, server: ApiServer, tmp_path: Path) -> None:
    store.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "namespace": "default"}}
    )
    server.kubeconfig(tmp_path / "kubeconfig", below=KUBECTL)
    for words, answer in SAID:
        assert answer in await _kubectl(words, tmp_path)


async def _kubectl(words: str, home: Path) -> str:
    env = {**os.environ, "KUBECONFIG": str(home / "kubeconfig"), "HOME": str(home)}
    pipe, mixed = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    command = ("kubectl", *words.split())
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=mixed)
    return (await process.communicate())[0].decode()
