"""The cluster's objects: what etcd and the generic registry of a Kubernetes API server do.

Controllers of this world use the store in-process; the product only ever sees it through `api`.
Every write is one step of one global resourceVersion and reaches every subscriber.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from local.kubernetes import checks
from local.kubernetes.kinds import (
    KINDS,
    Kind,
    bad_request,
    clone,
    conflict,
    not_found,
    now,
    refusal,
    suffix,
)
from local.kubernetes.kinds import Object as Object
from local.kubernetes.kinds import Refused as Refused

Key = tuple[str, str, str]
Hook = Callable[[Object], Object]
FINALIZER_OF = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
KEPT = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


class Change(NamedTuple):
    """One write. The objects are the store's own: look, don't touch."""

    version: int
    type: str
    object: Object
    before: Object | None


class Store:
    """Objects by kind, namespace and name. `history` is how many changes a late watcher can still be told."""

    def __init__(self, history: int = 5000) -> None:
        self.version = 0
        self._objects: dict[Key, Object] = {}
        self._uids: set[str] = set()
        self._history: deque[Change] = deque(maxlen=history)
        self._queues: set[asyncio.Queue[Change]] = set()
        self._hooks: dict[str, list[Hook]] = {}
        self._events: dict[tuple[str, ...], Key] = {}
        for name in ("default", "kube-system", "kubeflow"):
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        found = self._objects.get(_key(kind, namespace, name))
        return clone(found) if found else None

    def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Copies, ordered by namespace and name; `namespace` None means everywhere."""
        wanted = (labels or {}).items()
        return [
            clone(obj)
            for obj in self.peek(kind, namespace)
            if wanted <= obj["metadata"].get("labels", {}).items()
        ]

    def peek(self, kind: str, namespace: str | None = None) -> Iterator[Object]:
        """As `list`, without copying: for readers which leave the objects alone."""
        for key in sorted(key for key in self._objects if key[0] == kind and namespace in (None, key[1])):
            yield self._objects[key]

    def exists(self, uid: str) -> bool:
        return uid in self._uids

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """The object as stored. Raises Refused: 400, 403, 404 (namespace), 409, 422, 500 or what a hook says."""
        kind = checks.kind_of(obj)
        new = checks.decoded(kind, obj)
        self._check_place(kind, new)
        new = self._admit(kind, self._fresh(kind, new))
        new["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        if kind.has_generation:
            new["metadata"]["generation"] = 1
        checks.complete(kind, new)
        checks.check_new(kind, new)
        key = _key_of(new)
        if there := self._objects.get(key):
            going = "object is being deleted: " if "deletionTimestamp" in there["metadata"] else ""
            text = f'{going}{kind.resource} "{key[2]}" already exists'
            raise refusal(409, text, "AlreadyExists", kind.details(key[2]))
        return clone(new) if dry_run else clone(self._commit("ADDED", new))

    def patch(
        self, kind: str, namespace: str, name: str, patch: Object, *, subresource: str | None = None
    ) -> Object:
        """A JSON merge patch (RFC 7386). With subresource "status" only the status is written."""
        return self.update(kind, namespace, name, lambda old: _merged(old, patch), subresource=subresource)

    def update(
        self,
        kind: str,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        subresource: str | None = None,
    ) -> Object:
        """Write what `change` makes of a copy. Nothing changed, nothing written [02-put-same-noop]."""
        old = self._known(kind, namespace, name)
        new = self._updated(KINDS[kind], old, change(clone(old)), subresource)
        if new == old:
            return clone(old)
        meta = new["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not _graceful(new):
            self._remove(new)
            return clone(new)
        return clone(self._commit("MODIFIED", new, old))

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
        """Gone at once, or marked: finalizers, and a bound pod until its kubelet says grace=0. Returns the last state."""
        old = self._known(kind, namespace, name)
        real = old["metadata"]["uid"]
        if uid not in (None, real):
            why = f"the UID in the precondition ({uid}) does not match the UID in record ({real})."
            said = f'{kind}.{KINDS[kind].group} "{name}": {why}'.replace('. "', ' "')
            details = KINDS[kind].details(name, kind)
            text = f"Operation cannot be fulfilled on {said} The object might have been deleted and then recreated"
            raise refusal(409, text, "Conflict", details)
        new = _marked(KINDS[kind], old, propagation, grace)
        waits = bool(new["metadata"].get("finalizers")) or _graceful(new)
        if new != old and (waits or kind == "Pod"):
            new = self._commit("MODIFIED", new, old)
        if not waits:
            self._remove(new)
        return clone(new)

    def admission(self, kind: str, hook: Hook) -> None:
        """Call `hook` with a copy on CREATE (no `metadata.uid` yet) and when an UPDATE changes the spec.

        On UPDATE the store still answers the old object. What the hook returns goes on; it may raise Refused.
        """
        self._hooks.setdefault(kind, []).append(hook)

    async def subscribe(self, *kinds: str) -> AsyncIterator[tuple[str, Object]]:
        """What exists as ADDED, then every change of these kinds, for ever."""
        queue: asyncio.Queue[Change] = asyncio.Queue()
        self._queues.add(queue)
        try:
            for kind in kinds:
                for obj in self.list(kind):
                    yield "ADDED", obj
            while True:
                change = await queue.get()
                if change.object["kind"] in kinds:
                    yield change.type, clone(change.object)
        finally:
            self._queues.discard(queue)

    def follow(self, since: int) -> asyncio.Queue[Change]:
        """Changes after `since`, old and new, until `unfollow`. Raises Refused 410 when too old to be told."""
        oldest = self._history[0].version if self._history else self.version + 1
        if since < oldest - 1:
            raise refusal(410, f"too old resource version: {since} ({oldest})", "Expired")
        queue: asyncio.Queue[Change] = asyncio.Queue()
        for change in self._history:
            if change.version > since:
                queue.put_nowait(change)
        self._queues.add(queue)
        return queue

    def unfollow(self, queue: asyncio.Queue[Change]) -> None:
        self._queues.discard(queue)

    def record_event(self, about: Object, type_: str, reason: str, message: str, component: str) -> None:
        """A core/v1 Event; the same one again only raises its count."""
        meta = about["metadata"]
        same = (meta["uid"], type_, reason, message, component)
        if (key := self._events.get(same)) in self._objects and key:
            count = self._objects[key]["count"] + 1
            self.patch(*key, {"count": count, "lastTimestamp": now()})
            return
        involved = {
            "kind": about["kind"],
            "namespace": meta.get("namespace", ""),
            "name": meta["name"],
            "uid": meta["uid"],
            "apiVersion": about["apiVersion"],
            "resourceVersion": meta["resourceVersion"],
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name']}.{uuid.uuid4().hex[:16]}",
                "namespace": meta.get("namespace") or "default",
            },
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
            "type": type_,
            "eventTime": None,
            "reportingComponent": component,
            "reportingInstance": "",
        }
        self._events[same] = _key_of(self.create(event))

    def _check_place(self, kind: Kind, new: Object) -> None:
        meta = new["metadata"]
        if meta.get("resourceVersion"):
            raise refusal(500, "resourceVersion should not be set on objects to be created")
        if not kind.namespaced:
            return
        if not meta.get("namespace"):
            raise bad_request("an empty namespace may not be set during creation")
        self._known("Namespace", "", meta["namespace"])

    def _fresh(self, kind: Kind, new: Object) -> Object:
        """Without what only the server may say, and with a name."""
        meta = {k: v for k, v in new["metadata"].items() if k not in (*KEPT, "managedFields", "selfLink")}
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + suffix()
        dropped = ("metadata", "status") if kind.has_status else ("metadata",)
        return {**{k: v for k, v in new.items() if k not in dropped}, "metadata": meta}

    def _admit(self, kind: Kind, obj: Object) -> Object:
        for hook in self._hooks.get(kind.name, []):
            obj = hook(clone(obj))
        return obj

    def _updated(self, kind: Kind, old: Object, new: Object, subresource: str | None) -> Object:
        meta, was = new.get("metadata", {}), old["metadata"]
        if meta.get("resourceVersion") not in (None, was["resourceVersion"]):
            why = (
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            raise conflict(kind, was["name"], f'{kind.resource} "{was["name"]}": {why}')
        if subresource == "status":
            return {**{k: v for k, v in old.items() if k != "status"}, **_only(new, "status")}
        if meta.get("name") != was["name"]:
            text = f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({was['name']})"
            raise bad_request(text)
        new = checks.decoded(kind, new)
        new["metadata"] = {k: v for k, v in new["metadata"].items() if k not in KEPT} | _only(was, *KEPT)
        new["metadata"]["resourceVersion"] = was["resourceVersion"]
        if kind.has_status:
            new = {**{k: v for k, v in new.items() if k != "status"}, **_only(old, "status")}
        if kind.has_generation and _body(new) != _body(old):
            new = self._admit(kind, new)
            new["metadata"]["generation"] = was["generation"] + 1
        checks.check_update(kind, old, new)
        return new

    def _known(self, kind: str, namespace: str, name: str) -> Object:
        found = self._objects.get(_key(kind, namespace, name))
        if found is None:
            raise not_found(KINDS[kind], name)
        return found

    def _commit(self, type_: str, new: Object, old: Object | None = None) -> Object:
        self.version += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        if type_ == "DELETED":
            self._objects.pop(_key_of(new), None)
            self._uids.discard(new["metadata"]["uid"])
        else:
            self._objects[_key_of(new)] = new
            self._uids.add(new["metadata"]["uid"])
        change = Change(self.version, type_, new, old)
        self._history.append(change)
        for queue in self._queues:
            queue.put_nowait(change)
        return new

    def _remove(self, last: Object) -> None:
        self._commit("DELETED", last, self._objects[_key_of(last)])


def _key(kind: str, namespace: str, name: str) -> Key:
    return (kind, namespace if KINDS[kind].namespaced else "", name)


def _key_of(obj: Object) -> Key:
    return _key(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _only(obj: Object, *keys: str) -> Object:
    return {key: obj[key] for key in keys if key in obj}


def _body(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _merged(old: Object, patch: Object) -> Object:
    new = {key: value for key, value in old.items() if patch.get(key, old) is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            below = old.get(key)
            new[key] = _merged(below if isinstance(below, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new


def _graceful(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))


def _grace_of(obj: Object, asked: int | None) -> int:
    """Only a bound pod that has not ended is given time [07-pod-terminating, 07-pod-delete-unbound]."""
    if obj["kind"] != "Pod" or not obj["spec"].get("nodeName"):
        return 0
    if obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    period: int = obj["spec"].get("terminationGracePeriodSeconds", 30)
    return period if asked is None else asked


def _marked(kind: Kind, old: Object, propagation: str, grace: int | None) -> Object:
    meta = dict(old["metadata"])
    seconds = _grace_of(old, grace)
    finalizer = FINALIZER_OF.get(propagation)
    if "deletionTimestamp" not in meta:
        if finalizer and finalizer not in meta.get("finalizers", []):
            meta["finalizers"] = [*meta.get("finalizers", []), finalizer]
        if kind.has_generation:
            meta["generation"] += 1
    elif seconds >= meta["deletionGracePeriodSeconds"]:
        return old
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    meta["deletionTimestamp"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    meta["deletionGracePeriodSeconds"] = seconds
    return {**old, "metadata": meta}


__all__ = ["Change", "Hook", "Object", "Refused", "Store"]
