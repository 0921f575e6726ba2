"""Answers recorded from a real kube-apiserver with the real Katib controller."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def body(name: str) -> dict[str, Any]:
    """The body of a recorded answer, such as "04-pod-running"."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())["body"]
    return found
