"""A real registry for tests: Debian's docker-registry, where it is installed."""

import shutil
from pathlib import Path

from local.processes import Processes
from tests.free_port import free_port

PROGRAM = "docker-registry"
CONFIG = """
version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: {folder}/images}}, delete: {{enabled: true}}}}
http: {{addr: "{address}"}}
{more}
"""


def is_installed() -> bool:
    return shutil.which(PROGRAM) is not None


async def start(folder: Path, processes: Processes, more: str = "") -> str:
    """Its host and port. `more`: of its configuration."""
    address = f"127.0.0.1:{free_port()}"
    config = folder / "registry.yml"
    config.write_text(CONFIG.format(folder=folder, address=address, more=more))
    await processes.start(PROGRAM, PROGRAM, "serve", str(config))
    await processes.says(PROGRAM, "(listening on)")
    return address
