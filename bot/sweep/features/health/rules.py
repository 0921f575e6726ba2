"""The rules that diagnose a first trial: one table, the first match counts. Pure.

Errors are reported now, waits after a grace period (`Diagnosis.report_at`, from the objects' own times).

In order of a trial's life, with two exceptions. R24 precedes all rules about a pod: missing metrics are
certain, and a wait that is not due yet hides the rules after it. R25, R26, and R13 come last, because they
match in the situations that more precise rules explain.
"""

from collections.abc import Iterable
from datetime import datetime

from bot.platform.pod_health import rules_admission as admission
from bot.platform.pod_health import rules_scheduling as scheduling
from bot.platform.pod_health import rules_startup as startup
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import Rule, TrialEvidence
from bot.sweep.features.health import rules_training as training
from bot.sweep.features.health import workers

RULES: tuple[tuple[str, Rule], ...] = (
    ("R1", admission.no_suggestion),
    ("R2", admission.settings),
    ("R3", admission.no_job),
    ("R4", admission.queued),
    ("R5", admission.refused_pod),
    ("R31", admission.refused_by_trainer),
    ("R29", admission.no_operator),
    ("R30", workers.resumed_early),
    ("R24", training.no_collector),
    ("R32", scheduling.too_large),
    ("R6", scheduling.unschedulable),
    ("R7", scheduling.no_volume),
    ("R8", startup.mount),
    ("R9", startup.sandbox),
    ("R10", startup.device),
    ("R11", startup.image),
    ("R28", workers.first_is_late),
    ("R12", startup.config),
    ("R14", training.out_of_memory),
    ("R15", training.evicted),
    ("R16", training.out_of_gpu_memory),
    ("R17", training.no_cuda),
    ("R27", workers.rendezvous),
    ("R18", training.nccl),
    ("R19", training.not_a_number),
    ("R20", training.no_metrics),
    ("R21", training.collector),
    ("R22", training.unreported),
    ("R23", startup.dead_node),
    ("R33", training.buffered),
    ("R34", training.mixed),
    ("R25", admission.stuck_experiment),
    ("R26", startup.slow_start),
    ("R13", training.crash),
)


# About the experiment, the Job, or the trial's metrics, which one worker reports for all.
OF_TRIAL = {f"R{number}" for number in (1, 2, 3, 4, 5, 19, 20, 21, 22, 24, 25, 29, 30, 31, 32, 33, 34)}


def diagnose(evidence: TrialEvidence) -> Diagnosis | None:
    """Return the diagnosis of the first rule that matches; of a worker's pod, with the worker's number."""
    name, found = next(((name, found) for name, rule in RULES if (found := rule(evidence))), ("", None))
    return found if found is None or name in OF_TRIAL else workers.named(found, evidence)


def due(found: Iterable[Diagnosis], now: datetime) -> tuple[Diagnosis, ...]:
    """Return the diagnoses to report now, the most severe first."""
    reported = [each for each in found if each.report_at is None or each.report_at <= now]
    return tuple(sorted(reported, key=lambda each: (each.soft, not each.failed)))


def next_due(found: Iterable[Diagnosis], now: datetime) -> datetime | None:
    """Return when the next diagnosis is due that isn't yet."""
    return min((each.report_at for each in found if each.report_at and each.report_at > now), default=None)
