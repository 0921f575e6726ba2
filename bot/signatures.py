"""The signatures of first trials in trouble: one table, the first one that fits a trial counts. Pure.

Hard errors are told at once, waits only after their grace: `tell_at` is made of the objects' own times.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from bot import before_training as before
from bot import in_training as during
from bot import on_the_node as node
from bot.health import Diagnosis
from bot.scene import Scene

# A wait that is not due yet hides what comes after it: so what is certain stands before what may pass.
SIGNATURES: tuple[tuple[int, Callable[[Scene], Diagnosis | None]], ...] = (
    (1, before.no_suggestion),
    (2, before.settings),
    (1, before.stuck_experiment),
    (3, before.no_job),
    (4, before.queued),
    (5, before.refused_pod),
    (20, during.no_collector),
    (6, before.unschedulable),
    (7, before.no_volume),
    (8, node.mount),
    (9, node.sandbox),
    (8, node.slow_start),
    (10, node.device),
    (11, node.image),
    (12, node.config),
    (14, during.out_of_memory),
    (15, during.evicted),
    (16, during.out_of_gpu_memory),
    (17, during.no_cuda),
    (18, during.nccl),
    (19, during.not_a_number),
    (20, during.no_metrics),
    (21, during.collector),
    (22, during.unreported),
    (23, during.dead_node),
    (13, during.crash),
)


def diagnose(scene: Scene) -> Diagnosis | None:
    return next((found for _, sign in SIGNATURES if (found := sign(scene))), None)


def due(found: Iterable[Diagnosis], now: datetime) -> tuple[Diagnosis, ...]:
    """What is to be told now, the gravest first."""
    told = [each for each in found if each.tell_at is None or each.tell_at <= now]
    return tuple(sorted(told, key=lambda each: (each.soft, not each.failed)))


def next_due(found: Iterable[Diagnosis], now: datetime) -> datetime | None:
    return min((each.tell_at for each in found if each.tell_at and each.tell_at > now), default=None)
