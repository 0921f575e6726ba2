"""The signatures of first trials in trouble: one table, the first one that fits a trial counts. Pure.

Hard errors are told at once, waits only after their grace: `tell_at` is made of the objects' own times.

The order is that of the numbers, but for four. 20 comes first of all about a pod: that no trial's metrics
will be read is certain, and a wait that is not due yet hides what comes after it. And last come those that
find something in whatever else is wrong, too: 1 no trial yet, 8 containers being made, 13 any end.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from bot.health import rules_admission as before
from bot.health import rules_scheduling
from bot.health import rules_startup as node
from bot.health import rules_training as during
from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence

SIGNATURES: tuple[tuple[int, Callable[[TrialEvidence], Diagnosis | None]], ...] = (
    (1, before.no_suggestion),
    (2, before.settings),
    (3, before.no_job),
    (4, before.queued),
    (5, before.refused_pod),
    (20, during.no_collector),
    (6, rules_scheduling.unschedulable),
    (7, rules_scheduling.no_volume),
    (8, node.mount),
    (9, node.sandbox),
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
    (1, before.stuck_experiment),
    (8, node.slow_start),
    (13, during.crash),
)


def diagnose(evidence: TrialEvidence) -> Diagnosis | None:
    return next((found for _, sign in SIGNATURES if (found := sign(evidence))), None)


def due(found: Iterable[Diagnosis], now: datetime) -> tuple[Diagnosis, ...]:
    """What is to be told now, the gravest first."""
    told = [each for each in found if each.tell_at is None or each.tell_at <= now]
    return tuple(sorted(told, key=lambda each: (each.soft, not each.failed)))


def next_due(found: Iterable[Diagnosis], now: datetime) -> datetime | None:
    return min((each.tell_at for each in found if each.tell_at and each.tell_at > now), default=None)
