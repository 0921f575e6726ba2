"""Lists in pages and watches, as the client follows them."""

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import pytest

from k8s.api.cache import Cache
from k8s.api.client import KubernetesClient
from k8s.api.errors import ApiError
from k8s.api.outage import Outage
from k8s.api.watch import _Watch, watch_forever
from tests.conformance.conftest import ELSEWHERE, KEPT_FOR_WATCHERS
from tests.conformance.namespace import Answer, Place

BOT = "app=bot"


async def reported(
    place: Place, kind: str = "ConfigMap", labels: str = BOT, **how: Any
) -> list[tuple[str, str]]:
    """All of one watch, until the server ends it."""
    changes = place.cluster.watch(kind, place.namespace, labels=labels, **how)
    return [(what, obj["metadata"].get("name", "")) async for what, obj in changes]


async def version_of(place: Place) -> str:
    return (await whole(place.cluster, "ConfigMap", place.namespace))[1]


async def whole(cluster: KubernetesClient, kind: str, namespace: str) -> tuple[list[str], str]:
    """The names of all, page by page, and the version of the list."""
    names: list[str] = []
    version = ""
    async for items, version in cluster.pages(kind, namespace, limit=2):  # noqa: B007
        names += [item["metadata"]["name"] for item in items]
    return names, version


async def test_list_items_have_no_kind_and_the_client_adds_it(place: Place) -> None:
    await place.cluster.create(place.a_map(app="bot"))
    listed = (await place.http.send("GET", f"{place.path('ConfigMap')}?labelSelector={BOT}")).body
    assert listed["kind"] == "ConfigMapList"
    assert {"kind", "apiVersion"} & set(listed["items"][0]) == set()
    [item] = await place.cluster.list("ConfigMap", place.namespace, labels=BOT)
    assert (item["kind"], item["apiVersion"]) == ("ConfigMap", "v1")


@pytest.mark.needs("custom")
async def test_list_items_of_custom_kinds_have_their_kind(place: Place) -> None:
    made = {"kind": "Experiment", "apiVersion": "kubeflow.org/v1beta1"}
    meta = {"name": "lr", "namespace": place.namespace}
    await place.cluster.create({**made, "metadata": meta, "spec": {}})
    listed = (await place.http.send("GET", place.path("Experiment"))).body
    assert {key: listed["items"][0][key] for key in made} == made


async def test_lists_filter_by_labels_and_events_by_their_object(place: Place, wait_until: Any) -> None:
    await place.cluster.create(place.a_map("a", app="bot", team="x"))
    await place.cluster.create(place.a_map("b", app="other"))
    for labels, names in ((BOT, ["a"]), ("app=bot,team", ["a"]), ("app", ["a", "b"]), ("app=none", [])):
        found = await place.cluster.list("ConfigMap", place.namespace, labels=labels)
        assert [obj["metadata"]["name"] for obj in found] == names, labels
    await place.cluster.create(place.a_job())
    about = "involvedObject.kind=Job,involvedObject.name=build"
    events = await wait_until(
        lambda: place.cluster.list("Event", place.namespace, fields=about), "the Job's event is there"
    )
    assert [one["reason"] for one in events] == ["SuccessfulCreate"]


async def test_list_pages_have_one_version(place: Place) -> None:
    for name in "abc":
        await place.cluster.create(place.a_job(name, suspend=True))
    first = (await place.http.send("GET", f"{place.path('Job')}?limit=2")).body
    await place.cluster.create(place.a_job("bb", suspend=True))
    token = first["metadata"]["continue"]
    second = (await place.http.send("GET", f"{place.path('Job')}?limit=2&continue={token}")).body
    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert names == ["a", "b", "c"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    found, version = await whole(place.cluster, "Job", place.namespace)
    assert found == ["a", "b", "bb", "c"]
    assert int(version) > int(first["metadata"]["resourceVersion"])


async def test_watch_reports_changes_since_its_version(place: Place) -> None:
    """An object that leaves the selection comes as DELETED, and as ADDED when it returns."""
    since = await version_of(place)
    ref = place.ref("ConfigMap", "a")
    await place.cluster.create(place.a_map("a", app="bot"))
    await place.cluster.merge(ref, {"metadata": {"labels": {"app": None}}})
    await place.cluster.create(place.a_map("other"))
    await place.cluster.merge(ref, {"metadata": {"labels": {"app": "bot"}}})
    await place.cluster.merge(ref, {"data": {"best": "0.1"}})
    await place.cluster.delete(ref)
    assert await reported(place, since=since, timeout=1) == [
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]


async def test_watch_reports_an_object_that_leaves_the_selection_with_its_last_match(place: Place) -> None:
    await place.cluster.create(place.a_map("a", app="bot"))
    since = await version_of(place)
    left = await place.cluster.merge(place.ref("ConfigMap", "a"), {"metadata": {"labels": {"app": "not"}}})
    async with aclosing(
        place.cluster.watch("ConfigMap", place.namespace, labels=BOT, since=since, timeout=5)
    ) as changes:
        what, obj = await anext(changes)
    assert (what, obj["metadata"]["labels"]) == ("DELETED", {"app": "bot"})
    assert obj["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_watch_times_out_after_a_bookmark(place: Place) -> None:
    """The bookmark comes two seconds early, so changes can follow it.

    A server under load can end a watch before its bookmark, or before the change; then another is opened.
    """
    seen: list[tuple[str, str]] = []
    for number in range(10):
        since, seen = await version_of(place), []
        await place.cluster.create(place.a_map(f"before-{number}"))  # without a change there is no bookmark
        changes = place.cluster.watch("ConfigMap", place.namespace, labels=BOT, since=since, timeout=3)
        async for what, obj in changes:
            seen.append((what, obj["metadata"].get("name", "")))
            if len(seen) == 1:
                assert (what, set(obj)) == ("BOOKMARK", {"kind", "apiVersion", "metadata"})
                assert not set(obj["metadata"]) & {"name", "namespace", "uid"}
                assert int(obj["metadata"]["resourceVersion"]) >= int(since)
                await place.cluster.create(place.a_map(f"late-{number}", app="bot"))
        if len(seen) > 1:
            break
    assert seen[:2] == [("BOOKMARK", ""), ("ADDED", f"late-{number}")]


async def test_watch_from_a_future_version_is_silent(place: Place) -> None:
    """For example after etcd was restored from a backup."""
    future = str(int(await version_of(place)) + 100_000)
    listening = asyncio.create_task(reported(place, since=future, timeout=3))
    await asyncio.sleep(0.5)
    await place.cluster.create(place.a_map("a", app="bot"))
    assert await listening == []


class Seen(Cache):
    """A cache of every ConfigMap, by name only, and of the changes reported to it."""

    def __init__(self, place: Place, *known: str) -> None:
        super().__init__("ConfigMap", place.namespace, lambda _: None)
        self.names, self.seen = set(known), list[tuple[str, str, str]]()

    def put(self, obj: dict[str, Any]) -> None:
        self.names.add(obj["metadata"]["name"])
        self.seen.append(("put", obj["kind"], obj["metadata"]["name"]))

    def remove(self, name: str, _version: str = "") -> None:
        self.names.remove(name)
        self.seen.append(("gone", self.kind, name))

    def retain(self, names: set[str]) -> None:
        for gone in self.names - names:
            self.remove(gone)


def a_watch(place: Place, cache: Seen) -> _Watch:
    return _Watch(place.cluster, cache, BOT, Outage(place.cluster, lambda: None), lambda: None)


async def test_client_watching_from_a_future_version_lists_again(
    place: Place, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8s.api.watch.WATCH_SECONDS", 2)
    cache = Seen(place)
    watch = a_watch(place, cache)
    watch.since = str(int(await version_of(place)) + 100_000)
    running = asyncio.create_task(watch.run())
    await place.cluster.create(place.a_map("a", app="bot"))
    await wait_until(lambda: cache.names, "existing objects were reported")
    await ended(running)


async def test_list_of_a_future_version_is_an_error(place: Place) -> None:
    future = int(await version_of(place)) + 100_000
    answer = await place.http.send("GET", f"{place.path('ConfigMap')}?resourceVersion={future}")
    assert (answer.status, answer.body["reason"]) == (504, "Timeout")


async def forget(place: Place) -> Answer:
    """The response of a server that dropped version 1: the local one after that many changes.

    A real server drops changes from before its start; one whose etcd is as young has dropped none.
    """
    await place.cluster.create(place.a_map("here", app="bot"))
    for n in range(KEPT_FOR_WATCHERS):
        await place.cluster.merge(place.ref("ConfigMap", "here"), {"data": {"n": str(n)}})
    watch = f"{place.path('ConfigMap')}?watch=1&resourceVersion=1&timeoutSeconds=2&labelSelector=app%3Dnone"
    answer = await place.http.send("GET", watch)
    if ELSEWHERE and answer.body == "":
        pytest.skip("this server is too young to have forgotten anything: restart it beside its etcd")
    return answer


async def test_watch_from_an_old_version_is_expired(place: Place) -> None:
    """Answered with 200 and one ERROR event, which the client raises as any refusal."""
    answer = await forget(place)
    assert (answer.status, answer.body["type"], answer.body["object"]["code"]) == (200, "ERROR", 410)
    with pytest.raises(ApiError, match="too old resource version: 1") as expired:
        await reported(place, since="1", timeout=2)
    assert (expired.value.expired, expired.value.reason) == (True, "Expired")


async def test_client_watching_from_an_old_version_lists_again(place: Place, wait_until: Any) -> None:
    await forget(place)
    cache = Seen(place, "gone")
    watch = a_watch(place, cache)
    watch.since, cache.complete = "1", True
    running = asyncio.create_task(watch.run())
    await wait_until(lambda: len(cache.seen) == 2, "existing and deleted objects were reported")
    await place.cluster.create(place.a_map("new", app="bot"))
    await wait_until(lambda: len(cache.seen) == 3, "new objects were reported")
    await ended(running)
    reported = [(what, name) for what, _, name in cache.seen]
    assert reported == [("put", "here"), ("gone", "gone"), ("put", "new")]


async def test_watch_forever_yields_existing_and_new_objects(place: Place, wait_until: Any) -> None:
    await place.cluster.create(place.a_map("a", app="bot"))
    cache, outage = Seen(place), Outage(place.cluster, lambda: None)
    running = asyncio.create_task(watch_forever(place.cluster, cache, BOT, outage, on_fresh=lambda: None))
    await wait_until(lambda: cache.complete and cache.names, "old objects were reported")
    await place.cluster.create(place.a_map("b", app="bot"))
    await place.cluster.delete(place.ref("ConfigMap", "a"))
    await wait_until(lambda: len(cache.seen) == 3, "what happened was reported")
    await ended(running)
    assert cache.seen == [("put", "ConfigMap", "a"), ("put", "ConfigMap", "b"), ("gone", "ConfigMap", "a")]


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
