"""Hold the configuration that is in effect, and replace it when its file changes.

Kubernetes writes a changed ConfigMap into the pods' volume within about a minute, by swapping the symlink
`..data` (https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/). A mount with
`subPath` never changes. A file with errors is rejected as a whole, and the previous configuration stays.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Self

from bot.core.errors import UserError
from bot.core.metrics import CONFIG_READ_AT, CONFIG_VALID
from bot.platform.config.policy import Config, parse_config, read_text

log = logging.getLogger(__name__)

READ_INTERVAL = 5.0  # seconds
VERSION_LENGTH = 12  # characters


class LivePolicy:
    """`config` is the one in effect, `error` says why the file's current `version` was rejected, if it was.

    A process with a fixed configuration has no `path`.
    """

    def __init__(self, config: Config, path: Path | None = None, version: str = "") -> None:
        self.config, self.version, self.error = config, version, ""
        self._path, self._seen = path, version
        self._check: Callable[[Config], object] = lambda _: None
        self._users: list[Callable[[], None]] = []
        self._set_metrics()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file. Raises UserError if it can't be read or has errors."""
        text = read_text(path)
        return cls(parse_config(text, path.name), path, _version(text))

    def require(self, check: Callable[[Config], object]) -> None:
        """Reject files for which `check` raises UserError. Raises it for the configuration in effect."""
        check(self.config)
        self._check = check

    def used_by(self, take: Callable[[], None]) -> None:
        """Call `take` whenever `config` has changed, before the log says that it is in effect."""
        self._users.append(take)

    async def follow(self) -> None:
        """Refresh until cancelled."""
        while True:
            await asyncio.sleep(READ_INTERVAL)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the file, and take it once it is the same in two reads: an editor can be writing it."""
        if self._path is None:
            return
        try:
            text = await asyncio.to_thread(read_text, self._path)
        except UserError as error:
            text, problem = str(error), str(error)
        else:
            problem = ""
        version = _version(text)
        before, self._seen = self._seen, version
        if version == before and version != self.version:
            await self._replace(version, text, problem)

    async def _replace(self, version: str, text: str, problem: str) -> None:
        self.version, self.error = version, problem
        if not problem:
            try:
                self.config = await asyncio.to_thread(self._parsed, text)
            except UserError as error:
                self.error = str(error)
        for take in () if self.error else self._users:
            take()
        self._set_metrics()
        if self.error:
            log.error("configuration %s rejected, the previous one stays: %s", version, self.error)
        else:
            log.info("configuration %s is in effect", version)

    def _parsed(self, text: str) -> Config:
        config = parse_config(text, self._path.name if self._path else "")
        self._check(config)
        return config

    def _set_metrics(self) -> None:
        CONFIG_VALID.set(not self.error)
        if not self.error:
            CONFIG_READ_AT.set_to_current_time()


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_LENGTH]
