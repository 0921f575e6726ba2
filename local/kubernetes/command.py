"""Run the API server with its controllers and Katib, without a kubelet: `python -m local kubernetes`."""

import argparse
import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from local.katib import Katib
from local.kubernetes.apiserver.api import KUBECTL, serve
from local.kubernetes.apiserver.store import Store
from local.kubernetes.controllers.jobs import Controllers


async def run(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m local kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for kubectl here")
    options = parser.parse_args(arguments)
    store = Store()
    async with AsyncExitStack() as stack:
        for part in (Controllers(store), Katib(store)):
            stack.push_async_callback(part.close)
            part.start()
        server = await serve(store, options.port)
        stack.push_async_callback(server.close)
        if options.kubeconfig:
            server.kubeconfig(options.kubeconfig, below=KUBECTL)
        print(server.url, flush=True)
        await asyncio.Event().wait()
