"""A small file of `serve`'s own: what it acknowledged, on the node's disk.

Each process appends to a file of its own name, on which it holds a lock (flock, which ends with the process).
A file without a lock is of a process that died: the next one in the same directory takes it over, whether it
replaces that process or only shares its volume.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

SUFFIX = ".unconfirmed"
MAX_FILE = 64 * 2**20  # bytes that are read of one; `UnconfirmedRequests` writes up to half of it


class UnconfirmedFile:
    """Methods block, and raise OSError, for example for a full disk or a read-only directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: tuple[int, Path] | None = None  # its descriptor and path
        self._left: list[tuple[int, Path]] = []  # of processes that died, until `rewrite` has their lines
        self.size = 0  # bytes

    def append(self, lines: Iterable[bytes]) -> None:
        """Add lines and flush them to the disk. After an error the file needs a `rewrite`."""
        if self._own is None:
            self.rewrite(lines)
        else:
            self._write(self._own[0], lines)

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Write the lines to a new file, then remove the earlier one and those that were taken over."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{uuid4().hex}{SUFFIX}"
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        size, self.size = self.size, 0
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(file, lines)
            self._flush_folder()
        except BaseException:
            self.size = size
            with suppress(OSError):
                path.unlink()
            os.close(file)
            raise
        replaced = [*self._left, *([self._own] if self._own else [])]
        self._own, self._left = (file, path), []
        for old, old_path in replaced:
            with suppress(OSError):  # then it is read again: a settled request restores nothing
                old_path.unlink()
            os.close(old)

    def take_over(self) -> list[bytes]:
        """Return the lines of processes that died, whole or torn. Their files are removed by `rewrite`.

        A file that can't be read hides no other one: its error is raised once there are no other lines.
        """
        lines, failure = list[bytes](), None
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            file = -1
            try:
                file = os.open(path, os.O_RDWR)  # a lock on NFS needs a file that is open for writing
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lines += _read(file).split(b"\n")
            except OSError as error:
                if file != -1:
                    os.close(file)
                # Its process runs, or another process has just taken it over.
                if not isinstance(error, BlockingIOError | FileNotFoundError):
                    failure = error
            else:
                self._left.append((file, path))
        if failure and not lines:
            raise failure
        return [line for line in lines if line]

    def close(self) -> None:
        for file, _ in [*self._left, *([self._own] if self._own else [])]:
            os.close(file)
        self._own, self._left = None, []

    def _write(self, file: int, lines: Iterable[bytes]) -> None:
        rest = memoryview(b"".join(line + b"\n" for line in lines))
        while rest:  # a disk that is nearly full takes a part
            written = os.write(file, rest)
            self.size += written
            rest = rest[written:]
        os.fsync(file)

    def _flush_folder(self) -> None:
        """Flush the name of a new file, too."""
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read(file: int) -> bytes:
    parts, size = [], 0
    while size < MAX_FILE and (part := os.read(file, 2**20)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)
