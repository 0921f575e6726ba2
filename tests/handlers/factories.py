"""A context for tests of handlers, on a Redis of the test's own, and requests as Slack sends them."""

import shutil
import tempfile
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.config.live_policy import LivePolicy
from bot.platform.repos.catalog import Catalog
from bot.platform.storage.queue_state import QueueReader
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.sweep.channels.store import SetupReader
from bot.sweep.form.drafts import Drafts
from bot.sweep.model.texts import CANCEL
from bot.sweep.sweeps.unconfirmed import UnconfirmedRequests
from bot.sweep.sweeps.unconfirmed_file import UnconfirmedFile
from bot.text.masking import Mask
from bot.watch.digests.latest import latest_digest
from bot.workspace_table import GPUS
from handlers.context import HandlerContext
from local.slack.workspace import TEAM
from tests.bot.factories import CONFIG, NOW


def a_context(redis: Redis, **changes: Any) -> HandlerContext:
    queue, store = changes.get("queue", Queue(redis)), changes.get("store", Store(redis))
    parts = {
        "store": store,
        "unconfirmed": changes.get("unconfirmed") or no_requests(store, queue),
        "queue": queue,
        "drafts": Drafts(redis),
        "catalog": Catalog(redis, queue, lambda: NOW),
        "snapshots": SnapshotStore(redis),
        "last_digest": partial(latest_digest, redis),
        "gpus": GPUS,
        "namespace": "sweeps",
        "mask": Mask(),
        "now": lambda: NOW,
    }
    parts["has_worker"] = QueueReader(redis).has_worker
    config = changes.pop("config", CONFIG)
    return HandlerContext(
        **parts | {"channel_setup": SetupReader(redis, queue, LivePolicy(config))} | changes
    )


def no_requests(store: Store, queue: Queue) -> UnconfirmedRequests:
    """In a directory of their own, which goes with them."""
    folder = Path(tempfile.mkdtemp(prefix="unconfirmed-"))
    unconfirmed = UnconfirmedRequests(store, queue, lambda: NOW, folder)
    weakref.finalize(unconfirmed, _remove, unconfirmed.file, folder)
    return unconfirmed


def _remove(file: UnconfirmedFile, folder: Path) -> None:
    file.close()
    shutil.rmtree(folder)


def a_command(text, trigger="trigger-1", user="U1"):
    body = {
        "command": "/sweep",
        "text": text,
        "trigger_id": trigger,
        "user_id": user,
        "user_name": "ada",
        "channel_id": "C1",
        "team_id": TEAM["id"],
        "response_url": "https://hooks/1",
    }
    return AsyncBoltRequest(mode="socket_mode", body=body)


def a_click(value, **more):
    body = more | {
        "type": "block_actions",
        "user": {"id": "U1", "username": "ada", "team_id": TEAM["id"]},
        "team": {"id": TEAM["id"]},
        "channel": {"id": "C1"},
        "response_url": "https://hooks/2",
        "trigger_id": "trigger-2",
        "actions": [{"action_id": CANCEL, "block_id": "b", "type": "button", "value": value}],
    }
    return AsyncBoltRequest(mode="socket_mode", body=body)
