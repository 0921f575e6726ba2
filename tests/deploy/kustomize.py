"""Manifests as kubectl renders them, and applies them to a server."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from local.kubernetes.apiserver.kinds import KINDS
from local.kubernetes.apiserver.store import Object

DEPLOY = Path(__file__).parents[2] / "deploy"
# KUBECTL can name several, such as an old and a new one: a:b
KUBECTLS = [name for name in os.environ.get("KUBECTL", "kubectl").split(":") if shutil.which(name)]


def render(folder: Path, kubectl: str = "") -> list[Object]:
    """Every object of an overlay. Skips without kubectl."""
    if not KUBECTLS:
        pytest.skip("kubectl isn't installed (Debian: kubernetes-client)")
    command = [kubectl or KUBECTLS[0], "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")  # nor does it warn of what is deprecated
    return list(yaml.safe_load_all(done.stdout))


async def apply(objects: list[Object], url: str, token: str) -> None:
    """As `kubectl apply` does, namespaces first. Kinds the server has not are left out."""
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(url, headers=headers) as session:
        for obj in sorted(objects, key=lambda obj: obj["kind"] != "Namespace"):
            if kind := KINDS.get(obj["kind"]):
                namespace = f"/namespaces/{obj['metadata']['namespace']}" if kind.namespaced else ""
                root = "/apis" if kind.group else "/api"
                path = f"{root}/{kind.api_version}{namespace}/{kind.plural}?fieldValidation=Strict"
                async with session.post(path, json=obj) as response:
                    if response.status != 409:
                        assert response.status == 201, await response.text()
                        continue
                there = path.replace("?", f"/{obj['metadata']['name']}?")
                merge = {"Content-Type": "application/merge-patch+json"}
                async with session.patch(there, data=json.dumps(obj), headers=merge) as response:
                    assert response.status == 200, await response.text()


def of(objects: list[Object], kind: str, name: str = "") -> list[Object]:
    return [obj for obj in objects if obj["kind"] == kind and obj["metadata"]["name"].startswith(name)]


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    (found,) = of(objects, kind, name)
    return found


def workloads(objects: list[Object]) -> list[Object]:
    return [obj for obj in objects if obj["kind"] in {"Deployment", "StatefulSet"}]


def secret() -> Object:
    """The template with values filled in."""
    template: dict[str, Any] = yaml.safe_load((DEPLOY / "base/secret.example.yaml").read_text())
    return template


def variables(container: Object, objects: list[Object]) -> dict[str, str]:
    """A container's environment as a kubelet builds it: all sources, then `env`, which can reference them."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            found |= one(objects, "ConfigMap", source["configMapRef"]["name"])["data"]
        else:
            found |= one(objects, "Secret", source["secretRef"]["name"])["stringData"]
    for entry in container.get("env", []):
        value = entry["value"]
        for name, known in found.items():
            value = value.replace(f"$({name})", known)
        found[entry["name"]] = value
    return found
