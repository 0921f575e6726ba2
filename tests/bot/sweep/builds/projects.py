"""Projects' files, and the recipes made from them, for the tests of builds."""

from dataclasses import replace

from bot.platform.config.repositories import Repository
from bot.sweep.builds.recipes import recipe

REPOSITORY = Repository(name="digits", url="https://git.example/digits.git")
BASE = "python:3.11-slim@sha256:ab"
PROJECT = '[project]\nname = "digits"\ndependencies = ["numpy"]\n'
PYPI = '{ registry = "https://pypi.org/simple" }'
LOCK = f"""
[[package]]
name = "digits"
source = {{ virtual = "." }}
dependencies = [
    {{ name = "numpy" }},
]

[package.metadata]
requires-dist = [
    {{ name = "numpy" }},
]

[[package]]
name = "numpy"
version = "2.4.6"
source = {PYPI}
"""
TORCH = f"""
[[package]]
name = "torch"
version = "2.7.1"
source = {PYPI}
dependencies = [
    {{ name = "nvidia-nccl-cu12", marker = "platform_machine == 'x86_64' and sys_platform == 'linux'" }},
]
wheels = [
  {{ url = "https://x/torch-2.7.1-cp311-cp311-manylinux_2_28_x86_64.whl", hash = "sha256:a1" }},
  {{ url = "https://x/torch-2.7.1-cp311-none-macosx_11_0_arm64.whl", hash = "sha256:a2" }},
]
"""
CUDA = f"""
[[package]]
name = "nvidia-nccl-cu12"
version = "2.26"
source = {PYPI}
wheels = [{{ url = "https://x/nvidia_nccl_cu12-2.26-py3-none-manylinux2014_x86_64.whl", hash = "sha256:b1" }}]
"""
WITH_TORCH = LOCK.replace('{ name = "numpy" },', '{ name = "numpy" },\n    { name = "torch" },') + TORCH
UV = {"pyproject.toml": PROJECT, "uv.lock": LOCK}


def made(files, base=BASE, **config):
    heavy_at = "reg:5000/sweepbot/dependencies:heavy-"
    return recipe(files, replace(REPOSITORY, **config), base, heavy_at, "mambaorg/micromamba:2")


def roles(found):
    return [step.role for step in found.steps]


BUILD = "[build-system]\nbuild-backend = "
