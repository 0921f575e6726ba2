"""Parsing beside the event loop: a large file of one person must not delay everybody's commands.

One thread, so that only one such file at a time takes memory and processor. Each parser bounds its input and
takes time linear in it: a thread can't be ended, and one regular expression holds up all threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parsing")


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function returns or raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, lambda: function(*args, **kwargs))
