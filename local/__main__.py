"""`python -m local COMMAND ...`: a part of the local world, until SIGINT or SIGTERM ends it."""

import argparse
import asyncio
import contextlib
import importlib
import signal
from collections.abc import Coroutine
from typing import Any

# Each names a module with `async def run(arguments)`, imported only when asked for: some bring much along.
COMMANDS = {"kubernetes": "local.kubernetes.command"}


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    module = importlib.import_module(COMMANDS[options.command])
    asyncio.run(_until_signal(module.run(options.arguments)))


if __name__ == "__main__":
    main()
