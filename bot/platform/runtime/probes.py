"""Answer /healthz (is this process alive?) and /readyz (are the services it needs reachable?).

Checks run periodically in the background, so /readyz answers immediately even if a service hangs. A failure
shows within the check's period plus `PROBE_TIMEOUT`; a recovery sooner.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from bot.text.masking import Mask
from k8s.api.errors import SweepbotError

log = logging.getLogger(__name__)

PROBE_TIMEOUT = 3.0  # seconds
Probe = Callable[[], Awaitable[str]]


class ProbeFailedError(SweepbotError):
    """The message says what is wrong."""


@dataclass(frozen=True)
class Result:
    ok: bool
    message: str
    at: float  # by time.monotonic()


class Probes:
    """The checks of one process.

    Args:
        stopping: returns whether the process is shutting down.
        mask: everyone in the cluster can read the pages.
    """

    def __init__(self, stopping: Callable[[], bool], mask: Mask) -> None:
        self._stopping = stopping
        self._mask = mask
        self._checks: dict[str, float] = {}
        self._vital: dict[str, Probe] = {}
        self._answers: dict[str, Result] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = 0

    def expect(self, jobs: int) -> None:
        """Fail /readyz until so many parts of the process have called `started`."""
        self._starting = jobs

    def started(self) -> None:
        """Report that a part of the process has added its checks: ready must mean all of them."""
        self._starting -= 1

    def check(self, name: str, ask: Probe, every: float = 5.0) -> None:
        """Add a check to /readyz: the text that `ask` returns, or the error that it raises.

        A second check of the same name is ignored: two parts of a process can need the same service.

        Args:
            every: seconds.
        """
        if name in self._checks:
            return
        self._checks[name] = every
        self._tasks.add(asyncio.create_task(self._repeat(name, ask, every)))

    def vital(self, name: str, ask: Probe) -> None:
        """Add a check to /healthz, whose failure only a restart fixes. It runs on each request: no I/O."""
        self._vital[name] = ask

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def health(self) -> tuple[bool, dict[str, Any]]:
        """Return the page of /healthz; that it answers shows that the event loop runs."""
        answers = {name: await self._ask(ask) for name, ask in self._vital.items()}
        return self._page("healthy", answers)

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Return the page of /readyz."""
        answers = {name: self._latest(name, every) for name, every in self._checks.items()}
        if self._starting:
            answers["process"] = Result(ok=False, message="starting", at=monotonic())
        if self._stopping():
            answers["process"] = Result(ok=False, message="shutting down", at=monotonic())
        return self._page("ready", answers)

    def _page(self, word: str, answers: dict[str, Result]) -> tuple[bool, dict[str, Any]]:
        well = all(answer.ok for answer in answers.values())
        now = monotonic()
        checks = {
            name: {"ok": answer.ok, "message": answer.message, "seconds_ago": round(now - answer.at, 1)}
            for name, answer in answers.items()
        }
        return well, {word: well, "checks": checks}

    def _latest(self, name: str, every: float) -> Result:
        if name not in self._answers:
            return Result(ok=False, message="not checked yet", at=monotonic())
        answer = self._answers[name]
        if monotonic() - answer.at > every + 2 * PROBE_TIMEOUT:
            return Result(ok=False, message=f"check is stuck; last result: {answer.message}", at=answer.at)
        return answer

    async def _repeat(self, name: str, ask: Probe, every: float) -> None:
        while True:
            before, now = self._answers.get(name), await self._ask(ask)
            self._answers[name] = now
            if (before is None or before.ok != now.ok) and not self._stopping():
                level = logging.INFO if now.ok else logging.WARNING
                log.log(level, "%s: %s: %s", "ready" if now.ok else "not ready", name, now.message)
            await asyncio.sleep(every if now.ok else every / 5)

    async def _ask(self, ask: Probe) -> Result:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                return Result(ok=True, message=self._mask(await ask()), at=monotonic())
        except TimeoutError:
            message = f"no answer within {PROBE_TIMEOUT:.0f} s"
        except Exception as error:  # noqa: BLE001 - any error is a result
            message = self._mask(str(error) or type(error).__name__)
        return Result(ok=False, message=message, at=monotonic())
