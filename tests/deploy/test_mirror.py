"""`deploy/mirror-images` brings what an installation pulls into a registry of a closed cluster."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bot.platform.config.settings import PlanSettings
from bot.platform.registry.images import CONFIG, LAYER, OCI
from tests.bot.platform.registry.registries import Pusher, a_registry

SCRIPT = Path(__file__).parents[2] / "deploy" / "mirror-images"
SETTINGS = ("kaniko_image", "base_image", "micromamba_image")
DIGEST = "sha256:" + "ab" * 32


def test_list_has_the_images_of_manifests_and_settings_with_their_digests(tmp_path):
    asked = tmp_path / "skopeo"
    asked.write_text(f"#!/bin/sh\necho {DIGEST}\n")
    asked.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run([SCRIPT], env={"PATH": path}, capture_output=True, text=True, check=True)
    defaults = {PlanSettings.model_fields[name].default for name in SETTINGS}
    others = {"registry.k8s.io/pause:3.10", "ghcr.io/kubeflow/katib/suggestion-optuna:v0.19.0"}
    listed = set(run.stdout.split())
    assert {f"{image}@{DIGEST}" for image in defaults | others} <= listed
    assert any(line.startswith("valkey/valkey:") for line in listed)
    assert not any("sweepbot" in line for line in listed), "built from the Dockerfile"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo isn't installed")
async def test_images_are_copied_with_their_digests(tmp_path):
    async with (
        a_registry("distribution", tmp_path / "a") as here,
        a_registry("distribution", tmp_path / "b") as there,
    ):
        digest, _ = await Pusher(here).image(
            "team/tool", "v1", (OCI, CONFIG[OCI], LAYER[OCI]), [b"layer"], {}
        )
        options = "--src-tls-verify=false --dest-tls-verify=false"
        process = await asyncio.create_subprocess_exec(
            SCRIPT,
            f"{there}/mirror",
            f"{here}/team/tool:v1",
            env={**os.environ, "SKOPEO_COPY": options},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert out.decode() == f"{there}/mirror/team/tool@{digest}\n"
        status, headers, _ = await Pusher(there).call("HEAD", "mirror/team/tool/manifests/v1", Accept=OCI)
        assert (status, headers["Docker-Content-Digest"]) == (200, digest)
