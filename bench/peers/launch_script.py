"""The calls of one `/sweep` in a row, with nothing saved in Redis. `python launch_script.py REDIS_URL`

Takes orders from the list `orders` in Redis: JSON with a repository's `url`, its `files`, and the `manifest`
to create, a build's Job or an experiment. Needs the environment of `work`.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.registry.client import Registry
from bot.platform.repos.git import Git
from bot.platform.storage.redis_client import connect
from bot.sweep.results import run_tags
from bot.sweep.results.experiments import experiment_ids, tracking_client
from k8s.api.client import KubernetesClient
from k8s.objects import Ref

NAMESPACE, CHANNEL = (
    os.environ["K8S_NAMESPACE"],
    "C01VISION00",
)  # not Sweepbot's: posts in one channel share a rate limit
IMAGE = "sweepbot/uv"


class Script:
    def __init__(
        self, cluster: KubernetesClient, git: Git, registry: Registry, slack: AsyncWebClient
    ) -> None:
        self.cluster, self.git, self.registry, self.slack = cluster, git, registry, slack
        self.tracking = tracking_client(os.environ["MLFLOW_TRACKING_URI"])

    async def run(self, order: dict[str, Any]) -> None:
        manifest = order["manifest"]
        name = manifest["metadata"]["name"]
        record = Ref("ConfigMap", NAMESPACE, f"script-{name}")
        await self.cluster.create(_config_map(record))
        commit = await self._read(order["url"], order["files"])
        await self._note(record, "planned")
        thread = (await self.slack.chat_postMessage(channel=CHANNEL, text=name))["ts"]
        await self.slack.chat_getPermalink(channel=CHANNEL, message_ts=thread)
        for state in ("opened", "building"):
            await self._note(record, state)
        await self.cluster.get(Ref("ConfigMap", NAMESPACE, f"image-{commit}"))
        await self.registry.digest(IMAGE, commit)
        if manifest["kind"] == "Experiment":
            await self.slack.chat_postMessage(channel=CHANNEL, thread_ts=thread, text="Reusing the image.")
            await self._note(record, "running")
            # before the first trial
            await asyncio.to_thread(experiment_ids, self.tracking, name, {run_tags.SWEEP: name})
        else:
            await self.registry.digest(IMAGE, f"dependencies-{commit}")
        await self.cluster.create(manifest)

    async def _read(self, url: str, files: list[str]) -> str:
        commit = (await self.git.resolve(url, "main")).commit
        await self.git.prefetch(url, commit, files)
        for file in files:
            await self.git.read(url, commit, file)
        await self.git.subject(url, commit)
        return commit

    async def _note(self, record: Ref, state: str) -> None:
        await self.cluster.merge(record, {"data": {"state": state}})


def _config_map(ref: Ref) -> dict[str, Any]:
    meta = {"name": ref.name, "namespace": ref.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"state": "received"}}


async def main() -> None:
    slack = AsyncWebClient(os.environ["SLACK_BOT_TOKEN"], base_url=os.environ["SLACK_API_URL"])
    registry = Registry(os.environ["IMAGE_REGISTRY"], insecure=True)
    with tempfile.TemporaryDirectory(prefix="sweepbot-bench-") as folder:
        script = Script(await KubernetesClient.connect(), Git(Path(folder)), registry, slack)
        async with connect(sys.argv[1], socket_timeout=None) as redis:
            while True:
                _, order = await redis.blpop("orders")
                await script.run(json.loads(order))


if __name__ == "__main__":
    asyncio.run(main())
