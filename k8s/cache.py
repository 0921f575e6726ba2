"""Keep in memory what watches show, and answer reads from there: a reconcile then costs no request.

Memory is a little behind the API server, so it is for noticing that something is to be done. What is decided
for good is decided on a direct read (`bot.sweeps.freshness`).

Of each object only what reconciles read is kept (k8s.slim), as JSON: dicts take several times as much.
"""

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from k8s.client import KubernetesClient, Manifests
from k8s.objects import BUILD_LABEL, SWEEP_LABEL, Manifest, Ref, still_live
from k8s.slim import slim

GROUPED_BY = (SWEEP_LABEL, BUILD_LABEL)
Group = tuple[str, str]  # a label that says what an object belongs to, and its value


class Change(NamedTuple):
    """An object of this group was added, changed, or deleted."""

    group: Group
    live: bool  # it has not come to its end
    initial: bool  # it was found by the first list: nothing may have changed


class Cache:
    """The objects of one kind in one namespace that belong to a sweep or a build.

    `complete`: they are what the API server has, but for changes under way. Only then is it read.
    """

    def __init__(self, kind: str, namespace: str, on_change: Callable[[Change], None]) -> None:
        self.kind, self.namespace = kind, namespace
        self.complete = False
        self.listed = asyncio.Event()  # for the first time
        self._on_change = on_change
        self._groups: defaultdict[Group, dict[str, bytes]] = defaultdict(dict)
        self._group_of: dict[str, Group] = {}  # by name

    def put(self, obj: Manifest) -> None:
        """Keep an object that was added or changed."""
        name, group = obj["metadata"]["name"], _group(obj)
        if group != self._group_of.get(name):
            self.remove(name)
        if group is None:
            return
        kept = slim(obj)
        version = kept["metadata"].pop("resourceVersion", "")
        text = json.dumps(kept, separators=(",", ":")).encode()
        members = self._groups[group]
        changed = members.get(name, b"").partition(b"\n")[2] != text
        members[name] = version.encode() + b"\n" + text
        self._group_of[name] = group
        if changed:
            self._on_change(Change(group, still_live(obj), not self.listed.is_set()))

    def remove(self, name: str) -> None:
        """Forget an object that was deleted."""
        if group := self._group_of.pop(name, None):
            members = self._groups[group]
            del members[name]
            if not members:
                del self._groups[group]
            self._on_change(Change(group, live=False, initial=False))

    def retain(self, names: set[str]) -> None:
        """Forget all others: a list has shown what there is."""
        for gone in self._group_of.keys() - names:
            self.remove(gone)

    def get(self, name: str) -> Manifest | None:
        group = self._group_of.get(name)
        return _unpacked(self._groups[group][name]) if group else None

    def list(self, labels: Mapping[str, str]) -> Manifests | None:
        """Return the objects with these labels; None if they name no group."""
        group = next((item for item in labels.items() if item[0] in GROUPED_BY), None)
        if group is None:
            return None
        found = [_unpacked(text) for text in self._groups.get(group, {}).values()]
        return [obj for obj in found if labels.items() <= obj["metadata"]["labels"].items()]


def _group(obj: Manifest) -> Group | None:
    labels = obj["metadata"].get("labels") or {}
    # Interned: a sweep has many objects.
    return next(((label, sys.intern(labels[label])) for label in GROUPED_BY if label in labels), None)


def _unpacked(kept: bytes) -> Manifest:
    version, _, text = kept.partition(b"\n")
    obj: Manifest = json.loads(text)
    obj["metadata"]["resourceVersion"] = version.decode()
    return obj


class Caches:
    """All of one process, by kind and namespace. Empty: everything is read from the API server."""

    def __init__(self, caches: Iterable[Cache] = ()) -> None:
        self._caches = {(cache.kind, cache.namespace): cache for cache in caches}

    def add(self, cache: Cache) -> None:
        self._caches[cache.kind, cache.namespace] = cache

    def __iter__(self) -> Iterator[Cache]:
        return iter(list(self._caches.values()))

    def complete(self, kind: str, namespace: str) -> Cache | None:
        found = self._caches.get((kind, namespace))
        return found if found and found.complete else None

    async def listed(self) -> None:
        """Wait until each has been listed once."""
        for cache in self:
            await cache.listed.wait()


class CacheReader:
    """Read as a KubernetesClient does, from memory where that is complete.

    `cached`: some answer came from memory, so it may be a little old.
    """

    def __init__(self, caches: Caches, cluster: KubernetesClient) -> None:
        self._caches, self._cluster = caches, cluster
        self.cached = False

    async def get(self, ref: Ref) -> Manifest | None:
        cache = self._caches.complete(ref.kind, ref.namespace)
        if cache is None:
            return await self._cluster.get(ref)
        self.cached = True
        return cache.get(ref.name)

    async def list(self, kind: str, namespace: str, *, labels: str) -> Manifests:
        """`labels`: pairs `label=value`, separated by commas."""
        cache = self._caches.complete(kind, namespace)
        found = cache.list(dict(pair.split("=", 1) for pair in labels.split(","))) if cache else None
        if found is None:
            return await self._cluster.list(kind, namespace, labels=labels)
        self.cached = True
        return found
