"""A cache keeps up with its kind of object, whatever happens to the server."""

import asyncio
import json
import logging
import weakref
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import web

from k8s.api import client
from k8s.api import watch as watch_module
from k8s.api.cache import Cache
from k8s.api.errors import ApiError
from k8s.api.outage import Outage
from k8s.api.watch import _Watch, watch_forever
from k8s.objects import Ref
from k8s.slim import slim
from local.kubernetes.apiserver.api import serve

JOBS = "/apis/batch/v1/namespaces/sweeps/jobs"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watch_module, "RETRY", replace(watch_module.RETRY, base=0.01, max=0.05))


class Listener(Cache):
    """A cache of every ConfigMap or Job, by name only, and of the changes reported to it."""

    def __init__(self, kind="Job"):
        super().__init__(kind, "sweeps", lambda _: None)
        self.seen, self.names, self.fresh, self.outages = [], {}, 0, 0

    def put(self, obj):
        name = obj["metadata"]["name"]
        self.names[name] = obj["metadata"].get("resourceVersion")
        self.seen.append(("PUT", name))

    def remove(self, name, _version=""):
        del self.names[name]
        self.seen.append(("GONE", name))

    def retain(self, names):
        for gone in self.names.keys() - names:
            self.remove(gone)

    def on_fresh(self):
        self.fresh += 1

    def on_over(self):
        self.outages += 1


@asynccontextmanager
async def watching(cluster, listener, labels=""):
    outage = Outage(cluster, listener.on_over)
    task = asyncio.create_task(watch_forever(cluster, listener, labels, outage, on_fresh=listener.on_fresh))
    yield outage
    assert not task.done(), task
    task.cancel()
    await asyncio.wait([task])


def job(name, version=1):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "resourceVersion": str(version)},
    }


def event(what, obj):
    return {"type": what, "object": obj}


TOO_LARGE = {"kind": "Status", "reason": "Timeout", "code": 504}
TOO_LARGE |= {"message": "Timeout: Too large resource version: 99999999, current: 426"}
EXPIRED = event("ERROR", {"kind": "Status", "message": "too old", "reason": "Expired", "code": 410})


class Toy:
    """A server with scripted lists and streams, in order; then it sends nothing."""

    def __init__(self, lists, streams):
        self.lists, self.streams = list(lists), list(streams)
        self.asked = []  # the resourceVersions watches were started from
        self.lists_asked = 0
        self.compared = 0  # how often a watch's resourceVersion was compared with the cluster's
        self.refusing, self.hold = False, asyncio.Event()
        self.version = 1000  # of the cluster

    async def answer(self, request):
        if self.refusing:
            return web.json_response(status=500, data={})
        if request.path == "/readyz":
            return web.Response(text="ok")
        assert request.path == JOBS
        if "watch" not in request.query:
            self.lists_asked += "resourceVersion" not in request.query
            if int(request.query.get("resourceVersion", 0)) > self.version:
                return web.json_response(TOO_LARGE, status=504)
            if "resourceVersion" in request.query:
                self.compared += 1
                return web.json_response({"kind": "JobList", "metadata": {}, "items": []})
            version, items = self.lists.pop(0)
            return web.json_response(
                {"kind": "JobList", "metadata": {"resourceVersion": str(version)}, "items": items}
            )
        assert request.query["allowWatchBookmarks"] == "true"
        self.asked.append(request.query["resourceVersion"])
        return await self._stream(request)

    async def _stream(self, request):
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.streams:
            await asyncio.Event().wait()
        for change in self.streams.pop(0):
            if change == "die":
                request.transport.abort()
            elif change == "hold":
                await self.hold.wait()
                request.transport.abort()
            elif change == "silence":
                await asyncio.Event().wait()
            elif change == "nothing":
                await asyncio.sleep(0.02)
            elif change == "a minute":
                await asyncio.sleep(0.02)  # until the client has read what came before
                self.clock[0] += 60
            else:
                await response.write(json.dumps(change).encode() + b"\n")
        return response


@pytest.fixture
def started(toy, connected):
    """`toy, cluster = await started(lists, streams)`."""

    async def start(lists, streams):
        server = Toy(lists, streams)
        return server, await connected(await toy(server.answer))

    return start


async def test_watch_reports_existing_objects_and_changes(started, wait_until):
    there = [job("a", 3)]
    changes = [event("ADDED", job("b", 6)), event("MODIFIED", job("a", 7)), event("DELETED", job("a", 8))]
    _, cluster = await started([(5, there)], [changes])
    listener = Listener()
    async with watching(cluster, listener):
        await wait_until(lambda: len(listener.seen) == 4, "all is reported")
    assert listener.seen == [("PUT", "a"), ("PUT", "b"), ("PUT", "a"), ("GONE", "a")]
    assert listener.names == {"b": "6"}
    assert listener.fresh >= 4


async def test_watch_continues_after_an_ordinary_end(started, wait_until):
    bookmark = event("BOOKMARK", {"kind": "Job", "metadata": {"resourceVersion": "9"}})
    server, cluster = await started([(5, [])], [[event("ADDED", job("a", 6)), bookmark]])
    listener = Listener()
    async with watching(cluster, listener):
        await wait_until(lambda: len(server.asked) == 2, "it watches again")
    assert server.asked == ["5", "9"]
    assert listener.seen == [("PUT", "a")]


async def test_watch_from_an_expired_version_lists_again_and_reports_deletions(started, wait_until, caplog):
    lists = [(5, [job("a", 3), job("b", 4)]), (20, [job("b", 15)])]
    server, cluster = await started(lists, [[EXPIRED]])
    listener = Listener()
    async with watching(cluster, listener):
        await wait_until(lambda: len(server.asked) == 2, "it watches again")
    assert server.asked == ["5", "20"]
    assert listener.seen == [("PUT", "a"), ("PUT", "b"), ("PUT", "b"), ("GONE", "a")]
    assert caplog.records == [], "nothing to report to an operator"


async def test_watch_survives_a_broken_connection_without_loss(started, wait_until):
    server, cluster = await started([(5, [])], [[event("ADDED", job("a", 6)), "die"], ["die"]])
    listener = Listener()
    async with watching(cluster, listener):
        await wait_until(lambda: len(server.asked) == 3, "it watches again")
    assert server.asked == ["5", "6", "6"]


async def test_watch_without_bookmarks_of_a_quiet_kind_is_not_dead(started, wait_until, caplog):
    server, cluster = await started([(5, [])], [["nothing"]] * 3)
    listener = Listener()
    async with watching(cluster, listener):
        await wait_until(lambda: len(server.asked) == 4, "it watches again and again")
    assert server.asked == ["5"] * 4
    assert listener.fresh >= 4
    assert caplog.records == []


@pytest.mark.parametrize(("lasts", "compared"), [(240, 3), (1, 0)])
async def test_silent_watch_costs_a_second_request_only_if_it_ended_early(
    started, wait_until, monkeypatch, lasts, compared
):
    """As by a server that is restored from a backup, perhaps to an older version. One lasts 0.02 s here."""
    monkeypatch.setattr(watch_module, "WATCH_SECONDS", lasts)
    server, cluster = await started([(5, [])], [["nothing"]] * 3)
    async with watching(cluster, Listener()):
        await wait_until(lambda: len(server.asked) == 4, "it watches again")
    assert server.compared == compared


async def test_watch_that_misses_its_timeout_is_dead(started, wait_until, monkeypatch, caplog):
    monkeypatch.setattr(watch_module, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(client, "WATCH_MARGIN", 0.03)
    server, cluster = await started([(5, [])], [["silence"]])
    async with watching(cluster, Listener()):
        await wait_until(lambda: len(server.asked) >= 2, "it watches again")
    assert server.asked[:2] == ["5", "5"]
    assert "is interrupted: the API server is unreachable" in caplog.text


BOOKMARK = event("BOOKMARK", {"kind": "Job", "metadata": {"resourceVersion": "9"}})
STEADY = ["a minute", BOOKMARK] * 4


@pytest.mark.parametrize(
    ("before", "now", "dead"),
    [
        (STEADY, [BOOKMARK, "silence"], True),
        (STEADY, ["silence"], False),  # of a kind that hasn't changed since the watch before
        (["a minute"] * 4 + [BOOKMARK] * 4, [BOOKMARK, "silence"], False),  # a proxy sends all at the end
        (STEADY[:4] + ["a minute"] * 2, [BOOKMARK, "silence"], False),
    ],
)
async def test_watch_is_dead_if_its_bookmarks_end_and_the_last_one_had_one_each_minute(
    started, wait_until, monkeypatch, before, now, dead
):
    seconds = [0.0]  # of a clock that "a minute" moves
    monkeypatch.setattr(watch_module, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(watch_module, "NO_BOOKMARK", 0.2)
    server, cluster = await started([(5, [])], [before, now])
    server.clock = seconds
    async with watching(cluster, Listener()):
        await wait_until(lambda: len(server.asked) == 2, "it watches again")
        await asyncio.sleep(0.5)
        assert server.asked == ["5", "9", "9"][: 2 + dead]


async def test_long_silent_watch_that_a_proxy_ends_is_no_failure(started, wait_until, monkeypatch):
    """With its idle timeout of a minute, the pauses would grow, and the cache would lack changes for 30 s."""
    counted = []
    seconds = watch_module.RETRY.seconds
    retry = SimpleNamespace(base=0, max=0.01, seconds=lambda failures: counted.append(failures) or seconds())
    monkeypatch.setattr(watch_module, "RETRY", retry)
    server, cluster = await started([(5, [])], [["nothing", "die"]] * 3)
    async with watching(cluster, Listener()):
        await wait_until(lambda: len(server.asked) == 4, "it watches again and again")
    assert counted == [1] * 3


async def test_watch_from_a_future_version_lists_again(started, wait_until):
    """After etcd was restored from a backup: watches from there are silent, without an error."""
    server, cluster = await started([(5000, []), (3, [job("a", 2)])], [["nothing"]])
    listener = Listener()
    async with watching(cluster, listener):
        await wait_until(lambda: len(server.asked) == 2, "it watches again")
    assert server.asked == ["5000", "3"]
    assert listener.seen == [("PUT", "a")]


async def test_cache_is_complete_except_while_the_watch_is_interrupted(started, wait_until):
    server, cluster = await started([(5, [job("a", 3)])], [[event("ADDED", job("b", 6)), "hold"]])
    listener = Listener()
    assert not listener.complete, "nothing was listed"
    async with watching(cluster, listener):
        await wait_until(lambda: "b" in listener.names, "the change is there")
        assert listener.complete
        server.refusing = True
        server.hold.set()
        await wait_until(lambda: not listener.complete, "the watch is interrupted")
        server.refusing = False
        await wait_until(lambda: listener.complete, "it watches again")
    assert (server.lists_asked, server.asked) == (1, ["5", "6"])


async def test_cache_stays_incomplete_after_an_interrupted_list(wait_until):
    class Breaking(Pages):
        async def pages(self, *args, **kwargs):
            async for page in super().pages(*args, **kwargs):
                yield page
                raise ApiError(410, "Expired", "too slow between two pages")

    cluster, listener = Breaking(2, 3), Listener()
    watch = _Watch(cluster, listener, "", Outage(cluster, listener.on_over), listener.on_fresh)
    with pytest.raises(ApiError):
        await watch._list()
    assert (len(listener.names), watch.since) == (3, "")
    assert not listener.complete
    assert not listener.listed.is_set()


async def test_watch_lists_again_after_a_restored_backup(started, wait_until):
    lists = [(5000, [job("a", 3)]), (900, [])]
    server, cluster = await started(lists, [["die"]])
    listener = Listener()
    async with watching(cluster, listener):
        await wait_until(lambda: len(server.asked) == 2, "it watches again")
    assert server.asked == ["5000", "900"]
    assert listener.seen == [("PUT", "a"), ("GONE", "a")]


async def test_watch_reports_an_outage_once_and_its_end_once(server, local, store, wait_until, caplog):
    caplog.set_level(logging.INFO, "k8s.api.watch")
    listener = Listener("ConfigMap")
    async with watching(local, listener, labels="team=vision") as outage:
        await local.create(a_map("before"))
        await wait_until(lambda: ("PUT", "before") in listener.seen, "the first is seen")
        await server.close()
        await wait_until(lambda: "is interrupted" in caplog.text, "the outage is logged")
        await wait_until(lambda: outage._is_down, "a probe has failed")
        store.create(a_map("meanwhile"))
        store.delete("ConfigMap", "sweeps", "before")
        port = int(server.url.rpartition(":")[2])
        again = await serve(store, port)
        await wait_until(lambda: len(listener.seen) == 3, "what happened meanwhile is seen")
        await local.delete(Ref("ConfigMap", "sweeps", "meanwhile"))
        await wait_until(lambda: len(listener.seen) == 4, "what happens now, too")
    await again.close()
    assert listener.outages == 1
    assert listener.seen == [
        ("PUT", "before"),
        ("PUT", "meanwhile"),
        ("GONE", "before"),
        ("GONE", "meanwhile"),
    ]
    reported = [record.getMessage().split(":")[0] for record in caplog.records]
    assert reported == ["watching ConfigMap in sweeps is interrupted", "watching ConfigMap in sweeps again"]


def a_map(name):
    meta = {"name": name, "namespace": "sweeps", "labels": {"team": "vision"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


class Big(dict):
    """An object that can be seen to be forgotten."""


class Pages:
    """A cluster with that many pages of objects. `most`: the maximum alive at once."""

    def __init__(self, pages, size):
        self.count, self.size, self.made, self.most = pages, size, [], 0

    async def pages(self, kind, namespace, *, labels, limit):
        for page in range(self.count):
            items = [self._object(page, number) for number in range(self.size)]
            self.most = max(self.most, sum(ref() is not None for ref in self.made))
            yield items, "7"
            del items

    def _object(self, page, number):
        labels = {"sweepbot/sweep": f"lr-{page}"}
        meta = {"name": f"t-{page}-{number}", "labels": labels}
        made = Big(kind="Trial", metadata=meta, spec={"x": "x" * 1000})
        self.made.append(weakref.ref(made))
        return made


async def test_watch_keeps_two_pages_of_a_long_list_in_memory():
    cluster, changes = Pages(20, 50), []
    cache = Cache("Trial", "sweeps", changes.append, slim)
    watch = _Watch(cluster, cache, "", Outage(cluster, lambda: None), lambda: None)
    await watch._list()
    assert cluster.most <= 2 * 50
    assert sum(ref() is not None for ref in cluster.made) == 0
    assert (len(changes), watch.since) == (1000, "7")
    assert cache.get("t-3-1")["metadata"]["labels"] == {"sweepbot/sweep": "lr-3"}


async def test_watch_obeys_retry_after_without_counting_a_failure(monkeypatch):
    slept, listener = [], Listener()

    async def sleep(seconds):
        slept.append(seconds)

    watch = _Watch(None, listener, "", None, listener.on_fresh)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(5):
        await watch._failed(ApiError(429, "TooManyRequests", "storage is (re)initializing", wait=1))
    assert (slept, watch.failures) == ([1] * 5, 0)
