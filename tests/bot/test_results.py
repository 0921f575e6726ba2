"""An MLflow that is away holds up nothing."""

import asyncio
import socket
from time import monotonic

from bot.models import Phase
from bot.results import Results
from tests.bot.sweeps import a_sweep


async def test_a_silent_server_is_given_up_and_left_alone_for_a_while():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        results = Results(f"http://127.0.0.1:{silent.getsockname()[1]}", "http://ui")
        asked = asyncio.create_task(results.open(a_sweep(Phase.PROVING)))
        while not asked.done():
            before = monotonic()
            await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
            assert monotonic() - before < 30  # the threads of name resolution are free
            await asyncio.sleep(0.2)
        assert await asked is None
        assert await results.open(a_sweep(Phase.PROVING)) is None  # at once, and unasked
