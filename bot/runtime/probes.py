"""Is this process well, and of use? What /healthz and /readyz answer.

Each check is asked again and again in the background, so that an answer costs nothing, comes at once whatever
hangs. A broken part shows within the check's period and `PATIENCE`; a mended one sooner.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from bot.core.masking import Mask

log = logging.getLogger(__name__)

PATIENCE = 3.0  # seconds for an answer
Probe = Callable[[], Awaitable[str]]


class ProbeFailedError(Exception):
    """What is wrong, in a sentence."""


@dataclass(frozen=True)
class Answer:
    ok: bool
    said: str
    at: float  # by time.monotonic()


class Probes:
    """`stopping`: whether the process is about to end. `mask`: pages can be read by anyone in the cluster."""

    def __init__(self, stopping: Callable[[], bool], mask: Mask) -> None:
        self._stopping = stopping
        self._mask = mask
        self._checks: dict[str, float] = {}
        self._vital: dict[str, Probe] = {}
        self._answers: dict[str, Answer] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def check(self, name: str, ask: Probe, every: float = 5.0) -> None:
        """From now on /readyz tells what `ask` finds: its words, or what it raises. `every`: seconds.

        Two parts of a process may need the same: the first one's check is enough.
        """
        if name in self._checks:
            return
        self._checks[name] = every
        self._asking.add(asyncio.create_task(self._repeat(name, ask, every)))

    def vital(self, name: str, ask: Probe) -> None:
        """For /healthz: this broken, only a new process helps. Asked there and then, so it must not wait."""
        self._vital[name] = ask

    async def close(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def health(self) -> tuple[bool, dict[str, Any]]:
        """The page of /healthz. That it comes at all shows that the event loop turns."""
        answers = {name: await self._ask(ask) for name, ask in self._vital.items()}
        return self._page("healthy", answers)

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """The page of /readyz."""
        answers = {name: self._latest(name, every) for name, every in self._checks.items()}
        if self._stopping():
            answers["process"] = Answer(ok=False, said="is ending", at=monotonic())
        return self._page("ready", answers)

    def _page(self, word: str, answers: dict[str, Answer]) -> tuple[bool, dict[str, Any]]:
        well = all(answer.ok for answer in answers.values())
        now = monotonic()
        checks = {
            name: {"ok": answer.ok, "said": answer.said, "seconds_ago": round(now - answer.at, 1)}
            for name, answer in answers.items()
        }
        return well, {word: well, "checks": checks}

    def _latest(self, name: str, every: float) -> Answer:
        if name not in self._answers:
            return Answer(ok=False, said="not asked yet", at=monotonic())
        answer = self._answers[name]
        if monotonic() - answer.at > every + 2 * PATIENCE:  # asking itself must be stuck
            return Answer(ok=False, said=f"no news since: {answer.said}", at=answer.at)
        return answer

    async def _repeat(self, name: str, ask: Probe, every: float) -> None:
        while True:
            before, now = self._answers.get(name), await self._ask(ask)
            self._answers[name] = now
            if (before is None or before.ok != now.ok) and not self._stopping():
                level = logging.INFO if now.ok else logging.WARNING
                log.log(level, "%s: %s: %s", "ready" if now.ok else "not ready", name, now.said)
            await asyncio.sleep(every if now.ok else every / 5)

    async def _ask(self, ask: Probe) -> Answer:
        try:
            async with asyncio.timeout(PATIENCE):
                return Answer(ok=True, said=self._mask(await ask()), at=monotonic())
        except TimeoutError:
            said = f"no answer within {PATIENCE:.0f} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            said = self._mask(str(error) or type(error).__name__)
        return Answer(ok=False, said=said, at=monotonic())
