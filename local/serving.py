"""How the servers of the local world listen: on 127.0.0.1, at a given port or any free one."""

from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class Server:
    """A running server at `address` ("127.0.0.1:PORT", plain http)."""

    address: str
    runner: web.AppRunner

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def close(self) -> None:
        await self.runner.cleanup()


async def listen(app: web.Application, port: int = 0, *, hangs_up: bool = False) -> Server:
    """`hangs_up`: a client that goes, or closing the server, ends what still answers it."""
    patience = 0.1 if hangs_up else 1
    runner = web.AppRunner(app, access_log=None, handler_cancellation=hangs_up, shutdown_timeout=patience)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return Server(f"127.0.0.1:{runner.addresses[0][1]}", runner)
