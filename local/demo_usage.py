"""Write GPU use of the last week into Redis for the demo, in the format of bot/measure/gpus."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from local.slack.workspace import ADA, GRACE, LINUS

GPUS = 20
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
CONFIG = f"""
namespaces: [speech]
teams:
  vision: {{members: [{ADA.id}, {GRACE.id}]}}
  speech: {{namespaces: [speech], members: [{LINUS.id}]}}
prices: {{"NVIDIA H100.*": 2.5, "NVIDIA A100.*": 1.5}}
"""


@dataclass(frozen=True)
class Run:
    """Pods with the same utilization: `by_day` from 9 to 19, `by_night` otherwise."""

    pod: str
    whose: tuple[str, str, str]  # owner, team, sweep
    model: str
    gpus: int
    hours: range
    by_day: float
    by_night: float
    measured: bool = True
    cores: tuple[float, float] = (8, 5.5)  # requested, and used
    gib: tuple[float, float] = (64, 41)  # of memory

    def share(self, hour: int) -> float:
        return self.by_day if 9 <= hour < 19 else self.by_night


YESTERDAY = (
    Run("sweeps/lr-brave-otter", (ADA.id, "vision", "lr-brave-otter"), H100, 4, range(24), 0.85, 0.0),
    Run("sweeps/aug-calm-heron", (GRACE.id, "vision", "aug-calm-heron"), H100, 4, range(8, 22), 0.92, 0.88),
    Run(
        *("speech/notebook-0", (LINUS.id, "speech", ""), A100, 2, range(7, 24), 0.0, 0.0),
        cores=(16, 0.3),
        gib=(128, 9),
    ),
    Run("speech/asr-train-0", (LINUS.id, "speech", ""), A100, 4, range(10, 20), 0.7, 0.6),
    Run("sweeps/pull-slow-image", (GRACE.id, "vision", ""), H100, 1, range(14, 17), 0.0, 0.0, measured=False),
    Run("batch/embed-42", ("", "", ""), H100, 3, range(12, 18), 0.45, 0.0),
)
USUALLY = (
    YESTERDAY[1],
    YESTERDAY[3],
    replace(YESTERDAY[2], gpus=1, hours=range(9, 18)),
)
# The stored fields of a pod, and of a sum.
POD = """namespace pod allocated observed used idle node owner team sweep model gpus unused
    cpu_requested cpu_mean ram_requested ram_peak""".split()  # noqa: SIM905
SUM = "namespace team owner sweep model allocated used idle unknown".split()  # noqa: SIM905


async def write(redis_url: str) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    async with Redis.from_url(redis_url) as redis:
        for number in range(8 * 24):
            hour = today - timedelta(hours=number + 1)
            runs = YESTERDAY if number < 24 else USUALLY
            uses = list(_uses(hour, runs))
            held = sum(use["allocated"] for use in uses)
            fields: dict[Any, Any] = {"version": 2, "capacity": json.dumps(_capacity(hour, held))}
            fields["pods"], fields["sums"] = _columns(POD, uses), _columns(SUM, uses)
            fields["ram"] = _packed({use["group"]: use["ram_peak"] for use in uses if use["ram_peak"]})
            fields["prices"] = _packed([])
            key = f"usage:main:hour:{hour:%Y-%m-%dT%H}"
            await redis.hset(key, mapping=fields)
            await redis.expireat(key, hour + timedelta(days=40))


def _uses(hour: datetime, runs: tuple[Run, ...]) -> Iterator[dict[str, Any]]:
    for run in runs:
        if hour.hour in run.hours:
            namespace, _, pod = run.pod.partition("/")
            owner, team, sweep = run.whose
            seen, share = run.gpus * run.measured, run.share(hour.hour)
            who = {"owner": owner, "team": team, "sweep": sweep, "model": run.model}
            place = {"namespace": namespace, "pod": pod, "node": "dgx-1"}
            group = {"group": f"{namespace}/{sweep or f'/{pod}'}"}
            busy = {"observed": seen, "used": seen * share, "idle": 0 if share else seen}
            counts = {"gpus": seen, "unused": 0 if share else seen}
            held = {"allocated": run.gpus, "unknown": run.gpus - seen}
            requested = _requested(run) if run.measured else {}
            yield dict.fromkeys(POD) | place | group | who | held | busy | counts | requested


def _columns(names: list[str], uses: list[dict[str, Any]]) -> bytes:
    return _packed([[[use[name] for use in uses], None] for name in names if uses])


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value).encode())


def _requested(run: Run) -> dict[str, float]:
    (cores, used), (requested, peak) = run.cores, run.gib
    memory = {"ram_requested": requested * 2**30, "ram_peak": peak * 2**30}
    return {"cpu_requested": cores, "cpu_mean": used} | memory


def _capacity(hour: datetime, held: float) -> dict[str, Any]:
    """Return the cluster's figures: one GPU is unavailable from 6:00, and a pod waits in the afternoon."""
    lost = int(hour.hour >= 6)
    waited = 4 if 12 <= hour.hour < 17 else 0
    given = {"capacity": GPUS - lost, "allocated": held, "unhealthy": lost, "waited": waited}
    queue = {"waiting": 1, "wanted": waited, "longest": hour.hour - 11} if waited else {}
    return {"hour": hour.isoformat(), **given, **queue}
