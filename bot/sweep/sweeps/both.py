"""Make two independent calls of a reconcile at once."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


async def both(first: Awaitable[First], second: Awaitable[Second]) -> tuple[First, Second]:
    """Return both results once both calls have ended; raise the first one's error, else the second one's."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    for each in (one, other):
        if isinstance(each, BaseException):
            raise each
    return one, other  # type: ignore[return-value]
