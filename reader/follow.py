"""Follow the event files below a folder as they grow, whatever a training puts there.

Memory is bounded. Links, pipes, and devices aren't opened, and records that are too large are skipped. After
garbage, the rest of a file isn't read.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import BinaryIO

from reader.events import FOOTER, HEADER, MalformedError, Picture, Scalar, message_length, values

PIECE = 2**20  # bytes that are read at once
MAX_MESSAGE = 2**22  # bytes
MAX_FILES = 2_000
MAX_ENTRIES = 20_000  # of folders, in one poll
MAX_DEPTH = 8
EMPTY_SECONDS = 30.0  # a writer that writes at once has written a file's version by then


@dataclass
class _File:
    inode: int
    offset: int = 0  # of the first record that wasn't read
    bad: bool = False


class Follower:
    """Call `poll` again and again: each scalar and picture is returned once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}
        self.is_buffered = False  # a file has stayed empty: its writer keeps what is logged in memory

    def poll(self, enough: Callable[[], bool]) -> Iterator[tuple[str, Scalar | Picture]]:
        """Yield what is new with the folder of their file, relative to the followed one; "" is that one.

        Stops before the next record once there was `enough`; the next poll continues there.
        """
        for path, found in sorted(self._there()):  # by the times in their names, as TensorBoard reads them
            known = self._files.get(path)
            if known is None and len(self._files) >= MAX_FILES:
                continue
            if known is None or known.inode != found.st_ino or known.offset > found.st_size:
                known = self._files[path] = _File(found.st_ino)
            self.is_buffered |= not found.st_size and time.time() - found.st_mtime > EMPTY_SECONDS
            if known.bad or known.offset == found.st_size:
                continue
            below = str(PurePath(path).parent.relative_to(self._folder))
            for each in self._new(path, known, enough):
                yield "" if below == "." else below, each
            if enough():
                return

    def _there(self) -> Iterator[tuple[str, os.stat_result]]:
        folders, left = [(self._folder, 0)], MAX_ENTRIES
        while folders:
            folder, depth = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if left == 0:
                            return
                        left -= 1
                        if entry.is_dir(follow_symlinks=False):
                            folders += [(entry.path, depth + 1)] if depth < MAX_DEPTH else []
                        elif "tfevents" in entry.name and entry.is_file(follow_symlinks=False):
                            yield entry.path, entry.stat(follow_symlinks=False)
            except OSError:  # deleted in between, or not readable
                continue

    def _new(self, path: str, known: _File, enough: Callable[[], bool]) -> Iterator[Scalar | Picture]:
        try:
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0)
        except OSError:
            return
        with file:
            size = os.fstat(file.fileno())
            if not stat.S_ISREG(size.st_mode):
                return
            try:
                yield from self._records(_Window(file, size.st_size), known, enough)
            except MalformedError:
                known.bad = True
            except OSError:
                return

    def _records(
        self, window: "_Window", known: _File, enough: Callable[[], bool]
    ) -> Iterator[Scalar | Picture]:
        """Yield what is in the complete records. Raises MalformedError where there is no record."""
        while not enough() and len(header := window.read(known.offset, HEADER)) == HEADER:
            length = message_length(header)
            if known.offset + HEADER + length + FOOTER > window.size:
                return
            message = window.read(known.offset + HEADER, length) if length <= MAX_MESSAGE else b""
            if len(message) < length <= MAX_MESSAGE:  # the file was cut
                return
            known.offset += HEADER + length + FOOTER
            try:
                yield from values(message)
            except MalformedError:  # in one message; the next record starts where this one says
                continue


class _Window:
    """A piece of a file, moved forward."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self.size = file, size
        self._at, self._piece = 0, b""

    def read(self, at: int, count: int) -> bytes:
        begin = at - self._at
        if begin < 0 or begin + count > len(self._piece):
            self._file.seek(at)
            self._at, self._piece, begin = at, self._file.read(max(count, PIECE)), 0
        return self._piece[begin : begin + count]
