"""A chart as PNG."""

import asyncio
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeVar

T = TypeVar("T")


def png_of(figure: Any) -> bytes:
    """`figure`: a matplotlib Figure."""
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


async def drawn(picture: Callable[[T], Any], content: T) -> bytes:
    """Draw in a thread: it takes half a second of CPU, and three the first time."""
    return await asyncio.to_thread(lambda: png_of(picture(content)))
