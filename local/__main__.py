"""`python -m local COMMAND ...`: a part of the local world, until Ctrl-C or a closed terminal ends it."""

import argparse
import asyncio
import contextlib
import importlib
import signal
import sys
from collections.abc import Coroutine
from typing import Any

# Each names a module with `async def run(arguments) -> int | None`, imported only when asked for.
COMMANDS = {"demo": "local.demo", "kubernetes": "local.kubernetes.command"}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _until_signal(work: Coroutine[Any, Any, int | None]) -> int:
    """The first signal ends the work; more of them must not end its cleaning up."""
    task = asyncio.create_task(work)
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, lambda: task.cancelling() or task.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        return await task or 0
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    for number in SIGNALS:  # while it only loads; nothing is running yet
        signal.signal(number, lambda *_: sys.exit(1))
    module = importlib.import_module(COMMANDS[options.command])
    return asyncio.run(_until_signal(module.run(options.arguments)))


if __name__ == "__main__":
    sys.exit(main())
