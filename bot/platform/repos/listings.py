"""Keep what commits have at the paths that were listed: a commit never changes."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

MAX_COMMITS = 100  # the oldest is dropped
MAX_PATHS = 1000  # of one commit

Entry = tuple[str, str]  # an object's mode and name


class Listings:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], dict[str, Entry | None]] = OrderedDict()  # None: absent

    def put(self, url: str, commit: str, paths: Sequence[str], found: Mapping[str, Entry]) -> None:
        """Keep a listing of exactly these paths. A trailing slash lists a directory, which is not kept."""
        if any(path.endswith("/") or not path.strip("/") for path in paths):
            return
        known = self._known.setdefault((url, commit), {})
        known.update({path: found.get(path) for path in paths})
        if len(known) > MAX_PATHS or len(self._known) > MAX_COMMITS:
            self._known.popitem(last=False)

    def get(self, url: str, commit: str, paths: Sequence[str]) -> dict[str, Entry] | None:
        """Return what the commit has at these paths; None if they weren't all listed before."""
        known = self._known.get((url, commit), {})
        if not paths or not all(path in known for path in paths):
            return None
        return {path: entry for path in paths if (entry := known[path])}
