"""A namespace on an API server, with the product's client and plain HTTP."""

import json
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp

from k8s.api.client import KubernetesClient
from k8s.api.paths import KINDS
from k8s.objects import Manifest, Ref

HOLD = "example.com/hold"  # a finalizer that only these tests take away
ABSENT_USER = (
    "sweepbot-conformance"  # a scheduler that no cluster has: such pods stay for the test to play with
)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    warning: str | None = None


class Http:
    """Requests as they are, with whatever headers and body, by the same kubeconfig as the client's."""

    def __init__(self, cluster: KubernetesClient) -> None:
        self._configuration = cluster._client.configuration
        tls: ssl.SSLContext = cluster._client.rest_client.ssl_context
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls))

    async def close(self) -> None:
        await self._session.close()

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """`body`: a string is sent as it is, anything else as JSON."""
        token = (await self._configuration.auth_settings()).get("BearerToken")
        sent = {"Authorization": token["value"]} if token else {}
        sent |= {"Content-Type": "application/json"} if body is not None else {}
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(
            method, self._configuration.host.rstrip("/") + path, data=data, headers=sent
        ) as response:
            text = await response.text()
            is_json = response.content_type == "application/json" and text
            return Answer(
                response.status, json.loads(text) if is_json else text, response.headers.get("Warning")
            )


@dataclass
class Place:
    namespace: str
    cluster: KubernetesClient
    http: Http

    def ref(self, kind: str, name: str) -> Ref:
        return Ref(kind, self.namespace, name)

    def path(self, kind: str, name: str = "", subresource: str = "") -> str:
        version, plural = KINDS[kind]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return "/".join(filter(None, (root, "namespaces", self.namespace, plural, name, subresource)))

    async def pods(self, job: str) -> list[Manifest]:
        return await self.cluster.list("Pod", self.namespace, labels=f"batch.kubernetes.io/job-name={job}")

    async def set_status(self, pod: Manifest, phase: str) -> None:
        """What a kubelet would report."""
        ref = self.ref("Pod", pod["metadata"]["name"])
        await self.cluster.merge(ref, {"status": {"phase": phase}}, subresource="status")

    async def hold(self, ref: Ref) -> None:
        """Whoever deletes it from now on only marks it."""
        await self.cluster.merge(ref, {"metadata": {"finalizers": [HOLD]}})

    def a_map(self, name: str = "sweep-lr", **labels: str) -> Manifest:
        meta = {"name": name, "namespace": self.namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"phase": "building"}}

    def a_job(self, name: str = "build", **spec: Any) -> Manifest:
        meta = {"name": name, "namespace": self.namespace}
        template = {"spec": {"schedulerName": ABSENT_USER, "restartPolicy": "Never", **containers("kaniko")}}
        spec = {"backoffLimit": 0, **spec, "template": template}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}

    def a_pod(self, *names: str, **spec: Any) -> Manifest:
        meta = {"name": "p", "namespace": self.namespace}
        spec = {"schedulerName": ABSENT_USER, "restartPolicy": "Never", **containers(*names), **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def containers(*names: str) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": "example.com/none:1"} for name in names]}
