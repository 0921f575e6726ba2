"""Start HTTP servers on 127.0.0.1, at a given or free port."""

from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class Server:
    """A running server at `address` ("127.0.0.1:PORT", plain HTTP)."""

    address: str
    runner: web.AppRunner

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def close(self) -> None:
        await self.runner.cleanup()


async def listen(app: web.Application, port: int = 0, *, hangs_up: bool = False) -> Server:
    """Start a server. `hangs_up`: cancel a handler if its client disconnects or the server closes.

    A caller that restarts a server can keep its port reserved by a socket with SO_REUSEPORT.
    """
    timeout = 0.1 if hangs_up else 1
    runner = web.AppRunner(app, access_log=None, handler_cancellation=hangs_up, shutdown_timeout=timeout)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_port=bool(port)).start()
    return Server(f"127.0.0.1:{runner.addresses[0][1]}", runner)
