"""Wait, in a world in memory, for all that needs no timer, thread, or connection."""

import asyncio


async def settled() -> None:
    """Return once the event loop has nothing to run but this: what follows a change has followed."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    while ready:  # noqa: ASYNC110 - no event tells that nothing is left
        await asyncio.sleep(0)
