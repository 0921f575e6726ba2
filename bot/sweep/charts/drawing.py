"""Have pictures drawn in processes of their own, one at a time, with secrets masked and a limit of time,
while sweeps continue.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from redis.exceptions import RedisError

from bot.core.errors import RetryAfterError
from bot.core.space import Parameter
from bot.sweep.results.models import SweepResults, TrialResult, dump
from bot.text.masking import Mask
from k8s.api.errors import SweepbotError

log = logging.getLogger(__name__)

TIMEOUT = 300.0  # seconds of one picture, on a busy node
RECHECK = 60.0  # seconds
MAX_SIZE = 5 * 2**20  # bytes; a usual one has a tenth of a megabyte
MAX_KEPT = 20  # pictures that no reconcile has fetched: another worker was faster
# Nothing else of the environment reaches the process: it needs no secret.
PASSED = ("PATH", "HOME", "LANG", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "MPLCONFIGDIR", "TMPDIR")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Picture:
    alt: str
    png: bytes  # b"" if there is none


class DrawingError(SweepbotError):
    """The process failed; the text says how."""


class PictureWaitError(RetryAfterError):
    """The picture is being drawn. The sweep is woken when it is there, or `seconds` later."""

    def __init__(self) -> None:
        super().__init__("the picture is being drawn", RECHECK)


Draw = Callable[[SweepResults], Awaitable[Picture]]
Key = tuple[str, datetime]


class Pictures:
    """`wake` queues a sweep, by its ID, once its picture is drawn."""

    def __init__(self, wake: Callable[[str], Awaitable[None]], mask: Mask, draw: Draw | None = None) -> None:
        self._wake, self._mask, self._draw = wake, mask, draw or drawn
        self._one_at_a_time = asyncio.Lock()
        self.encoding = asyncio.Lock()  # of trials' pictures, one at a time, too: one takes up to 500 MB
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._found: dict[Key, Picture] = {}

    def get(self, results: SweepResults) -> Picture | None:
        """Return the picture, until `forget`; None while it is drawn. Never waits."""
        key = (results.sweep, results.ended)
        if key not in self._found and key not in self._tasks:
            self._tasks[key] = task = asyncio.create_task(self._run(key, results))
            task.add_done_callback(lambda _: self._tasks.pop(key))
        return self._found.get(key)

    def forget(self, results: SweepResults) -> None:
        self._found.pop((results.sweep, results.ended), None)

    async def close(self) -> None:
        """Stop drawing, at the process' end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Key, results: SweepResults) -> None:
        async with self._one_at_a_time:
            picture = Picture("", b"")
            try:
                picture = await self._draw(await asyncio.to_thread(masked, results, self._mask))
            except Exception as error:  # noqa: BLE001 - else the sweep would wait for it forever
                log.warning("can't draw the results of %s: %s", results.sweep, error or "timeout")
        self._found[key] = picture
        for oldest in list(self._found)[:-MAX_KEPT]:
            del self._found[oldest]
        with suppress(RedisError):  # the reconcile runs again a little later
            await self._wake(results.sweep)


async def drawn(results: SweepResults) -> Picture:
    """Draw in a process of its own. Raises DrawingError, OSError, or TimeoutError."""
    stored = await asyncio.to_thread(dump, results)
    return Picture(*await run_apart("bot.sweep.charts.draw", stored, TIMEOUT))


async def run_apart(module: str, content: bytes, seconds: float) -> tuple[str, bytes]:
    """Run a module on this input, without secrets; return its text and its picture, with a NUL between.

    Raises DrawingError, OSError, or TimeoutError.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: os.environ[name] for name in PASSED if name in os.environ} | ONE_THREAD,
    )
    try:
        async with asyncio.timeout(seconds):
            answer, errors = await process.communicate(content)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    said, nul, picture = answer.partition(b"\0")
    if process.returncode or not nul or len(picture) > MAX_SIZE:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise DrawingError(f"exit code {process.returncode}: {last[:500]}")
    return said.decode(), picture


def masked(results: SweepResults, mask: Mask) -> SweepResults:
    """Return the results with masked texts, as far as a picture shows them. Takes a second for a thousand."""
    known: dict[str, str] = {}

    def clean(text: str) -> str:
        if text not in known:
            known[text] = mask(text)
        return known[text]

    def parameter(each: Parameter) -> Parameter:
        return replace(each, name=clean(each.name), values=tuple(map(clean, each.values)))

    def trial(each: TrialResult) -> TrialResult:
        parameters = {clean(name): clean(value) for name, value in each.parameters.items()}
        return replace(each, parameters=parameters, more={clean(n): v for n, v in each.more.items()})

    space = results.space
    parameters = tuple(parameter(each) for each in space.parameters)
    return replace(
        results,
        space=replace(
            space,
            metric=clean(space.metric),
            goals={clean(name): goal for name, goal in space.goals.items()},
            parameters=parameters,
            pairs=space.pairs
            and replace(
                space.pairs, branches=tuple(map(clean, space.pairs.branches)), seed=clean(space.pairs.seed)
            ),
        ),
        trials=tuple(map(trial, results.trials)),
    )
