"""A TCP proxy that can stop forwarding, as a network that drops all packets: no connection is closed.

It can also end connections in the middle of an answer, as a load balancer that is restarted.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class TcpProxy:
    """`url` replaces host and port of the server's URL."""

    def __init__(self, url: str) -> None:
        self._target, self._forwarding = urlsplit(url), asyncio.Event()
        self._pumps: set[asyncio.Task[None]] = set()
        self.url = ""
        self.truncates = False  # whether each connection ends in the middle of the next answer's part
        self.resume()

    def pause(self) -> None:
        self._forwarding.clear()

    def resume(self) -> None:
        self._forwarding.set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:  # the server is away
            writer.close()
            return
        for source, sink in ((reader, to_server), (from_server, writer)):
            task = asyncio.create_task(self._pump(source, sink, answers=source is from_server))
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await source.read(2**16):
                await self._forwarding.wait()
                if answers and self.truncates:
                    sink.write(data[: len(data) // 2])
                    break
                sink.write(data)
                await sink.drain()
        await self._forwarding.wait()
        sink.close()

    async def close(self) -> None:
        for task in (pumps := list(self._pumps)):
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


@asynccontextmanager
async def tcp_proxy(url: str) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy(url)
    async with await asyncio.start_server(proxy.connected, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        proxy.url = urlsplit(url)._replace(netloc=address).geturl()
        try:
            yield proxy
        finally:
            await proxy.close()
