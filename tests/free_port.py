"""A port of 127.0.0.1 that no server uses."""

import socket


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether nothing listens on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
