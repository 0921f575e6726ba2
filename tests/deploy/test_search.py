"""deploy/search registers the search service, and keeps what Katib installs."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.kustomize import DEPLOY, one, render

# As in Katib 0.19 (manifests/v1beta1/installs/katib-standalone)
KATIB = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: kubeflow
configMapGenerator:
- name: katib-config
  behavior: create
  files: [katib-config.yaml]
  options: {disableNameSuffixHash: true}
"""


def rendered(folder: Path) -> Any:
    """Return katib-config of Katib with the component."""
    shutil.copytree(DEPLOY / "search", folder / "search")
    (folder / "katib").mkdir()
    (folder / "katib/kustomization.yaml").write_text(KATIB)
    (folder / "katib/katib-config.yaml").write_text("runtime: {suggestions: []}\n")
    (folder / "mine").mkdir()
    (folder / "mine/kustomization.yaml").write_text("resources: [../katib]\ncomponents: [../search]\n")
    return one(render(folder / "mine"), "ConfigMap", "katib-config")


def test_component_adds_the_service_beside_katibs_own(tmp_path: Path) -> None:
    found = rendered(tmp_path)
    assert found["metadata"]["namespace"] == "kubeflow"
    config = yaml.safe_load(found["data"]["katib-config.yaml"])
    entries = {each["algorithmName"]: each for each in config["runtime"]["suggestions"]}
    assert entries.keys() > {"random", "tpe", "grid", "cmaes", "sobol", "sweepbot"}
    assert {each["kind"] for each in config["runtime"]["metricsCollectors"]} == {
        "StdOut",
        "File",
        "TensorFlowEvent",
    }
    entry = entries["sweepbot"]
    assert "ports" not in entry  # Katib adds its own, and rejects a second one of that name or number
    assert entry["resources"]["limits"]["memory"] == "400Mi"
    assert entry["securityContext"] == {  # of Pod Security's level `restricted`
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
