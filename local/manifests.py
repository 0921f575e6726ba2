"""Read the objects of YAML files."""

from functools import cache
from pathlib import Path

import yaml

from local.kubernetes.kinds import Object, clone


def read(file: Path) -> list[Object]:
    """Return copies of the file's objects. Each file is parsed once: PyYAML takes 50 ms for the rights."""
    return clone(_parsed(file))


@cache
def _parsed(file: Path) -> list[Object]:
    return list(yaml.safe_load_all(file.read_text()))
