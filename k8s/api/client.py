"""Call the Kubernetes API with plain dicts: lists in pages, patches, deletes, watches, logs, pages of
dcgm-exporter through the API server, its version and readiness, with timeouts.

The official client does what is hard (kubeconfig, service accounts, TLS, proxies). Its models aren't used:
Katib's kinds have none, and a dict keeps unknown fields. Callers handle two errors:

    ApiError           the API server returned an error
    UnreachableError   no response: the call may or may not have had an effect, so retry it
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from k8s.api.errors import ApiError, UnreachableError
from k8s.api.paths import KINDS, ServedVersions, object_path
from k8s.api.responses import (
    api_error,
    error_of_status,
    excerpt,
    lines,
    log_end,
    network_errors,
    retry_after,
)
from k8s.objects import Manifest, Ref
from k8s.sessions import by_kubeconfig, in_cluster

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient

Manifests = list[Manifest]

VERSION = "/version"  # the only path whose answer has no kind
LIST_PAGE = 500  # objects per page of a list, as in kubectl
CALL_TIMEOUT = 30.0
CONNECT_TIMEOUT = 5.0  # shorter, so that calls made during an outage fail soon after it ends
CALL = aiohttp.ClientTimeout(total=CALL_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
READY_TIMEOUT = 3.0  # seconds for /readyz
WATCH_MARGIN = 10.0  # seconds beyond a watch's own timeout until the connection counts as dead
# Of a silent connection, by Linux: seconds until the first probe and to the next one, and how many fail.
PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
MAX_PROXY_BODY = 8 * 1024 * 1024  # bytes: the metrics of 16 GPUs with 7 slices each take half of it
NO_LOG_YET = (
    "is waiting to start",
    "previous terminated container",
)  # in the 400 for a log that doesn't exist yet


Measure = Callable[[str], AbstractContextManager[None]]


def unmeasured(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class KubernetesClient:
    """Methods raise ApiError and UnreachableError, take up to 30 s, and never retry.

    Args:
        measured: returns, for a method and path, a context manager around the call until its response begins.
    """

    def __init__(self, client: "ApiClient", measured: Measure = unmeasured) -> None:
        self._client, self._measured = client, measured
        self._versions = ServedVersions(partial(self._call, "GET"))

    @classmethod
    async def connect(cls, measured: Measure = unmeasured) -> Self:
        """Connect by $KUBECONFIG, else by the pod's service account, else by ~/.kube/config.

        Raises kubernetes.aio.config.ConfigException if none of them exists.
        """
        file = os.environ.get("KUBECONFIG")
        if not file and "KUBERNETES_SERVICE_HOST" in os.environ:
            return cls(in_cluster(), measured)
        return cls(await by_kubeconfig(file or "~/.kube/config"), measured)

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def _api(self) -> "ApiClient":
        return self._client

    @property
    def url(self) -> str:
        """The API server's."""
        return str(self._client.configuration.host)

    async def version(self) -> str:
        """Return the server's version, such as `v1.36.2`."""
        return str((await self._call("GET", VERSION))["gitVersion"])

    async def is_ready(self) -> bool:
        """Return whether /readyz succeeds within 3 s; it fails during a start and while etcd is down.

        A 401 or 403 counts as ready.
        """
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                await self._read("GET", "/readyz", None, accept="*/*")
        except ApiError as error:
            return not error.outage
        except (UnreachableError, TimeoutError):
            return False
        return True

    async def has_reached(self, kind: str, namespace: str, version: str) -> bool:
        """Return whether the cluster is at this resourceVersion or beyond.

        False after etcd was restored from a backup; a watch from there is silent, without an error.
        """
        query = {"limit": 1, "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
        try:
            await self._call("GET", object_path(kind, namespace), query)
        except ApiError as error:
            if error.status == 504 and "Too large resource version" in error.message:
                return False
            raise
        return True

    async def get(self, ref: Ref) -> Manifest | None:
        """Return the object; None if it doesn't exist. Raises ApiError if its kind isn't installed."""
        try:
            return await self._call("GET", object_path(ref.kind, ref.namespace, ref.name))
        except ApiError as error:
            if error.absent:
                return None
            raise

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
        only: Callable[[Manifest], bool] | None = None,
    ) -> Manifests:
        """Return the selected objects; of all namespaces for "". A namespace that doesn't exist has none.

        Args:
            only: a filter beyond selectors, to save memory: ten thousand pods take half a gigabyte.
        """
        try:
            return await self._all(kind, namespace, only, labels=labels, fields=fields)
        except ApiError as error:
            if not error.expired:
                raise
            # Too slow between two pages: list again without pages.
            return await self._all(kind, namespace, only, labels=labels, fields=fields, limit=0)

    async def pages(
        self, kind: str, namespace: str, *, labels: str = "", fields: str = "", limit: int = LIST_PAGE
    ) -> AsyncGenerator[tuple[Manifests, str], None]:
        """Yield pages of `list`, each with the list's resourceVersion, from which a watch can continue.

        Raises ApiError.expired if the caller is too slow between two pages.
        """
        what = {"kind": kind, "apiVersion": KINDS[kind][0]}  # built-in kinds leave it out of lists
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": limit}
        token = ""
        while True:
            page = await self._call("GET", object_path(kind, namespace), {**query, "continue": token})
            token, version = page["metadata"].get("continue", ""), page["metadata"].get("resourceVersion", "")
            yield [{**what, **item} for item in page.pop("items", None) or ()], str(version)
            if not token:
                return

    async def read(self, path: str) -> Manifest:
        """GET what no path of an object reaches, such as an aggregated API's list."""
        return await self._call("GET", path)

    async def create(self, manifest: Manifest) -> Manifest:
        """Create the object and return it with the server's defaults.

        Raises ApiError; ApiError.exists if it already exists, perhaps from an earlier call.
        """
        path = object_path(manifest["kind"], manifest["metadata"].get("namespace", ""))
        return await self._call("POST", path, body=manifest)

    async def merge(self, ref: Ref, patch: Manifest, *, subresource: str = "") -> Manifest:
        """Apply a JSON merge patch (RFC 7386). Raises ApiError.stale if its resourceVersion is outdated."""
        path = object_path(ref.kind, ref.namespace, ref.name, subresource)
        return await self._call("PATCH", path, body=patch, sends="application/merge-patch+json")

    async def delete(self, ref: Ref, *, uid: str | None = None, wait: bool = False) -> bool:
        """Delete the object and its dependents; return False if none with this name and uid exists.

        Without a propagation policy, deleting a Job would leave its pods running.

        Args:
            wait: the object stays, with a deletionTimestamp, until all of its dependents are gone.
        """
        policy = "Foreground" if wait else "Background"
        body: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", object_path(ref.kind, ref.namespace, ref.name), body=body)
        except ApiError as error:
            if error.status == 404 or (uid and error.stale):
                return False
            raise
        return True

    async def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        tail: int = 30,
        previous: bool = False,
        since: str = "",
    ) -> str:
        """Return the last `tail` lines, up to 1 MiB; "" if there is no log (yet), pod, or kubelet.

        `since`: only lines written at or after this Kubernetes timestamp.
        limitBytes isn't used, because the kubelet cuts the end of those lines.
        """
        query = {"container": container, "tailLines": tail, "previous": previous}
        query |= {"sinceTime": since} if since else {}
        try:
            response = await self._send("GET", object_path("Pod", namespace, pod, "log"), query, accept="*/*")
            return (await log_end(response)).decode(errors="replace")
        except ApiError as error:
            if error.absent or error.status == 500 or any(words in error.message for words in NO_LOG_YET):
                return ""
            raise

    async def raw_log(self, namespace: str, pod: str, query: Mapping[str, Any]) -> str:
        """Return a log with these query parameters, as the kubelet sends it. Raises ApiError."""
        text = await self._read("GET", object_path("Pod", namespace, pod, "log"), query, accept="*/*")
        return text.decode(errors="replace")

    async def proxy(self, namespace: str, pod: str, port: int, path: str) -> str:
        """GET a page of a pod's HTTP server through the API server, up to 8 MiB."""
        there = object_path("Pod", namespace, f"{pod}:{port}", f"proxy/{path}")
        response = await self._send("GET", there, None, accept="*/*")
        answer = bytearray()
        with network_errors():
            async for some in response.content.iter_any():
                answer += some
                if len(answer) > MAX_PROXY_BODY:
                    response.close()
                    raise ApiError(502, "", f"{namespace}/{pod} sent over {MAX_PROXY_BODY // 2**20} MiB")
        return answer.decode(errors="replace")

    async def watch(
        self,
        kind: str,
        namespace: str,
        *,
        labels: str = "",
        since: str,
        timeout: float,  # noqa: ASYNC109 - enforced by the server
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[tuple[str, Manifest], None]:
        """Yield ADDED, MODIFIED, and DELETED after the resourceVersion `since`, for `timeout` seconds.

        `on_open` is called once the server has accepted the watch.

        BOOKMARK, about once a minute, has only a newer resourceVersion; a kind without changes after `since`
        gets none. Raises ApiError.expired if `since` is too old, UnreachableError if the
        server doesn't end the watch in time.
        """
        query = {"watch": True, "resourceVersion": since, "labelSelector": labels}
        query |= {"allowWatchBookmarks": True, "timeoutSeconds": round(timeout)}
        limits = aiohttp.ClientTimeout(total=timeout + WATCH_MARGIN, sock_connect=CONNECT_TIMEOUT)
        response = await self._send("GET", object_path(kind, namespace), query, limits=limits)
        _probe(response)
        try:
            on_open()
            async for line in lines(response):
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise error_of_status(change["object"].get("code", 500), line, change["object"])
                yield change["type"], change["object"]
        finally:
            response.close()

    async def _all(
        self, kind: str, namespace: str, only: Callable[[Manifest], bool] | None, **query: Any
    ) -> Manifests:
        found: Manifests = []
        async for items, _ in self.pages(kind, namespace, **query):
            found += [item for item in items if only is None or only(item)]
        return found

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: Manifest | None = None,
        sends: str = "application/json",
    ) -> Manifest:
        answer = await self._read(method, path, query, body=body, sends=sends)
        try:
            result = json.loads(answer)
        except (ValueError, RecursionError):  # a proxy's page, a login form
            raise ApiError(200, "", f"not JSON: {excerpt(answer)}") from None
        key = "gitVersion" if path == VERSION else "kind"
        if not isinstance(result, dict) or key not in result:  # a proxy's, too
            raise ApiError(200, "", f"not a Kubernetes object: {excerpt(answer)}")
        return result

    async def _read(self, method: str, path: str, query: Mapping[str, Any] | None, **how: Any) -> bytes:
        response = await self._send(method, path, query, **how)
        with network_errors():
            return await response.read()

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        *,
        body: Manifest | None = None,
        sends: str = "application/json",
        accept: str = "application/json",
        limits: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """Return the response with its body unread. Raises ApiError for status 400 and above."""
        client = await self._api()
        path = await self._versions.path(path)
        request = await client.param_serialize(
            method,
            path,
            query_params={key: value for key, value in (query or {}).items() if value},
            header_params={"Accept": accept, "Content-Type": sends},
            body=body,
            auth_settings=["BearerToken"],
        )
        with network_errors(), self._measured(f"{method} {path}"):
            answer = await client.call_api(*request, _request_timeout=limits or CALL)
            response: aiohttp.ClientResponse = answer.response
            if response.status < 400:
                return response
            if response.status == 404:
                self._versions.forget(path)
            error = api_error(response.status, await response.read(), path)
            error.wait = retry_after(response.headers.get("Retry-After", ""))
            raise error


def _probe(response: aiohttp.ClientResponse) -> None:
    """Have the kernel break a silent connection a minute after its peer was gone."""
    transport = response.connection.transport if response.connection else None
    if connection := transport and transport.get_extra_info("socket"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PROBES.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
