"""Store the cluster's objects, as etcd and the generic registry of a Kubernetes API server do.

Controllers of this world use the store in-process; the product only ever sees it through `api`.
Every write is one step of one global resourceVersion and reaches every subscriber.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from local.kubernetes.apiserver import priorities, quota, validation
from local.kubernetes.apiserver.kinds import (
    KINDS,
    QUEUES,
    TRAINER,
    TRAINING,
    Kind,
    Object,
    Refused,
    already_exists,
    bad_request,
    clone,
    conflict,
    not_found,
    other_uid,
    refusal,
    timestamp,
)
from local.kubernetes.apiserver.objects import (
    SERVERS_OWN,
    Key,
    body,
    fresh,
    has_time,
    key_of,
    mark_deleted,
    merge_patch,
    new_event,
    only,
    owner,
    owners,
    place,
    without,
)

__all__ = ["Change", "Hook", "Object", "Refused", "Store", "owner", "place"]

ENDED = ("Succeeded", "Failed")  # phases in which pods don't count toward quotas
Hook = Callable[[Object], Object]


class Change(NamedTuple):
    """One write. The objects are the store's own: don't change them."""

    version: int
    type: str
    object: Object
    before: Object | None


class Store:
    """Objects by kind, namespace, and name. `history`: number of changes kept for late watches."""

    def __init__(self, history: int = 5000) -> None:
        self.version = 0
        self._objects: dict[str, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self._uids: set[str] = set()
        self._owned: dict[str, set[Key]] = {}  # by their owner's uid
        self._history: deque[Change] = deque(maxlen=history)
        self._queues: dict[asyncio.Queue[Change], frozenset[str]] = {}  # and the kinds each follows
        self.changed: dict[str, int] = {}  # the version of each kind's last change
        self._hooks: dict[str, list[Hook]] = {}
        self._events: dict[tuple[str, ...], Key] = {}
        self.journal: Callable[[Change], None] = lambda _: None  # called with each write
        for name in ("default", "kube-system", "kubeflow", "dcgm-exporter"):
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return a copy; None if it doesn't exist."""
        return clone(self.find(kind, namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return what `get` does, without a copy, for callers that don't change it."""
        return self._objects[kind].get(key_of(kind, namespace, name))

    def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return copies, ordered by namespace and name; `namespace` None: all namespaces."""
        return [clone(obj) for obj in self.peek(kind, namespace, labels)]

    def peek(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Iterator[Object]:
        """Return objects as `list` does, without copies, for callers that don't change them."""
        wanted = (labels or {}).items()
        for key in sorted(self._objects[kind]):
            obj = self._objects[kind][key] if namespace in (None, key[1]) else None
            if obj and wanted <= obj["metadata"].get("labels", {}).items():
                yield obj

    def peek_all(self) -> Iterator[Object]:
        for kind in self._objects:
            yield from self.peek(kind)

    def replay(self, writes: Iterable[tuple[str, Object]]) -> None:
        """Replace all objects with the result of an earlier run's writes (type, object)."""
        self._uids.clear()
        self._owned.clear()
        for there in self._objects.values():
            there.clear()
        for type_, obj in writes:
            self.version = int(obj["metadata"]["resourceVersion"]) - 1
            self._commit(type_, obj, self._objects[obj["kind"]].get(place(obj)))
        self._history.clear()  # as in a restarted API server: watches of before have to list again

    def owned_by(self, uid: str) -> Sequence[Object]:
        """Return the objects with an owner reference to this uid, in the order of `peek`, without copies."""
        return [self._objects[key[0]][key] for key in sorted(self._owned.get(uid, ()))]

    def kinds(self) -> Sequence[Kind]:
        """Return the installed kinds; those of Kueue and the operators need CustomResourceDefinitions."""
        installed = {name for _, _, name in self._objects["CustomResourceDefinition"]}
        optional = (*QUEUES, *TRAINING, *TRAINER)
        return [kind for kind in KINDS.values() if kind.name not in optional or kind.resource in installed]

    def install(self, *kinds: str) -> None:
        """Create the CustomResourceDefinitions of these kinds, so that the API serves them."""
        for kind in map(KINDS.__getitem__, kinds):
            versions = [{"name": kind.version, "served": True, "storage": True}]
            head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
            spec = {"group": kind.group, "versions": versions}
            self.create({**head, "metadata": {"name": kind.resource}, "spec": spec})

    def exists(self, uid: str) -> bool:
        return uid in self._uids

    def create(self, obj: Object) -> Object:
        """Create and return it. Raises Refused: 400, 404 (namespace), 409, 422, 500, or a hook's error."""
        kind = KINDS[obj["kind"]]
        new = validation.decoded(kind, obj)
        self._check_place(kind, new["metadata"])
        new = self._admitted(kind, fresh(kind, new))
        new["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        if kind.has_generation:
            new["metadata"]["generation"] = 1
        if kind.name == "Pod":
            priorities.admit(new, self.peek("PriorityClass"))
        validation.complete(kind, new)
        validation.check_new(kind, new)
        if there := self._objects[kind.name].get(place(new)):
            raise already_exists(kind, there)
        here = new["metadata"].get("namespace")
        if kind.name == "Pod" and (quotas := list(self.peek("ResourceQuota", here))):
            living = [pod for pod in self.peek("Pod", here) if pod["status"].get("phase") not in ENDED]
            quota.check(quotas, living, new)
        return clone(self._commit("ADDED", new))

    def patch(
        self, kind: str, namespace: str, name: str, patch: Object, *, subresource: str | None = None
    ) -> Object:
        """Apply a JSON merge patch (RFC 7386). With subresource "status", write only the status."""
        old = self._known(kind, namespace, name)
        return clone(self._write(old, merge_patch(old, clone(patch)), subresource))

    def set_status(self, obj: Object, status: Object) -> None:
        """Replace the whole status of the object that has `obj`'s name."""
        old = self._known(*place(obj))
        self._write(old, {**old, "status": clone(status)}, "status")

    def _write(self, old: Object, new: Object, subresource: str | None) -> Object:
        """Write the object, unless nothing has changed [02-put-same-noop]."""
        new = self._updated(KINDS[old["kind"]], old, new, subresource)
        meta = new["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not has_time(new):
            return self._removed(new)
        return old if new == old else self._commit("MODIFIED", new, old)

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        grace: int | None = None,
        uid: str | None = None,
    ) -> Object:
        """Delete and return it; with finalizers, and bound pods without grace=0 (seconds), only mark it."""
        old = self._known(kind, namespace, name)
        if uid and uid != old["metadata"]["uid"]:
            raise other_uid(KINDS[kind], name, uid, old["metadata"]["uid"])
        new = mark_deleted(KINDS[kind], old, propagation, grace)
        waits = bool(new["metadata"].get("finalizers")) or has_time(new)
        if new != old and (waits or kind == "Pod"):
            new = self._commit("MODIFIED", new, old)
        return clone(new if waits else self._removed(new))

    def admission(self, kind: str, hook: Hook) -> None:
        """Call `hook` with a copy on CREATE, when it has no `metadata.uid` yet, and on UPDATE.

        Only an UPDATE of spec or labels counts, and of finalizers for kinds whose webhook can refuse it; then
        the store still returns the old object. The hook's result is stored; it can raise Refused.
        """
        self._hooks.setdefault(kind, []).append(hook)

    async def subscribe(self, *kinds: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield what exists as ADDED, then every change of these kinds, without copies: don't change them."""
        queue = self.follow(self.version, *kinds)
        try:
            for obj in [obj for kind in kinds for obj in self.peek(kind)]:
                yield "ADDED", obj
            while True:
                change = await queue.get()
                await asyncio.sleep(0)  # yield to the event loop: a full queue never waits
                yield change.type, change.object
        finally:
            self.unfollow(queue)

    def follow(self, since: int, *kinds: str) -> asyncio.Queue[Change]:
        """Yield changes of these kinds after version `since`, past and future; of all kinds if none is given.

        Raises Refused 410 if `since` is too old.
        """
        oldest = self._history[0].version if self._history else self.version + 1
        if since < oldest - 1:
            raise refusal(410, f"too old resource version: {since} ({oldest - 1})", "Expired")
        queue: asyncio.Queue[Change] = asyncio.Queue()
        followed = frozenset(kinds or KINDS)
        for change in self._history:
            if change.version > since and change.object["kind"] in followed:
                queue.put_nowait(change)
        self._queues[queue] = followed
        return queue

    def unfollow(self, queue: asyncio.Queue[Change]) -> None:
        self._queues.pop(queue, None)

    def record_event(self, about: Object, type_: str, reason: str, message: str, component: str) -> None:
        """Record a core/v1 Event; a repeated one increases its count. None in a deleted namespace."""
        namespace = about["metadata"].get("namespace") or "default"
        if not self.find("Namespace", "", namespace):
            return
        same = (about["metadata"]["uid"], type_, reason, message, component)
        key = self._events.get(same)
        if key and key in self._objects["Event"]:
            count = self._objects["Event"][key]["count"] + 1
            self.patch(*key, {"count": count, "lastTimestamp": timestamp()})
        else:
            event = new_event(about, namespace, type_, reason, message, component)
            self._events[same] = place(self.create(event))

    def _check_place(self, kind: Kind, meta: Object) -> None:
        if meta.get("resourceVersion"):
            raise refusal(500, "resourceVersion should not be set on objects to be created")
        if kind.namespaced and not meta.get("namespace"):
            raise bad_request("an empty namespace may not be set during creation")
        if kind.namespaced:
            self._known("Namespace", "", meta["namespace"])

    def _admitted(self, kind: Kind, obj: Object) -> Object:
        for hook in self._hooks.get(kind.name, []):
            obj = hook(clone(obj))
        return obj

    def _updated(self, kind: Kind, old: Object, new: Object, subresource: str | None) -> Object:
        was = old["metadata"]
        if new.setdefault("metadata", {}).get("resourceVersion") not in (None, was["resourceVersion"]):
            raise conflict(kind, was["name"])
        if subresource == "status":
            return {**without(old, "status"), **only(new, "status")}
        new = validation.decoded(kind, new, old)
        own = only(was, *SERVERS_OWN, "resourceVersion")
        new = {**new, "metadata": without(new["metadata"], *SERVERS_OWN) | own}
        if kind.has_status:
            new = {**without(new, "status"), **only(old, "status")}
        keys = ("labels", "finalizers") if kind.name in TRAINER else ("labels",)
        marked = any(new["metadata"].get(key) != was.get(key) for key in keys)
        if kind.has_generation and kind.name != "Pod" and (marked or body(new) != body(old)):
            new = self._admitted(kind, new)
        if kind.has_generation and kind.name != "Pod" and body(new) != body(old):
            new["metadata"]["generation"] = was["generation"] + 1
        validation.check_update(kind, old, new)
        return new

    def _known(self, kind: str, namespace: str, name: str) -> Object:
        found = self._objects[kind].get(key_of(kind, namespace, name))
        if found is None:
            raise not_found(KINDS[kind], name)
        return found

    def _commit(self, type_: str, new: Object, old: Object | None = None) -> Object:
        self.version += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        for uid in owners(old) if old else ():
            self._owned[uid].discard(place(new))
        if type_ == "DELETED":
            del self._objects[new["kind"]][place(new)]
            self._uids.discard(new["metadata"]["uid"])
        else:
            self._objects[new["kind"]][place(new)] = new
            self._uids.add(new["metadata"]["uid"])
            for uid in owners(new):
                self._owned.setdefault(uid, set()).add(place(new))
        change = Change(self.version, type_, new, old)
        self._history.append(change)
        self.changed[new["kind"]] = self.version
        self.journal(change)
        for queue, kinds in self._queues.items():
            if new["kind"] in kinds:
                queue.put_nowait(change)
        return new

    def _removed(self, last: Object) -> Object:
        self._commit("DELETED", last, self._objects[last["kind"]][place(last)])
        return last
