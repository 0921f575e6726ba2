"""Requests of real sweeps whose trials improve one after another, and per hour of an unchanging sweep."""

from collections import Counter
from collections.abc import Mapping

from bench.real_sweeps import Counts, counted
from bench.table import Row
from bot.platform.storage.redis_client import connect
from local.redis import redis
from tests.scenarios.counted_sweep import RESYNCS, counting_redis, running_sweep

SYSTEMS = {"cluster": "Kubernetes", "slack": "Slack", "git": "git", "registry": "registry", "redis": "Redis"}
READS = {"cluster.get", "cluster.list", "cluster.log", "cluster.pages"}
FEW, MANY = 10, 30  # trials
# Of a sweep, and of each trial. Redis reads a script as one request, and runs commands within it.
LIMITS = {"Slack": (10, 0.3), "Kubernetes": (60, 1), "Redis": (0, 100), "Redis commands": (0, 100)}


async def run() -> list[Row]:
    few, many = await counted(FEW, MANY)
    calls: Counter[str] = Counter()
    with redis() as url, counting_redis(calls):
        async with connect(url) as client, running_sweep(client, calls) as sweep:
            await sweep.hour()  # loads Redis' scripts
            hour = await sweep.hour()
    unchanged = Row(
        what="requests per hour of an unchanging sweep",
        against="the resync every 5 min",
        measured=by_system(hour),
        goal="only the resync",
        met=hour == RESYNCS,
    )
    return [*(_sweep(system, few, many) for system in LIMITS), unchanged]


def _sweep(system: str, few: Counts, many: Counts) -> Row:
    fixed, each = LIMITS[system]
    kinds = sorted(name for name in {*few, *many} if name == system or name.startswith(f"{system} "))
    name = "Redis: commands, also within scripts," if system == "Redis commands" else f"{system}: requests"
    return Row(
        what=f"{name} of a sweep of {MANY} trials that improve, beyond idle",
        against=f"{FEW} trials",
        measured=f"{many[system]:,} vs {few[system]:,}",
        ratio=round(many[system] / few[system], 3),
        goal=f"at most {fixed:g} + {each:g} per trial" if fixed else f"at most {each:g} per trial",
        met=all(found[system] <= fixed + each * trials for found, trials in ((few, FEW), (many, MANY))),
        samples={kind: [few[kind], many[kind]] for kind in kinds},
    )


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
