"""What tests of the work queue do with it."""

from bot.core.work_item import WorkItem

sweep = WorkItem.sweep


async def got(queue, wait=20.0):
    lease = await queue.get(wait=wait)
    assert lease, "nothing was ready"
    return lease


async def drain(queue):
    """Run everything that is ready; the items, in order."""
    order = []
    while lease := await queue.get(wait=0):
        order.append(lease.item.key)
        await queue.done(lease)
    return order


async def blocked(redis, count):
    return (await redis.info("clients"))["blocked_clients"] == count


async def empty(redis):
    return await redis.dbsize() == 0


async def state_of(redis, queue, item):
    """absent, ready, delayed, running, or running and then ready or delayed."""
    prefix = queue.lease_key(sweep("")).removesuffix(":lease:")
    scores = {
        name: await redis.zscore(f"{prefix}:{name}", item)
        for name in ("ready", "delayed", "running", "again")
    }
    there = [name for name, score in scores.items() if score is not None]
    if there == ["running", "again"]:
        second, _ = await redis.time()
        return "running, ready" if scores["again"] < (second + 1) * 1000 else "running, delayed"
    assert len(there) <= 1, f"{item} is in {there}"
    assert (await redis.exists(queue.lease_key(sweep(item))) == 1) == (there == ["running"])
    return there[0] if there else "absent"
