"""A Slack message (text and blocks), and a file to upload."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from bot.platform.slack.mrkdwn import unmentioned


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

    def without_mentions(self, names: Mapping[str, str]) -> Self:
        """Return the message with names in place of the mentions of these users."""
        blocks = json.loads(unmentioned(json.dumps(self.blocks), names))
        return replace(self, text=unmentioned(self.text, names), blocks=tuple(blocks))

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps([self.text, self.blocks]).encode()).hexdigest()[:16]
