"""Call the Kubernetes API with plain dicts.

The official client does what is hard (kubeconfig, service accounts, TLS, proxies). Its models aren't used:
Katib's kinds have none, and a dict keeps unknown fields. Callers handle two errors:

    ApiError           the API server returned an error
    UnreachableError   no response: the call may or may not have had an effect, so retry it
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import aiohttp

from k8s.errors import ApiError, UnreachableError
from k8s.kueue_version import KueueVersion
from k8s.objects import Manifest, Ref
from k8s.sessions import by_kubeconfig, in_cluster

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient

Manifests = list[Manifest]

# kind -> apiVersion, and its name in a path; of Kueue's, k8s.kueue_version chooses the served version
KINDS = {
    "ConfigMap": ("v1", "configmaps"),
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "Job": ("batch/v1", "jobs"),
    "PyTorchJob": ("kubeflow.org/v1", "pytorchjobs"),
    "Experiment": ("kubeflow.org/v1beta1", "experiments"),
    "Trial": ("kubeflow.org/v1beta1", "trials"),
    "Suggestion": ("kubeflow.org/v1beta1", "suggestions"),
    "Workload": ("kueue.x-k8s.io/v1beta1", "workloads"),
    "LocalQueue": ("kueue.x-k8s.io/v1beta1", "localqueues"),
    "ClusterQueue": ("kueue.x-k8s.io/v1beta1", "clusterqueues"),
    "WorkloadPriorityClass": ("kueue.x-k8s.io/v1beta1", "workloadpriorityclasses"),
    "Node": ("v1", "nodes"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "Ingress": ("networking.k8s.io/v1", "ingresses"),
    "PodMetrics": ("metrics.k8s.io/v1beta1", "pods"),  # where metrics-server is installed
    # Only the doctor reads these; most are cluster-scoped.
    "SelfSubjectAccessReview": ("authorization.k8s.io/v1", "selfsubjectaccessreviews"),
    "Namespace": ("v1", "namespaces"),
    "PriorityClass": ("scheduling.k8s.io/v1", "priorityclasses"),
    "RuntimeClass": ("node.k8s.io/v1", "runtimeclasses"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
    "IngressClass": ("networking.k8s.io/v1", "ingressclasses"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "Deployment": ("apps/v1", "deployments"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "ScaledObject": ("keda.sh/v1alpha1", "scaledobjects"),
    "EndpointSlice": ("discovery.k8s.io/v1", "endpointslices"),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
}
LIST_PAGE = 500  # objects per page of a list, as in kubectl
CALL_TIMEOUT = 30.0
CONNECT_TIMEOUT = 5.0  # shorter, so that calls made during an outage fail soon after it ends
CALL = aiohttp.ClientTimeout(total=CALL_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
READY_TIMEOUT = 3.0  # seconds for /readyz
WATCH_MARGIN = 10.0  # seconds beyond a watch's own timeout until the connection counts as dead
MAX_RETRY_AFTER = 60.0  # seconds
MAX_LOG = 1024 * 1024  # bytes: a single line can be a whole progress bar
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
        self._kueue = KueueVersion(partial(self._call, "GET"))

    @classmethod
    async def connect(cls, measured: Measure = unmeasured) -> Self:
        """Connect by $KUBECONFIG, else by the pod's service account, else by ~/.kube/config.

        Raises kubernetes.aio.config.ConfigException if none of them exists.
        """
        if "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
            return cls(in_cluster(), measured)
        return cls(await by_kubeconfig(os.environ.get("KUBECONFIG") or "~/.kube/config"), measured)

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def _api(self) -> "ApiClient":
        return self._client

    async def version(self) -> str:
        """Return the server's version, such as `v1.36.2`."""
        return str((await self._call("GET", "/version"))["gitVersion"])

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
            await self._call("GET", _path(kind, namespace), query)
        except ApiError as error:
            if error.status == 504 and "Too large resource version" in error.message:
                return False
            raise
        return True

    async def get(self, ref: Ref) -> Manifest | None:
        """Return the object; None if it doesn't exist. Raises ApiError if its kind isn't installed."""
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
            page = await self._call("GET", _path(kind, namespace), {**query, "continue": token})
            token, version = page["metadata"].get("continue", ""), page["metadata"].get("resourceVersion", "")
            yield [{**what, **item} for item in page.pop("items", None) or ()], str(version)
            if not token:
                return

    async def pending_workloads(self, namespace: str, queue: str) -> Manifests | None:
        """Return a LocalQueue's pending Workloads from Kueue's visibility API, in order; None without it.

        Kueue 0.14 serves v1beta1, 0.15 and newer v1beta2.
        """
        for version in ("v1beta2", "v1beta1"):
            root = f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/{namespace}"
            try:
                return (await self._call("GET", f"{root}/localqueues/{quote(queue)}/pendingworkloads"))[
                    "items"
                ] or []
            except ApiError as error:
                if error.status not in {403, 404, 503}:
                    raise
        return None

    async def create(self, manifest: Manifest) -> Manifest:
        """Create the object and return it with the server's defaults.

        Raises ApiError; ApiError.exists if it already exists, perhaps from an earlier call.
        """
        path = _path(manifest["kind"], manifest["metadata"].get("namespace", ""))
        return await self._call("POST", path, body=manifest)

    async def merge(self, ref: Ref, patch: Manifest, *, subresource: str = "") -> Manifest:
        """Apply a JSON merge patch (RFC 7386). Raises ApiError.stale if its resourceVersion is outdated."""
        path = _path(ref.kind, ref.namespace, ref.name, subresource)
        return await self._call("PATCH", path, body=patch, sends="application/merge-patch+json")

    async def delete(self, ref: Ref, *, uid: str | None = None) -> bool:
        """Delete the object and its dependents; return False if none with this name and uid exists.

        Without a propagation policy, deleting a Job would leave its pods running.
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
            response = await self._send("GET", _path("Pod", namespace, pod, "log"), query, accept="*/*")
            return (await _log_end(response)).decode(errors="replace")
        except ApiError as error:
            if error.absent or error.status == 500 or any(words in error.message for words in NO_LOG_YET):
                return ""
            raise

    async def raw_log(self, namespace: str, pod: str, query: Mapping[str, Any]) -> str:
        """Return a log with these query parameters, as the kubelet sends it. Raises ApiError."""
        text = await self._read("GET", _path("Pod", namespace, pod, "log"), query, accept="*/*")
        return text.decode(errors="replace")

    async def proxy(self, namespace: str, pod: str, port: int, path: str) -> str:
        """GET a page of a pod's HTTP server through the API server, up to 8 MiB."""
        there = _path("Pod", namespace, f"{pod}:{port}", f"proxy/{path}")
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

        BOOKMARK, about once a minute, has only a newer resourceVersion; a kind without changes since the
        server started gets none. Raises ApiError.expired if `since` is too old, UnreachableError if the
        server doesn't end the watch in time.
        """
        query = {"watch": True, "resourceVersion": since, "labelSelector": labels}
        query |= {"allowWatchBookmarks": True, "timeoutSeconds": round(timeout)}
        limits = aiohttp.ClientTimeout(total=timeout + WATCH_MARGIN, sock_connect=CONNECT_TIMEOUT)
        response = await self._send("GET", _path(kind, namespace), query, limits=limits)
        try:
            on_open()
            async for line in _lines(response):
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise _from_status(change["object"].get("code", 500), line, change["object"])
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
            raise ApiError(200, "", f"not JSON: {_excerpt(answer)}") from None
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
        path = await self._kueue.path(path)
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
                self._kueue.forget(path)
            error = _api_error(response.status, await response.read(), path)
            error.wait = _retry_after(response.headers.get("Retry-After", ""))
            raise error


def _path(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    version, plural = KINDS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"namespaces/{namespace}" if namespace else ""  # "": all namespaces, or a cluster-scoped kind
    return "/".join(filter(None, (root, scope, plural, quote(name, safe=""), subresource)))


def _api_error(status: int, body: bytes, path: str) -> ApiError:
    try:
        return _from_status(status, body, json.loads(body))
    except ValueError:
        if status == 404:  # without a Status: no such API
            kind = path.removeprefix("/apis/")
            return ApiError(404, "", f"the cluster doesn't serve {kind}; is it installed?")
        return ApiError(status, "", _excerpt(body))


def _retry_after(text: str) -> float:
    """Return the seconds; 0 for a date, which only proxies send."""
    return min(float(text), MAX_RETRY_AFTER) if text.isdecimal() else 0


def _from_status(status: int, body: bytes, found: Any) -> ApiError:
    if not isinstance(found, dict):
        return ApiError(status, "", _excerpt(body))
    return ApiError(status, found.get("reason") or "", str(found.get("message") or "")[:500])


def _excerpt(body: bytes) -> str:
    return body.decode(errors="replace").strip()[:500]


async def _log_end(response: aiohttp.ClientResponse) -> bytes:
    """Return the end of the log, starting with a whole line or word: half a secret couldn't be masked."""
    log, was_cut = bytearray(), False
    with network_errors():
        async for some in response.content.iter_any():
            log += some
            was_cut = was_cut or len(log) > MAX_LOG
            if len(log) > 2 * MAX_LOG:  # not for each chunk: that would be quadratic
                del log[:-MAX_LOG]
    end = bytes(log[-MAX_LOG:])
    begin = end.find(b"\n", 0, -1) + 1 or end.find(b" ") + 1
    return end[begin:] if was_cut else end


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield lines of any length: an object can exceed aiohttp's line limit."""
    partial = b""
    while True:
        with network_errors():
            chunk = await response.content.readany()
        if not chunk:
            return
        *whole, partial = (partial + chunk).split(b"\n")
        for line in filter(None, whole):
            yield line


@contextmanager
def network_errors() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
        raise UnreachableError(
            f"the API server is unreachable: {str(error) or type(error).__name__}"
        ) from error
