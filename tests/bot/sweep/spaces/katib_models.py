"""What the models of `kubeflow-katib` know of an Experiment: keys and types, read from its 0.19.0.

The package itself needs an older protobuf than the product's clients.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.recordings.__init__ import FOLDER

MODELS: dict[str, dict[str, str]] = json.loads((FOLDER / "katib-models.json").read_text())["models"]
TYPES = {"str": str, "int": int, "float": (int, float), "bool": bool}


def faults(value: Any, type_: str = "V1beta1Experiment", at: str = "experiment") -> Iterator[str]:
    """Return where a value isn't what the models describe. Kubernetes' own objects aren't looked into."""
    if inner := re.fullmatch(r"list\[(.+)\]", type_):
        for index, each in enumerate(value if isinstance(value, list) else ()):
            yield from faults(each, inner[1], f"{at}[{index}]")
        if not isinstance(value, list):
            yield f"{at} isn't a list"
    elif type_ in MODELS:
        for key, each in value.items():
            if key not in MODELS[type_]:
                yield f"{at}.{key} is unknown"
            else:
                yield from faults(each, MODELS[type_][key], f"{at}.{key}")
    elif type_ == "dict(str, str)":
        if not all(isinstance(each, str) for each in value.values()):
            yield f"{at} has values that aren't strings"
    elif type_ in TYPES and (not isinstance(value, TYPES[type_]) or (type_ == "int" and value is True)):
        yield f"{at} isn't {type_}"
