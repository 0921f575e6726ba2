"""The one door to the Kubernetes API: plain dicts in, plain dicts out.

The official client is used for what is hard (kubeconfig, service accounts, TLS, proxies), not for its models:
Katib's kinds have none, and a dict survives fields this program has never heard of. What it raises is told
apart as two things a caller can act on:

    ApiError      the cluster answered, and refused
    Unreachable   no answer: may have happened or not, so try again
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from k8s.errors import ApiError, UnreachableError
from k8s.objects import Manifest, Ref

Manifests = list[Manifest]

# kind -> apiVersion, and its name in a path
KINDS = {
    "ConfigMap": ("v1", "configmaps"),
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "Job": ("batch/v1", "jobs"),
    "Experiment": ("kubeflow.org/v1beta1", "experiments"),
    "Trial": ("kubeflow.org/v1beta1", "trials"),
    "Suggestion": ("kubeflow.org/v1beta1", "suggestions"),
    "Workload": ("kueue.x-k8s.io/v1beta1", "workloads"),
    "Node": ("v1", "nodes"),
    "PodMetrics": ("metrics.k8s.io/v1beta1", "pods"),  # where metrics-server is installed
    # What only the doctor looks at; most of these have no namespace.
    "SelfSubjectAccessReview": ("authorization.k8s.io/v1", "selfsubjectaccessreviews"),
    "Namespace": ("v1", "namespaces"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "Deployment": ("apps/v1", "deployments"),
    "EndpointSlice": ("discovery.k8s.io/v1", "endpointslices"),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
}
PAGE = 500  # objects per answer to a list, as kubectl asks
CALL_SECONDS = 30.0
CONNECT_SECONDS = 5.0  # less: who hangs in it as the server comes back would wait for the whole call
CALL = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=CONNECT_SECONDS)
PROBE = 3.0  # seconds in which a server says whether it is ready
MARGIN = 10.0  # seconds after the end that a watch was given, before the line counts as dead
LONGEST_WAIT = 60.0  # seconds that a Retry-After is obeyed
MOST_LOG = 1024 * 1024  # bytes of a log's end: one line can be a whole progress bar
MOST_PAGE = 8 * 1024 * 1024  # bytes of what a pod answers: 16 GPUs of 7 slices say half of it
WAITING = ("is waiting to start", "previous terminated container")  # in the 400 of a log not yet there


class KubernetesClient:
    """Methods raise ApiError and Unreachable, wait 30 s at most, and try nothing twice."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._client.user_agent = "sweepbot"

    @classmethod
    async def connect(cls) -> Self:
        """By the file `KUBECONFIG` names, else as a pod's service account, else by ~/.kube/config.

        Raises kubernetes.aio.config.ConfigException when there is none of them.
        """
        configuration = Configuration()
        if "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            file = os.environ.get("KUBECONFIG") or "~/.kube/config"
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                file, client_configuration=configuration, persist_config=False
            )
        return cls(ApiClient(configuration))

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def version(self) -> str:
        """As the server names it: `v1.36.2`."""
        return str((await self._call("GET", "/version"))["gitVersion"])

    async def is_ready(self) -> bool:
        """Return whether the server says so within 3 s: not while it starts, nor while etcd is away.

        A refusal counts as ready, for whoever may not ask.
        """
        try:
            async with asyncio.timeout(PROBE):
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
            await self._call("GET", _path(kind, namespace), query)
        except ApiError as error:
            if error.status == 504 and "Too large resource version" in error.message:
                return False
            raise
        return True

    async def get(self, ref: Ref) -> Manifest | None:
        """None when there is no such object; a kind that is not installed is an ApiError."""
        try:
            return await self._call("GET", _path(ref.kind, ref.namespace, ref.name))
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
        """Every object the selectors choose; of all namespaces for "". One that does not exist is empty.

        `only` spares memory for what no selector can say: ten thousand pods take half a gigabyte.
        """
        try:
            return await self._all(kind, namespace, only, labels=labels, fields=fields)
        except ApiError as error:
            if not error.expired:
                raise
            # Too slow between two pages: in one piece.
            return await self._all(kind, namespace, only, labels=labels, fields=fields, limit=0)

    async def pages(
        self, kind: str, namespace: str, *, labels: str = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[tuple[Manifests, str], None]:
        """As `list`, page by page, with the resourceVersion at which all are true: a watch goes on there.

        ApiError.expired: too slow between two pages.
        """
        what = {"kind": kind, "apiVersion": KINDS[kind][0]}  # built-in kinds leave it out of lists
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": limit}
        token = ""
        while True:
            page = await self._call("GET", _path(kind, namespace), {**query, "continue": token})
            token, version = page["metadata"].get("continue", ""), page["metadata"].get("resourceVersion", "")
            yield [{**what, **item} for item in page.pop("items", None) or ()], str(version)
            if not token:
                return

    async def create(self, manifest: Manifest) -> Manifest:
        """The object as the cluster completed it. ApiError.exists: an earlier call has made it."""
        path = _path(manifest["kind"], manifest["metadata"].get("namespace", ""))
        return await self._call("POST", path, body=manifest)

    async def merge(self, ref: Ref, patch: Manifest, *, subresource: str = "") -> Manifest:
        """A JSON merge patch (RFC 7386). One with an outdated resourceVersion is refused: ApiError.stale."""
        path = _path(ref.kind, ref.namespace, ref.name, subresource)
        return await self._call("PATCH", path, body=patch, sends="application/merge-patch+json")

    async def delete(self, ref: Ref, *, uid: str | None = None) -> bool:
        """Delete it with all it owns. False: it was not there, or not the one with this uid.

        Without a propagation policy a deleted Job leaves its pods running.
        """
        body: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", _path(ref.kind, ref.namespace, ref.name), body=body)
        except ApiError as error:
            if error.status == 404 or (uid and error.stale):
                return False
            raise
        return True

    async def log(
        self, namespace: str, pod: str, container: str, *, tail: int = 30, previous: bool = False
    ) -> str:
        """The last `tail` lines, 1 MiB at most; "" when there are none (yet), or pod or kubelet is gone.

        Never with limitBytes: the kubelet would give the beginning of those lines and leave out their end.
        """
        query = {"container": container, "tailLines": tail, "previous": previous}
        try:
            response = await self._send("GET", _path("Pod", namespace, pod, "log"), query, accept="*/*")
            return (await _end(response)).decode(errors="replace")
        except ApiError as error:
            if error.absent or error.status == 500 or any(words in error.message for words in WAITING):
                return ""
            raise

    async def raw_log(self, namespace: str, pod: str, query: Mapping[str, Any]) -> str:
        """As the kubelet gives it out, or as it or the way to it refuses."""
        text = await self._read("GET", _path("Pod", namespace, pod, "log"), query, accept="*/*")
        return text.decode(errors="replace")

    async def proxy(self, namespace: str, pod: str, port: int, path: str) -> str:
        """What a pod's own HTTP server answers, through the API server; whatever it is, 8 MiB at most."""
        there = _path("Pod", namespace, f"{pod}:{port}", f"proxy/{path}")
        response = await self._send("GET", there, None, accept="*/*")
        answer = bytearray()
        with _answering():
            async for some in response.content.iter_any():
                answer += some
                if len(answer) > MOST_PAGE:
                    response.close()
                    raise ApiError(502, "", f"{namespace}/{pod} answers more than {MOST_PAGE} bytes")
        return answer.decode(errors="replace")

    async def watch(
        self,
        kind: str,
        namespace: str,
        *,
        labels: str = "",
        since: str,
        timeout: float,  # noqa: ASYNC109 - the server's
    ) -> AsyncGenerator[tuple[str, Manifest], None]:
        """What happens after the resourceVersion `since`, for `timeout` seconds: ADDED, MODIFIED, DELETED.

        BOOKMARK, about once a minute, brings only a newer resourceVersion; none comes for a kind that has not
        changed since the server started. Ends when the server ends it; Unreachable when that end is late.
        ApiError.expired: `since` is too old.
        """
        query = {"watch": True, "resourceVersion": since, "labelSelector": labels}
        query |= {"allowWatchBookmarks": True, "timeoutSeconds": round(timeout)}
        patience = aiohttp.ClientTimeout(total=timeout + MARGIN, sock_connect=CONNECT_SECONDS)
        response = await self._send("GET", _path(kind, namespace), query, patience=patience)
        try:
            async for line in _lines(response):
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise _refusal(change["object"].get("code", 500), line, change["object"])
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
            result: Manifest = json.loads(answer)
        except ValueError:  # a proxy's page, a login form
            raise ApiError(200, "", f"not JSON: {_start(answer)}") from None
        return result

    async def _read(self, method: str, path: str, query: Mapping[str, Any] | None, **how: Any) -> bytes:
        response = await self._send(method, path, query, **how)
        with _answering():
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
        patience: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """The response, its body unread. Raises ApiError for a refusal."""
        request = await self._client.param_serialize(
            method,
            path,
            query_params={key: value for key, value in (query or {}).items() if value},
            header_params={"Accept": accept, "Content-Type": sends},
            body=body,
            auth_settings=["BearerToken"],
        )
        with _answering():
            answer = await self._client.call_api(*request, _request_timeout=patience or CALL)
            response: aiohttp.ClientResponse = answer.response
            if response.status < 400:
                return response
            refusal = _refused(response.status, await response.read(), path)
            refusal.wait = _wait(response.headers.get("Retry-After", ""))
            raise refusal


def _path(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    version, plural = KINDS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"namespaces/{namespace}" if namespace else ""  # without: all namespaces, or a kind that has none
    return "/".join(filter(None, (root, scope, plural, quote(name, safe=""), subresource)))


def _refused(status: int, body: bytes, path: str) -> ApiError:
    try:
        return _refusal(status, body, json.loads(body))
    except ValueError:
        if status == 404:  # the one answer without a Status: nobody serves this path
            kind = path.removeprefix("/apis/")
            return ApiError(404, "", f"this cluster does not know {kind}: is it installed?")
        return ApiError(status, "", _start(body))


def _wait(text: str) -> float:
    """As Kubernetes writes it, in seconds; a proxy may write a date."""
    return min(float(text), LONGEST_WAIT) if text.isdecimal() else 0


def _refusal(status: int, body: bytes, said: Any) -> ApiError:
    if not isinstance(said, dict):
        return ApiError(status, "", _start(body))
    return ApiError(status, said.get("reason") or "", str(said.get("message") or "")[:500])


def _start(body: bytes) -> str:
    return body.decode(errors="replace").strip()[:500]


async def _end(response: aiohttp.ClientResponse) -> bytes:
    """Whole lines; of a last one longer than all that is kept whole words, or half a secret might stay."""
    log, cut = bytearray(), False
    with _answering():
        async for some in response.content.iter_any():
            log += some
            cut = cut or len(log) > MOST_LOG
            if len(log) > 2 * MOST_LOG:  # not each time: a gigabyte would be copied for every piece
                del log[:-MOST_LOG]
    end = bytes(log[-MOST_LOG:])
    begin = end.find(b"\n", 0, -1) + 1 or end.find(b" ") + 1
    return end[begin:] if cut else end


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines, of any length: an object may be larger than aiohttp's own limit for one."""
    begun = b""
    while True:
        with _answering():
            chunk = await response.content.readany()
        if not chunk:
            return
        *whole, begun = (begun + chunk).split(b"\n")
        for line in filter(None, whole):
            yield line


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
        raise UnreachableError(
            f"the API server does not answer: {str(error) or type(error).__name__}"
        ) from error
