"""Ways to pass parameters to a training: flags, also in the order that LightningCLI needs, Hydra overrides,
or environment variables, and which variables a parameter must not replace. Pure.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

# Variables that the container, Python, or a library reads: a parameter must not replace them. With RANK=8, as
# of a LoRA, Lightning takes a training for the ninth process, which logs nothing.
RESERVED_VARIABLES = re.compile(
    r"(PATH|HOME|USER|SHELL|PWD|IFS|ENV|TERM|LANG|HOSTNAME|TMPDIR)"
    r"|(LOCAL_)?RANK|WORLD_SIZE|MASTER_(ADDR|PORT)"
    r"|(PET|LD|LC|KATIB|MLFLOW|KUBERNETES|CUDA|NVIDIA|NCCL)_.*|PYTHON.*"
)


class FlagStyle(StrEnum):
    """Values are as a space file writes them."""

    DOTS = "--a.b=1"
    DASHES = "--a-b=1"
    WORDS = "--a.b 1"
    HYDRA = "a.b=1"
    ENV = "env"

    @property
    def has_switches(self) -> bool:
        return self.value.startswith("--")


def flag(style: FlagStyle, name: str) -> str:
    """Return the flag or key of a parameter; `""` for environment variables."""
    match style:
        case FlagStyle.ENV:
            return ""
        case FlagStyle.HYDRA:
            return name
        case FlagStyle.DASHES:
            return "--" + re.sub(r"[._]", "-", name)
        case _:
            return f"--{name}"


def words(style: FlagStyle, name: str, value: str) -> list[str]:
    """Return the command's words for one value; none for an environment variable."""
    if style is FlagStyle.ENV:
        return []
    if style is FlagStyle.WORDS:
        return [flag(style, name), value]
    return [f"{flag(style, name)}={value}"]


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names, outer ones first: jsonargparse needs a `class_path` before its `init_args`."""
    return sorted(names, key=lambda name: name.count("."))


def variable(name: str) -> str:
    """Return the environment variable of a parameter: `optim.lr` is `OPTIM_LR`."""
    return re.sub(r"[.-]", "_", name).upper()
