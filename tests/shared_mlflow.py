"""One MLflow for all processes of a test run: each start takes 12 seconds of CPU time.

`python -m tests.shared_mlflow DIRECTORY` runs it until no test process uses it, however these ended.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path

from local.processes import Processes
from local.world import ROOT, start_mlflow

DATABASE = "mlflow.db"  # as start_mlflow names it


@contextmanager
def shared_mlflow(folder: Path) -> Iterator[str]:
    """Yield the server's URL. The process that comes first starts it. Raises RuntimeError with its output."""
    folder.mkdir(exist_ok=True)
    with _locked(folder / "users", LOCK_SH):
        with _locked(folder / "start", LOCK_EX):
            if not (folder / "url").exists():
                (folder / "url").write_text(_started(folder))
        yield (folder / "url").read_text()


@contextmanager
def _locked(file: Path, how: int) -> Iterator[None]:
    """Hold a lock, which ends with this process at the latest: children don't inherit the open file."""
    with file.open("a") as opened:
        flock(opened, how)
        yield


def _started(folder: Path) -> str:
    command = [sys.executable, "-m", "tests.shared_mlflow", str(folder)]
    with (folder / "errors").open("w") as errors:
        server = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    with server.stdout as output:
        if url := output.readline().strip():
            return url
    raise RuntimeError(f"MLflow ended at its start.\n{(folder / 'errors').read_text()}")


async def _serve(folder: Path) -> None:
    (logs := folder / "logs").mkdir(exist_ok=True)
    processes = Processes(logs)
    try:
        print(await start_mlflow(folder, processes), flush=True)
        with _locked(folder / "users", LOCK_EX):
            (folder / "url").unlink()
    finally:
        await processes.stop_all()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
