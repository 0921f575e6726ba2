"""A door for tests: all that handlers may use, on a Redis of the test's own."""

from functools import partial
from typing import Any

from redis.asyncio import Redis

from bot.catalogue import Catalogue
from bot.digests import last
from bot.drafts import Drafts
from bot.known import Known
from bot.queue import Queue
from bot.receipts import Receipts
from bot.setups import SetupDesk
from bot.store import Store
from handlers.door import Door
from tests.bot.sweeps import CONFIG, NOW


def a_door(redis: Redis, **changes: Any) -> Door:
    queue, store = changes.get("queue", Queue(redis)), changes.get("store", Store(redis))
    parts = {
        "store": store,
        "receipts": Receipts(store, queue, lambda: NOW),
        "queue": queue,
        "drafts": Drafts(redis),
        "catalogue": Catalogue(redis, queue, lambda: NOW),
        "known": Known(redis),
        "last_digest": partial(last, redis),
        "namespace": "sweeps",
        "now": lambda: NOW,
    }
    config = changes.pop("config", CONFIG)
    return Door(**parts | {"desk": SetupDesk(redis, queue, config)} | changes)
