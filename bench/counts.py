"""Requests per sweep of 30 trials, and per hour of an unchanging sweep: exact counts, which tests check."""

from collections import Counter
from collections.abc import Mapping

from bench.table import Row
from bot.storage.redis_client import connect
from local.redis import redis
from tests.scenarios.counted_sweep import RESYNCS, CountedSweep, counting_redis, running_sweep, space

SYSTEMS = {"cluster": "Kubernetes", "slack": "Slack", "git": "git", "registry": "registry", "redis": "Redis"}
READS = {"cluster.get", "cluster.list", "cluster.log", "cluster.pages"}
FEW, MANY = 10, 30  # trials


async def run() -> list[Row]:
    calls: Counter[str] = Counter()
    with redis() as url, counting_redis(calls):
        async with connect(url) as client:
            few, many = [
                await CountedSweep(client, calls, space=space(trials)).requests() for trials in (FEW, MANY)
            ]
            async with running_sweep(client, calls) as sweep:
                hour = await sweep.hour()
    ratio = sum(many.values()) / sum(few.values())
    return [
        Row(
            what=f"requests per sweep of {MANY} trials",
            against=f"{FEW} trials",
            measured=by_system(many),
            ratio=ratio,
            goal="at most 1x",
            met=ratio <= 1,
        ),
        Row(
            what="requests per hour of an unchanging sweep",
            against="the resync every 5 min",
            measured=by_system(hour),
            goal="only the resync",
            met=hour == RESYNCS,
        ),
    ]


def by_system(calls: Mapping[str, int]) -> str:
    """Sum up the calls: `Kubernetes 7 (3 reads), Slack 2`."""
    totals: Counter[str] = Counter()
    for call, number in calls.items():
        totals[call.partition(".")[0]] += number
    reads = sum(number for call, number in calls.items() if call in READS)
    shown = {"cluster": f" ({reads} reads)"} if reads else {}
    return ", ".join(
        f"{name} {totals[part]}{shown.get(part, '')}" for part, name in SYSTEMS.items() if totals[part]
    )
