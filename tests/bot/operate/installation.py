"""A healthy installation on this machine, with the permissions that deploy/ grants."""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from aiohttp import web
from redis.asyncio import Redis

from bot import workspace_table
from bot.operate import check_state, checks
from bot.platform.config.policy import Config
from bot.platform.config.repositories import Repository
from bot.platform.config.settings import Settings
from local import cluster_fixtures, git_server, manifests, registry, slack
from local.kubernetes.apiserver import api
from local.kubernetes.apiserver.store import Store
from local.kubernetes.node.kubelet import _register
from local.serving import listen

DEPLOY = Path(__file__).parents[3] / "deploy"
ACCOUNT = {"name": "sweepbot-work", "namespace": "sweepbot"}
LABEL = "katib.kubeflow.org/metrics-collector-injection"


class Installed:
    """All that a Sweepbot needs, healthy; tests break one part and run the doctor."""

    def __init__(self, folder, redis_url):
        self.folder, self.settings, self.resolve = folder, {"redis_url": redis_url}, None
        self.config = None
        self.store = Store()
        self.redis = Redis.from_url(redis_url)

    async def start(self, stack, repositories):
        self.chat = await slack.serve()
        images = await registry.serve(self.folder / "blobs")
        host = await git_server.serve(repositories)
        self.mlflow_status, self.logins = 200, []
        app = web.Application()
        app.router.add_get("/api/2.0/mlflow/experiments/search", self._mlflow)
        mlflow = await listen(app)
        self._cluster()
        self.server = await api.serve(self.store)
        self.server.logs = lambda *_: "a line\n"
        self.server.tokens["work"] = f"system:serviceaccount:{ACCOUNT['namespace']}:{ACCOUNT['name']}"
        self.server.kubeconfig(self.folder / "kubeconfig", "work")
        for part in (self.chat, images, host, mlflow, self.server):
            stack.push_async_callback(part.close)
        self.config = Config(repositories=(Repository(name="digits", url=f"{host.url}/digits.git"),))
        self.settings |= {
            "slack_bot_token": self.chat.bot_token,
            "slack_app_token": self.chat.app_token,
            "slack_api_url": self.chat.api_url,
            "image_registry": images.address,
            "image_registry_plain_http": True,
            "mlflow_tracking_uri": mlflow.url,
            "sweepbot_config": "unread",
            "k8s_namespace": "sweeps",
        }

    async def _mlflow(self, request):
        self.logins.append(request.headers.get("Authorization"))
        return web.json_response({"experiments": []}, status=self.mlflow_status)

    def _cluster(self):
        names = {"sweeps": {LABEL: "enabled"}, "sweepbot": {}}
        for name, labels in names.items():
            meta = {"name": name, "labels": labels}
            self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        self.store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": ACCOUNT})
        for folder in ("base", "doctor", "usage"):
            for obj in manifests.read(DEPLOY / folder / "rights.yaml"):
                if obj["kind"] != "ServiceAccount":
                    self.store.create(obj)
        for node in ("gpu-1", "gpu-2"):
            _register(self.store, node, 2)
        cluster_fixtures.install(self.store, ["gpu-1", "gpu-2"])
        for pod in self.store.list("Pod"):
            where = ("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
            self.store.patch(*where, {"status": {"phase": "Running"}}, subresource="status")

    def change(self, kind, name, patch, namespace="", subresource=None):
        self.store.patch(kind, namespace, name, patch, subresource=subresource)

    def node(self, name, **status):
        self.change("Node", name, {"status": status}, subresource="status")

    async def examined(self):
        """The findings that are not ok."""
        settings = Settings(**self.settings)
        names = patch.object(check_state, "Resolver", lambda: nullcontext(self.resolve))
        with names if self.resolve else nullcontext():
            self.all = await checks.run(settings, self.config, workspace_table.checks)
        return [one for one in self.all if one.level != "ok"]
