"""A bare repository and the folder it is pushed from."""

import os
import subprocess
from pathlib import Path

ME = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"} | {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"), ("DATE", "2026-11-21T10:00:00Z"))
}


class Repo:
    """A bare repository `acme/digits.git` on a git host, and the folder it is pushed from."""

    def __init__(self, folder: Path) -> None:
        self.work, self.bare = folder / "work", folder / "served" / "acme" / "digits.git"
        self.bare.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", str(self.bare), at=folder)
        self.git("init", "--quiet", "-b", "main", str(self.work), at=folder)

    def git(self, *arguments: str, at: Path | None = None) -> str:
        command = ["git", *arguments]
        environment = {"PATH": os.environ["PATH"]} | ME
        run = subprocess.run(command, cwd=at or self.work, env=environment, check=True, capture_output=True)
        return run.stdout.decode().strip()

    def commit(self, message: str, files: dict[str, str | bytes]) -> str:
        for path, content in files.items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def push(self, *refs: str) -> None:
        self.git("push", "--quiet", str(self.bare), *refs)
