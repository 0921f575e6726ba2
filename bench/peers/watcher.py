"""A script that reports trials in Slack, as a person would write it. `python bench/peers/watcher.py SECONDS`

Lists a namespace's trials every so many seconds and posts the names of those that have succeeded since. With
0 seconds it watches them, posts nothing, and prints each change as `TRIAL SECONDS`, by the monotonic clock of
the machine. Needs KUBECONFIG, K8S_NAMESPACE, SLACK_BOT_TOKEN, SLACK_API_URL, and the NAME and CHANNEL of the
script in Slack.
"""

import asyncio
import os
import sys
from time import monotonic

from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from k8s.api.client import KubernetesClient
from k8s.objects import Manifest

SECONDS, NAMESPACE = float(sys.argv[1]), os.environ["K8S_NAMESPACE"]


async def watch(cluster: KubernetesClient) -> None:
    async for _, version in cluster.pages("Trial", NAMESPACE, limit=10_000):
        since = version
    changes = cluster.watch(
        "Trial", NAMESPACE, since=since, timeout=600, on_open=lambda: print("ready", flush=True)
    )
    async for kind, trial in changes:
        if kind != "BOOKMARK":  # which has a version, and no name
            print(trial["metadata"]["name"], monotonic(), flush=True)


async def poll(cluster: KubernetesClient) -> None:
    slack = AsyncWebClient(os.environ["SLACK_BOT_TOKEN"], base_url=os.environ["SLACK_API_URL"])
    slack.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=3))
    known = await succeeded(cluster)
    print("ready", flush=True)
    while True:
        await asyncio.sleep(SECONDS)
        found = await succeeded(cluster)
        for trial in sorted(found - known):
            await slack.chat_postMessage(channel=os.environ["CHANNEL"], text=f"{os.environ['NAME']}: {trial}")
        known = found


async def succeeded(cluster: KubernetesClient) -> set[str]:
    return {each["metadata"]["name"] for each in await cluster.list("Trial", NAMESPACE) if has_ended(each)}


def has_ended(trial: Manifest) -> bool:
    return any(each["type"] == "Succeeded" for each in trial.get("status", {}).get("conditions", ()))


async def main() -> None:
    cluster = await KubernetesClient.connect()
    await (poll(cluster) if SECONDS else watch(cluster))


if __name__ == "__main__":
    asyncio.run(main())
