"""A Redis that can be killed and started again."""

import subprocess
import time
from pathlib import Path

from redis import Redis as Client
from redis.exceptions import RedisError

from tests.free_port import free_port
from tests.servers import START_SECONDS, fail_if_ended


class Server:
    """With an append-only file, and always on the same port."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.killed: list[float] = []  # when
        self._log = folder / "log"
        how = {"port": self.port, "bind": "127.0.0.1", "dir": folder, "logfile": self._log, "save": ""}
        how |= {"appendonly": "yes", "appendfsync": "everysec"}
        self._command = [binary, *(str(word) for key, value in how.items() for word in (f"--{key}", value))]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        end = time.monotonic() + START_SECONDS
        with Client.from_url(self.url, retry=None) as client:
            while True:
                try:
                    client.ping()
                except RedisError:
                    fail_if_ended(self._process, self._log)
                    assert time.monotonic() < end, "the server does not start"
                    time.sleep(0.02)
                else:
                    return

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed.append(time.monotonic())
