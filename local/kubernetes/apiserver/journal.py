"""Store each write of a cluster in a file, as etcd does: a killed cluster restarts with its objects."""

import json
from collections.abc import Iterator
from pathlib import Path

from local.kubernetes.apiserver.kinds import Object
from local.kubernetes.apiserver.store import Change, Store


def restore(store: Store, file: Path) -> bool:
    """Replace the store's objects with those of an earlier run, and append later writes to the file.

    Return False, and start the file with the store's objects, if there was no earlier run.
    """
    restored = file.exists()
    if restored:
        store.replay(_read(file))
    journal = file.open("w", encoding="utf-8")

    def append(type_: str, obj: Object) -> None:
        journal.write(json.dumps([type_, obj]) + "\n")
        journal.flush()  # a killed process loses nothing that the system has

    def on_change(change: Change) -> None:
        append(change.type, change.object)

    for obj in sorted(store.peek_all(), key=lambda each: int(each["metadata"]["resourceVersion"])):
        append("ADDED", obj)
    store.journal = on_change
    return restored


def _read(file: Path) -> Iterator[tuple[str, Object]]:
    """Yield the writes; a kill can have cut off the last one, which then wasn't acknowledged."""
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            type_, obj = json.loads(line)
            yield type_, obj
