"""Keep the last picture of each tag, and those in a folder, and print them at the end in parts of lines.

Only sizes are checked here: the bot, which reads the log, decodes pictures in a process of its own. The
kubelet rotates a log at 10 MiB and cuts lines at 16 KiB.
"""

import json
import os
import stat
from base64 import b64encode
from collections.abc import Iterator
from heapq import nlargest
from itertools import islice
from pathlib import Path

from reader.events import MAX_PICTURE, Picture

FOLDER = "artifacts"  # below the followed one
ENDINGS = (".png", ".jpg", ".jpeg", ".gif")
MAX_PICTURES = 8
MAX_TOTAL = 2 * 2**20  # bytes
MAX_ENTRIES = 1_000  # of the folder
PART = 9_000  # bytes; a line has 4/3 as many characters


class Pictures:
    def __init__(self) -> None:
        self._kept: dict[str, Picture] = {}

    def add(self, name: str, picture: Picture) -> None:
        """Keep the picture, in place of an earlier one with this name, if there is room."""
        before = self._kept.pop(name, None)
        total = sum(len(each.content) for each in self._kept.values()) + len(picture.content)
        if len(self._kept) < MAX_PICTURES and total <= MAX_TOTAL:
            self._kept[name] = picture
        elif before:
            self._kept[name] = before

    def add_files(self, folder: str) -> None:
        """Add the newest pictures in the folder for artifacts; no links, and nothing below it."""
        try:
            place = Path(folder) / FOLDER
            if not stat.S_ISDIR(place.lstat().st_mode):
                return
            with os.scandir(place) as entries:
                found = [
                    (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                    for entry in islice(entries, MAX_ENTRIES)
                    if entry.name.lower().endswith(ENDINGS) and entry.is_file(follow_symlinks=False)
                ]
        except OSError:
            return
        for at, path in nlargest(MAX_PICTURES, found):
            if content := _content(path):
                name = f"{FOLDER}/{Path(path).name[:200]}"
                self.add(name, Picture(tag=name, step=0, at=at, content=content))

    def lines(self) -> Iterator[str]:
        for name, picture in self._kept.items():
            parts = range(0, len(picture.content), PART)
            for number, start in enumerate(parts, 1):
                data = b64encode(picture.content[start : start + PART]).decode()
                about = {"picture": name, "step": picture.step, "part": number, "parts": len(parts)}
                yield json.dumps(about | {"data": data})


def _content(path: str) -> bytes:
    """Return the file's bytes; b"" of one that is too large, or no file."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError:
        return b""
    with file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_PICTURE:
            return b""
        return file.read(MAX_PICTURE)
