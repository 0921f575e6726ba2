"""The client with recorded responses of a real API server, and with the local one."""

import asyncio
import json
import socket
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web
from kubernetes.aio.config import ConfigException

from k8s.api import client
from k8s.api.client import MAX_PROXY_BODY, KubernetesClient
from k8s.api.errors import ApiError, UnreachableError
from k8s.api.responses import MAX_LOG
from k8s.objects import Ref

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "build-a", "namespace": "kaniko"}}
REF = Ref("Job", "kaniko", "build-a")
EXPERIMENT = Ref("Experiment", "kaniko", "kx")


@pytest.fixture
def replaying(toy, connected, answering):
    """`cluster, asked = await replaying(...)`: these recordings one after another, and the requests."""

    async def start(*names):
        asked, left = [], list(names)

        async def handler(request):
            body = await request.text()
            asked.append((request.method, request.path, dict(request.query), body, request.headers))
            return answering(left.pop(0))

        return await connected(await toy(handler)), asked

    return start


def a_map(name="sweep-lr", **labels):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "sweeps", "labels": labels},
        "data": {"phase": "building"},
    }


# How refusals are to be read: (recording, which properties hold).
REFUSALS = [
    ("02-create-again-409", {"exists"}),
    ("03-job-422-many", {"permanent"}),
    ("02-create-while-terminating", set()),
    ("07-job-create-while-terminating", set()),
    ("02-patch-merge-stale-rv", {"stale"}),
    ("02-delete-precond-uid", {"stale"}),
    ("02-delete-404", {"absent", "permanent"}),
    ("08-404-missing-ns-admin", {"absent", "permanent"}),
    ("01-list-cr-absent", {"permanent"}),
    ("08-403-create-job", {"permanent"}),
    ("06-job-403-quota", {"permanent"}),
    ("07-create-in-terminating-ns", {"permanent"}),
    ("13-400-namespace-not-labelled", {"permanent"}),
    ("14-webhook-down-500", set()),
    ("08-401-bad-token", set()),
    ("11-410-continue-expired", {"expired"}),
]


@pytest.mark.parametrize(("name", "holds"), REFUSALS)
async def test_api_error_classifies_the_response(replaying, recorded, name, holds):
    cluster, _ = await replaying(name)
    with pytest.raises(ApiError) as caught:
        await cluster.create(JOB)
    properties = ("absent", "exists", "stale", "expired", "permanent")
    assert {word for word in properties if getattr(caught.value, word)} == holds
    status = recorded(name)["body"]
    if isinstance(status, dict):
        assert caught.value == ApiError(status["code"], status.get("reason", ""), status["message"][:500])


async def test_get_missing_object_is_none(replaying):
    cluster, asked = await replaying("03-job-get-404")
    assert await cluster.get(REF) is None
    method, path, _, _, headers = asked[0]
    assert (method, path) == ("GET", "/apis/batch/v1/namespaces/kaniko/jobs/build-a")
    assert headers["Authorization"] == "Bearer local-admin"
    assert headers["User-Agent"] == "sweepbot"


async def test_kind_that_is_not_installed_is_reported(replaying):
    cluster, _ = await replaying("01-list-cr-absent")
    with pytest.raises(
        ApiError, match=r"doesn't serve kubeflow.org/v1beta1/.*experiments/kx; is it installed"
    ):
        await cluster.get(EXPERIMENT)


async def test_response_that_is_no_kubernetes_object_is_an_error(toy, connected):
    async def login(_):
        return web.Response(text="<html>Please log in</html>")

    with pytest.raises(ApiError, match="not JSON: <html>Please log in"):
        await (await connected(await toy(login))).get(REF)


@pytest.mark.parametrize("answer", ["null", "[]", "{}", '{"status": "maintenance"}', "[" * 100_000])
async def test_json_that_is_no_kubernetes_object_is_an_error_that_is_retried(toy, connected, answer):
    async def proxy(_):
        return web.Response(text=answer, content_type="application/json")

    cluster = await connected(await toy(proxy))
    for call in (cluster.list("Pod", "sweeps"), cluster.get(REF), cluster.create(JOB), cluster.version()):
        with pytest.raises(ApiError, match=r"not (JSON|a Kubernetes object)") as error:
            await call
        assert not error.value.permanent


async def test_failure_with_a_deeply_nested_body_is_an_error_of_the_api(toy, connected):
    async def proxy(_):
        return web.Response(status=503, text="[" * 100_000, content_type="application/json")

    with pytest.raises(ApiError, match=r"^\[{500} \(503\)$"):
        await (await connected(await toy(proxy))).get(REF)


async def test_create_returns_the_stored_object(replaying, recorded):
    cluster, asked = await replaying("03-job-create")
    assert await cluster.create(JOB) == recorded("03-job-create")["body"]
    assert (asked[0][0], asked[0][1]) == ("POST", "/apis/batch/v1/namespaces/kaniko/jobs")
    assert json.loads(asked[0][3]) == JOB


async def test_list_reads_all_pages_and_adds_kinds(replaying, recorded):
    end = "02-list-missing-ns"
    cluster, asked = await replaying("09-page-1", "09-page-2", end)
    jobs = await cluster.list("Job", "kaniko", labels="app=bot", fields="metadata.name!=x")
    pages = [recorded(name)["body"] for name in ("09-page-1", "09-page-2")]
    named = [item["metadata"]["name"] for page in pages for item in page["items"]]
    assert [job["metadata"]["name"] for job in jobs] == named
    assert {(job["kind"], job["apiVersion"]) for job in jobs} == {("Job", "batch/v1")}
    selected = {"labelSelector": "app=bot", "fieldSelector": "metadata.name!=x", "limit": "500"}
    tokens = [{}, *({"continue": page["metadata"]["continue"]} for page in pages)]
    assert [query for _, _, query, _, _ in asked] == [{**selected, **token} for token in tokens]


async def test_list_keeps_only_matching_items(replaying, recorded):
    cluster, _ = await replaying("09-page-1", "09-page-2", "02-list-missing-ns")
    wanted = recorded("09-page-2")["body"]["items"][0]["metadata"]["name"]
    jobs = await cluster.list("Job", "kaniko", only=lambda job: job["metadata"]["name"] == wanted)
    assert [job["metadata"]["name"] for job in jobs] == [wanted]


async def test_list_with_expired_pages_is_read_at_once(replaying):
    cluster, asked = await replaying("09-page-1", "11-410-continue-expired", "02-list-missing-ns")
    assert await cluster.list("Job", "kaniko") == []
    assert asked[-1][2] == {}


async def test_pages_have_the_version_of_the_list(replaying, recorded):
    names = ("09-page-1", "09-page-2", "02-list-missing-ns")
    cluster, asked = await replaying(*names)
    found = [(len(items), version, len(asked)) async for items, version in cluster.pages("Job", "kaniko")]
    pages = [recorded(name)["body"] for name in names]
    assert found == [
        (len(page["items"]), page["metadata"]["resourceVersion"], number)
        for number, page in enumerate(pages, 1)
    ]


THROTTLED = {"kind": "Status", "reason": "TooManyRequests", "message": "storage is (re)initializing"}


@pytest.mark.parametrize(
    ("retry_after", "wait"),
    [("1", 1), ("3600", 60), ("", 0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0), ("-5", 0)],
)
async def test_retry_after_is_read_from_a_busy_server(toy, connected, retry_after, wait):
    async def busy(_):
        return web.json_response(THROTTLED, status=429, headers={"Retry-After": retry_after})

    cluster = await connected(await toy(busy))
    with pytest.raises(ApiError, match="initializing") as caught:
        await cluster.get(REF)
    assert (caught.value.wait, caught.value.throttled) == (wait, wait > 0)
    assert await cluster.is_ready()


@pytest.mark.parametrize(
    ("status", "ready"), [(200, True), (401, True), (403, True), (500, False), (502, False)]
)
async def test_server_is_ready_if_it_says_so_or_denies_the_check(toy, connected, status, ready):
    async def answer(request):
        assert request.path == "/readyz"
        return web.Response(status=status, text="whatever")

    cluster = await connected(await toy(answer))
    assert await cluster.is_ready() is ready


async def test_server_that_is_unreachable_is_not_ready(connected, free_port):
    assert not await (await connected(f"127.0.0.1:{free_port}")).is_ready()


async def test_connect_timeout_is_far_below_the_request_timeout(connected, monkeypatch):
    """A server whose packets are lost: its queue of connections is full."""
    sooner = aiohttp.ClientTimeout(total=client.CALL.total, sock_connect=client.CALL.sock_connect / 20)
    monkeypatch.setattr(client, "CALL", sooner)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        address = full.getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        cluster = await connected(f"127.0.0.1:{address[1]}")
        with pytest.raises(UnreachableError, match="Connection timeout"):
            await cluster.get(REF)


async def test_future_version_is_reported_as_not_reached(replaying):
    cluster, asked = await replaying("09-list-rv-future", "02-list-missing-ns", "08-403-list-jobs")
    assert not await cluster.has_reached("Job", "kaniko", "99999999")
    assert await cluster.has_reached("Job", "kaniko", "5")
    with pytest.raises(ApiError, match="forbidden"):
        await cluster.has_reached("Job", "kaniko", "5")
    assert asked[0][2]["resourceVersionMatch"] == "NotOlderThan"


@pytest.mark.parametrize(
    ("name", "deleted"),
    [
        ("07-job-delete-background", True),
        ("02-delete-with-finalizer", True),
        ("02-delete-404", False),
        ("02-delete-precond-uid", False),
    ],
)
async def test_delete_removes_dependents(replaying, name, deleted):
    cluster, asked = await replaying(name)
    assert await cluster.delete(REF, uid="u-1") is deleted
    sent = json.loads(asked[0][3])
    assert (sent["propagationPolicy"], sent["preconditions"]) == ("Background", {"uid": "u-1"})


async def test_delete_conflict_without_uid_is_no_absence(replaying):
    cluster, _ = await replaying("02-delete-precond-uid")
    with pytest.raises(ApiError) as caught:
        await cluster.delete(REF)
    assert caught.value.stale


async def test_merge_sends_its_content_type(replaying):
    cluster, asked = await replaying("03-job-create")
    await cluster.merge(EXPERIMENT, {"status": {"conditions": []}}, subresource="status")
    method, path, _, body, headers = asked[0]
    assert (method, path) == ("PATCH", "/apis/kubeflow.org/v1beta1/namespaces/kaniko/experiments/kx/status")
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(body) == {"status": {"conditions": []}}


@pytest.mark.parametrize("name", ["04-pod-log-no-host", "04-pod-log-no-kubelet", "04-pod-log-404"])
async def test_log_of_a_missing_pod_is_empty(replaying, name):
    cluster, asked = await replaying(name)
    assert await cluster.log("kaniko", "build-a-8wcr7", "kaniko", tail=5) == ""
    assert asked[0][1] == "/api/v1/namespaces/kaniko/pods/build-a-8wcr7/log"
    assert asked[0][2] == {"container": "kaniko", "tailLines": "5"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('container "main" in pod "p" is waiting to start: ContainerCreating', ""),
        ('previous terminated container "main" in pod "p" not found', ""),
        ("container nope is not valid for pod p", ApiError),
    ],
)
async def test_log_of_a_starting_container_is_empty(toy, connected, message, expected):
    async def refuse(_):
        return web.json_response({"kind": "Status", "message": message, "reason": "BadRequest"}, status=400)

    cluster = await connected(await toy(refuse))
    if expected is ApiError:
        with pytest.raises(ApiError, match="not valid"):
            await cluster.log("kaniko", "p", "nope")
    else:
        assert await cluster.log("kaniko", "p", "main", previous=True) == expected


async def test_log_with_invalid_utf8_is_read(toy, connected):
    async def say(_):
        return web.Response(body=b"loss \xff 0.5\n")

    assert await (await connected(await toy(say))).log("kaniko", "p", "main") == "loss \ufffd 0.5\n"


def streaming(*chunks, dies=False):
    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if dies:
            request.transport.abort()
        return response

    return handler


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [
        ([b"a\n" * 10, b"the end"], "a\n" * 10 + "the end"),
        ([b"first line\n", b"x" * (MAX_LOG - 8), b"\nthe", b" end\n"], "the end\n"),
        ([b"\rstep" * 300_000, b"\nCUDA out of memory"], "CUDA out of memory"),
        ([b"y" * MAX_LOG, b"z\n"], "y" * (MAX_LOG - 2) + "z\n"),
        ([b"xoxb-" + b"s" * MAX_LOG, b" the end\n"], "the end\n"),  # half a token would pass the mask
    ],
)
async def test_log_tail_is_read_whatever_its_length(toy, connected, chunks, kept):
    assert await (await connected(await toy(streaming(*chunks)))).log("kaniko", "p", "main") == kept


async def test_log_that_breaks_off_is_an_error(toy, connected):
    cluster = await connected(await toy(streaming(b"a line\n", dies=True)))
    with pytest.raises(UnreachableError):
        await cluster.log("kaniko", "p", "main")


async def test_watch_yields_changes_and_bookmarks(toy, connected, recorded):
    events = recorded("10-watch-stream-bookmarks")["body"]["events"]
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    torn = [lines[n : n + 1000] for n in range(0, len(lines), 1000)]
    cluster = await connected(await toy(streaming(*torn)))
    seen = [pair async for pair in cluster.watch("Experiment", "kaniko", since="433", timeout=8)]
    assert seen == [(event["type"], event["object"]) for event in events]
    assert seen[-1][0] == "BOOKMARK"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads the timers of Linux")
async def test_silent_watch_is_probed_by_the_kernel(toy, connected):
    async def silent(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "ADDED", "object": {}}\n')
        await asyncio.Event().wait()

    address = await toy(silent)
    cluster = await connected(address)
    there = f"0100007F:{int(address.rpartition(':')[2]):04X}"
    changes = cluster.watch("Job", "kaniko", since="1", timeout=4)
    await anext(changes)
    kind, left = timer_of(there)
    assert kind == "02", "the next probe's: there is nothing to send"
    assert 2000 < int(left, 16) <= 3000, "hundredths of a second"
    await changes.aclose()


def timer_of(peer):
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
    established = "01"  # earlier connections to this port can still be in TIME_WAIT
    [timer] = [row[5].split(":") for row in rows if (row[2], row[3]) == (peer, established)]
    return timer


async def test_watch_from_an_old_version_is_expired(toy, connected, recorded):
    line = json.dumps(recorded("11-watch-410-jobs")["body"]["events"][0]).encode() + b"\n"
    cluster = await connected(await toy(streaming(line)))
    with pytest.raises(ApiError, match="too old resource version") as caught:
        await anext(cluster.watch("Job", "kaniko", since="300", timeout=4))
    assert caught.value.expired


async def test_watch_reads_objects_larger_than_any_buffer(toy, connected):
    large = {"type": "ADDED", "object": {"metadata": {"annotations": {"a": "x" * 5_000_000}}}}
    cluster = await connected(await toy(streaming(json.dumps(large).encode() + b"\n")))
    assert await anext(cluster.watch("Job", "kaniko", since="1", timeout=4)) == ("ADDED", large["object"])


async def test_server_that_dies_midway_is_unreachable(toy, connected):
    line = b'{"type": "ADDED", "object": {}}\n'
    cluster = await connected(await toy(streaming(line, dies=True)))
    with pytest.raises(UnreachableError, match="the API server is unreachable"):
        [pair async for pair in cluster.watch("Job", "kaniko", since="1", timeout=4)]


async def test_server_without_listener_is_unreachable(connected, free_port):
    cluster = await connected(f"127.0.0.1:{free_port}")
    with pytest.raises(UnreachableError, match="Cannot connect"):
        await cluster.version()


async def test_server_that_never_responds_is_unreachable(toy, connected, monkeypatch):
    async def sleep(_):
        await asyncio.Event().wait()

    cluster = await connected(await toy(sleep))
    monkeypatch.setattr("k8s.api.client.CALL", aiohttp.ClientTimeout(total=0.1))
    with pytest.raises(UnreachableError, match="is unreachable: TimeoutError"):
        await cluster.version()


async def test_named_kubeconfig_precedes_the_pods_service_account(replaying, connected, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    cluster, _ = await replaying("01-version")
    assert (await cluster.version()).startswith("v1.36")
    monkeypatch.setenv("KUBECONFIG", "")
    with pytest.raises(ConfigException, match="Service token file"):
        await KubernetesClient.connect()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- 1", "kubeconfig isn't a kubeconfig file"),
        (b"\xff", "kubeconfig can't be used: 'utf-8' codec can't decode"),
        ({"certificate-authority-data": "aGk="}, "can't be used: .*no certificate"),
        ({"certificate-authority-data": "-----BEGIN CERTIFICATE-----"}, "can't be used: "),
        ({"server": "https://[::1"}, "can't be used: Invalid IPv6 URL"),
        ({"tokenFile": "/missing"}, "can't be used: .*No such file or directory: '/missing'"),
    ],
)
async def test_kubeconfig_that_can_not_be_used_says_why(tmp_path, monkeypatch, text, why):
    if isinstance(text, dict):
        cluster = {"server": "https://127.0.0.1"} | text
        text = yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": text}],
            }
        )
    file = tmp_path / "kubeconfig"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(ConfigException, match=why):
        await KubernetesClient.connect()


async def test_endless_proxy_response_is_cut_off(toy, connected):
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2 * MAX_PROXY_BODY // 2**16):
            await response.write(b"x" * 2**16)
        return response

    cluster = await connected(await toy(endless))
    with pytest.raises(ApiError, match="gpu-operator/dcgm-1 sent over 8 MiB"):
        await cluster.proxy("gpu-operator", "dcgm-1", 9400, "metrics")
