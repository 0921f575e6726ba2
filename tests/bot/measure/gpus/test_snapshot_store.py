"""The latest snapshot of GPU use, in parts."""

import threading
from datetime import UTC, datetime

from bot.measure.gpus import snapshot_store
from bot.measure.gpus.models import Gpu, NodeUse, PodUse, Snapshot
from bot.measure.gpus.snapshot_store import PODS_PER_PART, SnapshotStore

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def snapshot(pods: int) -> Snapshot:
    gpus = (Gpu(device="GPU-1", peak=0.5, mean=0.2),)
    return Snapshot(
        at=AT,
        nodes=(NodeUse(node="n1", physical=8, allocatable=8, allocated=2),),
        pods=tuple(
            PodUse(namespace="a", pod=f"p-{n}", node="n1", allocated=1, gpus=gpus) for n in range(pods)
        ),
    )


async def test_latest_is_the_snapshot_saved_last(redis, no_litter):
    assert await SnapshotStore(redis).latest() is None
    store = SnapshotStore(redis)
    for pods in (2 * PODS_PER_PART + 1, PODS_PER_PART, 0, 1):
        await store.save(snapshot(pods))
        assert await store.latest() == snapshot(pods)


async def test_snapshots_are_encoded_and_decoded_off_the_event_loop(redis, monkeypatch):
    threads = set()
    for name in ("_encoded", "_decoded"):
        known = getattr(snapshot_store, name)
        monkeypatch.setattr(
            snapshot_store,
            name,
            lambda value, known=known: threads.add(threading.get_ident()) or known(value),
        )
    store = SnapshotStore(redis)
    await store.save(snapshot(1))
    await store.latest()
    assert threads
    assert threading.get_ident() not in threads
