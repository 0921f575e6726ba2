"""`python -m local kubernetes`: the API server with its controllers and nothing that runs a pod."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from local.kubernetes.api import serve
from local.kubernetes.jobs import Controllers
from local.kubernetes.store import Store


async def run(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m local kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig here")
    options = parser.parse_args(arguments)
    store = Store()
    controllers = Controllers(store)
    server = await serve(store, options.port)
    controllers.start()
    try:
        if options.kubeconfig:
            server.kubeconfig(options.kubeconfig)
        print(server.url, flush=True)
        await asyncio.Event().wait()
    finally:
        await controllers.close()
        await server.close()
