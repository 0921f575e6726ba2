"""The API server's HTTP API, with kube-apiserver 1.36's responses to the calls that Sweepbot makes.

Other requests are errors instead of approximations: PUT, deletecollection, dry runs, JSON and strategic
patches, and server-side apply are 400, 405, or 415.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import yaml
from aiohttp import web

from local.kubernetes.apiserver import rbac, requests, scale
from local.kubernetes.apiserver.discovery import discovered
from local.kubernetes.apiserver.kinds import Object, Refused, bad_request, not_found, refusal
from local.kubernetes.apiserver.pagination import Pages
from local.kubernetes.apiserver.requests import Target
from local.kubernetes.apiserver.selectors import matcher
from local.kubernetes.apiserver.store import Store
from local.kubernetes.apiserver.watching import stream, version_of
from local.kueue.status import pending
from local.serving import listen

TOKEN = "local-admin"
KUBECTL = "/kubectl"  # requests below this path are the admin's
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"}
Logs = Callable[[str, str, str, int | None, datetime | None], str]


class ApiServer:
    """A running server. `logs(namespace, pod, container, tail_lines)` is for the kubelet to set.

    `tokens` maps bearer tokens to users; `granted` has the allowed requests for resources, but the admin's.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tokens = {TOKEN: rbac.ADMIN}
        self.granted: set[rbac.AccessRequest] = set()
        self.logs: Logs | None = None
        self.metrics: Callable[[str], str] | None = None  # the metrics page of a node's dcgm-exporter
        self._pages = Pages()

    async def start(self, port: int) -> None:
        app = web.Application(client_max_size=3 * 1024 * 1024)
        app.router.add_route("*", KUBECTL + "/{path:.*}", self._as_admin)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._server = await listen(app, port, hangs_up=True)
        self.url, self.close = self._server.url, self._server.close

    def kubeconfig(self, path: Path, token: str = TOKEN, below: str = "") -> None:
        """Write a kubeconfig; `below=KUBECTL` for kubectl."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": self.url.rstrip("/") + below}}],
            "users": [{"name": "local", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
            "current-context": "local",
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False))

    async def _as_admin(self, request: web.Request) -> web.StreamResponse:
        """Strip the prefix KUBECTL, which means the admin: over HTTP, kubectl doesn't send its token."""
        headers = {**request.headers, "Authorization": f"Bearer {TOKEN}"}
        below = str(request.rel_url).removeprefix(KUBECTL)
        return await self._answer(request.clone(rel_url=below, headers=headers))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._routed(request)
        except Refused as refused:
            return _respond(refused.body, refused.code)

    async def _routed(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        if request.path in ("/readyz", "/livez"):
            return web.Response(text="ok")
        if request.path.rstrip("/") == "/version":
            return _respond(VERSION)
        if found := requests.visibility(request.path):
            return _respond(pending(self.store, *found))
        if request.method == "GET" and not requests.address(request.path):
            return _respond(discovered(request.path, self.store.kinds()))
        target = requests.target(request.path, self.store.kinds())
        verb = f"{request.method} {target.subresource or ('object' if target.name else 'list')}"
        if verb == "GET list" and request.query.get("watch") in ("1", "true"):
            return await stream(self.store, target.kind, target.namespace, request)
        verbs: dict[str, Callable[[Target, web.Request], Awaitable[web.Response]]] = {
            "GET list": self._list,
            "GET object": self._get,
            "GET status": self._get,
            "GET log": self._log,
            "GET proxy": self._proxy,
            "POST list": self._create,
            "PATCH object": self._patch,
            "PATCH status": self._patch,
            "PATCH scale": self._patch_scale,
            "DELETE object": self._delete,
        }
        if "dryRun" in request.query:
            raise bad_request("the local API server knows no dryRun")
        if verb not in verbs:
            text = "the server does not allow this method on the requested resource"
            raise refusal(405, text, "MethodNotAllowed", {})
        return await verbs[verb](target, request)

    def _check(self, request: web.Request) -> None:
        """Raise Refused 401 or 403, before checking whether the object exists."""
        access = rbac.access_request(rbac.user_of(request, self.tokens, self.store), request)
        if rbac.why(access, self.store) is None:
            raise access.refused()
        if access.user != rbac.ADMIN and access.resource:
            self.granted.add(access)

    async def _get(self, target: Target, _request: web.Request) -> web.Response:
        return _respond(self._known(target))

    def _known(self, target: Target) -> Object:
        found = self.store.get(*target.place)
        if not found:
            raise not_found(target.kind, target.name)
        return found

    async def _list(self, target: Target, request: web.Request) -> web.Response:
        kind, query = target.kind, request.query
        version_of(query, self.store.version)
        if token := query.get("continue"):
            version, items = self._pages.rest(token)
        else:
            matches = matcher(kind.name, target.namespace, query)
            items = [obj for obj in self.store.peek(kind.name, target.namespace) if matches(obj)]
            version = str(self.store.version)
        meta, items = self._pages.page(version, items, query)
        if kind.is_custom:
            meta.setdefault("continue", "")
        else:  # lists of built-in kinds omit kind and apiVersion [04-list-pods-by-job]
            items = [{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in items]
        head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
        return _respond({**head, "metadata": meta, "items": items})

    async def _create(self, target: Target, request: web.Request) -> web.Response:
        obj, warnings = await requests.new_object(target, request)
        if target.kind.name == "SelfSubjectAccessReview":
            user = rbac.user_of(request, self.tokens, self.store)
            return _respond(rbac.review(user, obj, self.store), 201)
        return _respond(self.store.create(obj), 201, warnings)

    async def _patch(self, target: Target, request: web.Request) -> web.Response:
        patch = await requests.patch(request)
        return _respond(self.store.patch(*target.place, patch, subresource=target.subresource or None))

    async def _patch_scale(self, target: Target, request: web.Request) -> web.Response:
        return _respond(scale.patch(self.store, *target.place, await requests.patch(request)))

    async def _delete(self, target: Target, request: web.Request) -> web.Response:
        options, warnings = await requests.deletion(target.kind, request)
        try:
            last = self.store.delete(*target.place, **options)
        except Refused as refused:
            return _respond(refused.body, refused.code, warnings)
        return _respond(self._deleted(target, last), 200, warnings)

    def _deleted(self, target: Target, last: Object) -> Object:
        """Delete; return pods and terminating objects themselves, others as a Status."""
        if target.kind.name == "Pod" or self.store.exists(last["metadata"]["uid"]):
            return last
        details = {**target.kind.details(target.name), "uid": last["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    async def _log(self, target: Target, request: web.Request) -> web.Response:
        pod = self._known(target)
        container = requests.container_of(pod, request.query)
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        if self.logs is None:
            raise refusal(500, "no preferred addresses found; known addresses: []")
        requests.check_has_log(pod, container, request.query)
        tail = request.query.get("tailLines")
        lines, since = int(tail) if tail else None, requests.since(request.query)
        text = self.logs(target.namespace or "", target.name, container, lines, since)
        if request.query.get("timestamps") == "true":
            text = requests.with_times(pod, container, text)
        most = int(request.query.get("limitBytes") or len(text) * 4)
        return web.Response(body=text.encode()[:most], content_type="text/plain")

    async def _proxy(self, target: Target, _request: web.Request) -> web.Response:
        """Proxy to a pod's server; only dcgm-exporter has one here."""
        pod = self._known(replace(target, name=target.name.partition(":")[0]))
        if self.metrics is None or "dcgm-exporter" not in pod["metadata"]["name"]:
            text = "error trying to reach service: dial tcp 127.0.0.1: connect: connection refused"
            raise refusal(503, text, "ServiceUnavailable", {})
        return web.Response(text=self.metrics(pod["spec"]["nodeName"]))


async def serve(store: Store, port: int = 0) -> ApiServer:
    """Start the API on 127.0.0.1; port 0: any free one."""
    server = ApiServer(store)
    await server.start(port)
    return server


def _respond(body: Object | str, status: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    if isinstance(body, str):
        return web.Response(text=body, status=status)
    response = web.json_response(body, status=status)
    for text in warnings:
        response.headers.add("Warning", f"299 - {json.dumps(text)}")
    return response
