"""Read the objects of YAML files."""

from functools import cache
from pathlib import Path

import yaml

from local.kubernetes.apiserver.kinds import Object, clone


def read(file: Path) -> list[Object]:
    """Return copies of the file's objects. Each file is parsed once: that takes milliseconds."""
    return clone(_parsed(file))


@cache
def _parsed(file: Path) -> list[Object]:
    return list(yaml.load_all(file.read_text(), yaml.CSafeLoader))
