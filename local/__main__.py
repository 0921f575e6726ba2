"""Run a part of the local world until Ctrl-C: `python -m local COMMAND ...`."""

import argparse
import asyncio
import contextlib
import importlib
import signal
import sys
from collections.abc import Coroutine
from typing import Any

# Each module has `async def run(arguments) -> int | None`, and is only imported when needed.
COMMANDS = {"cluster": "local.cluster", "demo": "local.demo", "kubernetes": "local.kubernetes.command"}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _until_signal(work: Coroutine[Any, Any, int | None]) -> int:
    """Cancel the work at the first signal; later ones must not interrupt its cleanup."""
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
    for number in SIGNALS:  # during imports, before anything runs
        signal.signal(number, lambda *_: sys.exit(1))
    module = importlib.import_module(COMMANDS[options.command])
    return asyncio.run(_until_signal(module.run(options.arguments)))


if __name__ == "__main__":
    sys.exit(main())
