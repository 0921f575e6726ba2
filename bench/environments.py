"""Environments of their own: for what is measured as its image has it, and for other libraries."""

import hashlib
import subprocess
import sys
from pathlib import Path

from bench.child import ROOT


def python_of(lock: str) -> str:
    """Return the Python of an environment with what requirements/LOCK.txt names; install it if that changed.

    Raises OSError or CalledProcessError if it can't be installed.
    """
    requirements = ROOT / "requirements" / f"{lock}.txt"
    folder = ROOT / f".bench-venv-{lock}"
    digest, mark = hashlib.sha256(requirements.read_bytes()).hexdigest(), folder / "installed"
    python = folder / "bin" / "python"
    if not mark.exists() or mark.read_text() != digest:
        uv = Path(sys.executable).parent / "uv"
        subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, folder], check=True)
        sync = [uv, "pip", "sync", "-q", "--require-hashes", "--python", python, requirements]
        subprocess.run(sync, check=True)
        mark.write_text(digest)
    return str(python)
