"""Cache watched objects in memory, so that most reconciles need no request to the API server; remember for
minutes the evicted pods that were deleted.

The caches are a little behind the API server: they show that something must be done, and a direct read
decides what (`bot.sweep.lifecycle.freshness`). Of each object only the fields that reconciles read are stored
(`slim`, such as `k8s.slim`), as JSON text, because dicts take several times as much memory. Up to MAX_PARSED
are kept parsed, too, and their lists until one of them changes, so that a reconcile parses only what has
changed. In a cache of more objects, only those of large groups are: sweeps with many trials.
"""

import asyncio
import json
import math
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from time import monotonic
from typing import NamedTuple

from k8s.api.client import KubernetesClient, Manifests
from k8s.katib.status import is_live
from k8s.objects import (
    BUILD_LABEL,
    ENVIRONMENT_LABEL,
    SWEEP_LABEL,
    CachedList,
    CachedObject,
    Manifest,
    Ref,
)

DISRUPTED_SECONDS = 600.0
MAX_DISRUPTED = 1000  # pods in one cache
# Objects that are kept parsed in one cache: each takes about 8 kB. If it has more, only those of groups that
# are larger: the others would take turns.
MAX_PARSED, SMALL_GROUP = 2500, 50
MAX_DIGITS = 15  # of a resourceVersion that a float holds exactly, as Redis' scripts compare it
GROUPED_BY = (SWEEP_LABEL, BUILD_LABEL, ENVIRONMENT_LABEL)
Group = tuple[str, str]  # the label of an object's sweep, build, or environment, and its value


class Change(NamedTuple):
    """An object of this group was added, changed, or deleted."""

    group: Group
    live: bool  # it hasn't ended
    initial: bool  # it is from the first list, so it may not have changed
    kind: str = ""  # of the object
    version: float = math.inf  # its resourceVersion; inf: unknown, or no number


class Cache:
    """The objects of one kind in one namespace that belong to a sweep, a build, or an environment.

    `complete`: it has all objects of the API server, except for changes still on their way. Read it only
    then.

    Args:
        slim: returns a copy of an object with the fields that are read.
    """

    def __init__(
        self,
        kind: str,
        namespace: str,
        on_change: Callable[[Change], None],
        slim: Callable[[Manifest], Manifest] = deepcopy,
    ) -> None:
        self.kind, self.namespace = kind, namespace
        self.complete = False
        self.listed = asyncio.Event()  # set after the first list
        self._on_change, self._slim = on_change, slim
        self._groups: defaultdict[Group, dict[str, bytes]] = defaultdict(dict)
        self._group_of: dict[str, Group] = {}  # by name
        self._parsed: OrderedDict[str, CachedObject] = OrderedDict()  # by name
        self._lists: defaultdict[Group, dict[frozenset[Group], CachedList]] = defaultdict(dict)  # by labels
        self._disrupted: dict[str, tuple[Group, bytes, float]] = {}  # deleted pods by name; when: monotonic

    def key(self, obj: Manifest) -> str:
        """Return what `remove` and `retain` call the object."""
        return str(obj["metadata"]["name"])

    def put(self, obj: Manifest) -> None:
        """Store an object that was added or changed."""
        name, group = self.key(obj), _group(obj)
        if group != self._group_of.get(name):
            self.remove(name)
        if group is None:
            return
        slimmed = self._slim(obj)
        version = slimmed["metadata"].pop("resourceVersion", "")
        text = json.dumps(slimmed, separators=(",", ":")).encode()
        members = self._groups[group]
        changed = members.get(name, b"").partition(b"\n")[2] != text
        members[name] = version.encode() + b"\n" + text
        self._parsed.pop(name, None)
        self._lists.pop(group, None)
        self._group_of[name] = group
        if changed:
            initial = not self.listed.is_set()
            self._on_change(Change(group, is_live(obj), initial, self.kind, _number(version)))

    def remove(self, name: str, version: str = "") -> None:
        """Remove an object that was deleted, in `version` if that is known."""
        if group := self._group_of.pop(name, None):
            members = self._groups[group]
            self._parsed.pop(name, None)
            self._lists.pop(group, None)
            self._remember(name, group, members.pop(name))
            if not members:
                del self._groups[group]
            self._on_change(
                Change(group, live=False, initial=False, kind=self.kind, version=_number(version))
            )

    def _remember(self, name: str, group: Group, stored: bytes) -> None:
        """Keep a disrupted pod for a while: nothing else says later why it is gone."""
        if self.kind == "Pod" and b'"DisruptionTarget"' in stored:
            self._disrupted[name] = group, stored, monotonic()
            while len(self._disrupted) > MAX_DISRUPTED:
                del self._disrupted[next(iter(self._disrupted))]

    def disrupted(self, group: Group) -> Manifests:
        """Return the pods of this group that were disrupted and then deleted within DISRUPTED_SECONDS."""
        recent = monotonic() - DISRUPTED_SECONDS
        kept = {name: each for name, each in self._disrupted.items() if each[2] >= recent}
        self._disrupted = kept
        return [_unpacked(stored) for where, stored, _ in kept.values() if where == group]

    def retain(self, names: set[str]) -> None:
        """Remove all other objects, after a list."""
        for gone in self._group_of.keys() - names:
            self.remove(gone)

    def get(self, name: str) -> Manifest | None:
        group = self._group_of.get(name)
        return self._read(name, self._groups[group]) if group else None

    def list(self, labels: Mapping[str, str]) -> Manifests | None:
        """Return the objects with these labels; None if they name no group."""
        group = next((item for item in labels.items() if item[0] in GROUPED_BY), None)
        if group is None:
            return None
        members, selector = self._groups.get(group, {}), frozenset(labels.items())
        if known := self._lists.get(group, {}).get(selector):
            return known
        parsed = self._parsed
        listed = CachedList([parsed.get(name) or self._read(name, members) for name in members])
        if more := selector - {group}:
            listed = CachedList(obj for obj in listed if more <= obj["metadata"]["labels"].items())
        if self._is_kept(members) and len(members) <= MAX_PARSED:
            self._lists[group][selector] = listed
        return listed

    def _is_kept(self, members: Mapping[str, bytes]) -> bool:
        """Return whether the objects of this group are kept parsed."""
        return len(members) > SMALL_GROUP or len(self._group_of) <= MAX_PARSED

    def _read(self, name: str, members: Mapping[str, bytes]) -> Manifest:
        if (parsed := self._parsed.get(name)) is not None:
            return parsed
        parsed = _unpacked(members[name])
        if self._is_kept(members):
            self._parsed[name] = parsed
            if len(self._parsed) > MAX_PARSED:
                oldest, _ = self._parsed.popitem(last=False)
                self._lists.pop(self._group_of[oldest], None)
        return parsed


def _group(obj: Manifest) -> Group | None:
    labels = obj["metadata"].get("labels") or {}
    # Interned: a sweep has many objects.
    return next(((label, sys.intern(labels[label])) for label in GROUPED_BY if label in labels), None)


def _number(version: str) -> float:
    is_exact = version.isdecimal() and len(version) <= MAX_DIGITS
    return int(version) if is_exact else math.inf


def _unpacked(stored: bytes) -> CachedObject:
    version, _, text = stored.partition(b"\n")
    obj = CachedObject(json.loads(text))
    obj["metadata"]["resourceVersion"] = version.decode()
    return obj


class Caches:
    """All caches of one process, by kind and namespace. Without caches, reads go to the API server."""

    def __init__(self, caches: Iterable[Cache] = ()) -> None:
        self._caches = {(cache.kind, cache.namespace): cache for cache in caches}

    def add(self, cache: Cache) -> None:
        self._caches[cache.kind, cache.namespace] = cache

    def __iter__(self) -> Iterator[Cache]:
        return iter(list(self._caches.values()))

    def disrupted(self, namespace: str, group: Group) -> Manifests:
        """Return the group's pods that were disrupted and deleted while this process watched."""
        found = self._caches.get(("Pod", namespace))
        return found.disrupted(group) if found else []

    def complete(self, kind: str, namespace: str) -> Cache | None:
        found = self._caches.get((kind, namespace))
        return found if found and found.complete else None

    async def listed(self) -> None:
        """Wait until each cache had its first list."""
        for cache in self:
            await cache.listed.wait()


class CacheReader:
    """Read like a KubernetesClient, but from complete caches where they exist.

    `cached`: at least one read came from a cache, so it can be a little old.
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
