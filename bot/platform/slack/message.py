"""A Slack message: text and blocks."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class File:
    """A file to upload. Text is masked, bytes aren't; `alt` describes a picture."""

    name: str
    content: str | bytes
    alt: str = ""


@dataclass(frozen=True, kw_only=True)
class Message:
    text: str
    blocks: tuple[dict[str, Any], ...] = ()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps([self.text, self.blocks]).encode()).hexdigest()[:16]
