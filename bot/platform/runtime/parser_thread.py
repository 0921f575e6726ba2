"""Parse files off the event loop: one user's large file must not delay other users' commands.

One thread, so that only one file at a time uses memory and CPU. Each parser bounds its input and takes time
linear in it. The deadline is a second safeguard: a thread can't be killed, so one past its deadline is
abandoned, and the next file gets a new one.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from bot.core.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE = 60.0  # seconds, including the wait for other files; the largest allowed file takes a few


class _Parser:
    def __init__(self) -> None:
        self._thread = _new_thread()

    async def run(self, work: Callable[[], T]) -> T:
        thread = self._thread
        result = asyncio.get_running_loop().run_in_executor(thread, work)
        done, _ = await asyncio.wait([result], timeout=DEADLINE)
        if done:
            return result.result()
        if self._thread is thread:
            self._thread = _new_thread()
            thread.shutdown(wait=False)
        raise UserError(
            f"Reading the file took more than {DEADLINE:g} s. *Fix:* Make it smaller, or try again later."
        )


def _new_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="parsing")


_PARSER = _Parser()


async def run_in_parser_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the function returns.

    Raises what it raises, and UserError if it takes more than DEADLINE seconds.
    """
    return await _PARSER.run(lambda: function(*args, **kwargs))
