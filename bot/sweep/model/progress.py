"""Count a sweep's trials, find the best result, and tell what waiting trials wait for. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bot.core.events import Progress, Result
from bot.core.record import SweepRecord
from bot.core.space import Goal, SearchSpace
from bot.platform.pod_health.diagnosis import LABELS, RESOURCES, TAINT, VOLUME, main_reason, refusals
from bot.sweep.model.observation import Observation
from bot.sweep.results.ranking import best
from bot.text.wording import counted, listed, shortened
from k8s.engine import Trial, TrialState
from k8s.jobs import Job, JobState
from k8s.objects import read_once
from k8s.pods import Pod


def with_stopped_values(sweep: SweepRecord, trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Give trials that Sweepbot stopped early the value by which they were judged."""
    values = sweep.stopped_values
    return tuple(
        replace(trial, value=values[trial.name])
        if trial.value is None and trial.state is TrialState.STOPPED_EARLY and trial.name in values
        else trial
        for trial in trials
    )


def current_progress(sweep: SweepRecord, seen: Observation) -> Progress:
    """Return the counts as observed; those of the record while no trial is known."""
    if not seen.trials or sweep.plan is None:
        return sweep.progress
    space = sweep.plan.space
    states, live = read_once(_counts, seen.trials), seen.live_names
    ended = [t for t in seen.trials if space.seed and t.state is not TrialState.LIVE]
    return Progress(
        running=len(live & seen.running),
        waiting=len(live - seen.running - seen.finishing),
        waits_for=waits_for(seen),
        finishing=len(seen.finishing),
        succeeded=states[TrialState.SUCCEEDED],
        failed=states[TrialState.FAILED] + states[TrialState.NO_METRICS],
        killed=states[TrialState.KILLED],
        stopped_early=states[TrialState.STOPPED_EARLY],
        best=_best(space, seen.trials, sweep.progress.best) if space.names_best else None,
        seeds={seed: t.value for t in ended if (seed := t.parameters.get(space.seed))},
    )


def _best(space: SearchSpace, trials: tuple[Trial, ...], before: Result | None) -> Result | None:
    found = read_once(_first, trials, space.goal, before.trial if before else "")
    if found is None or found.value is None:
        return None
    return Result(trial=found.name, value=found.value, parameters=found.parameters)


def _first(trials: Sequence[Trial], goal: Goal, reported: str) -> Trial | None:
    return best(goal, trials, reported)


def _counts(trials: Sequence[Trial]) -> Counter[TrialState]:
    return Counter(trial.state for trial in trials)


def finished_trials(progress: Progress) -> str:
    """Return the number of ended trials, and of those among them that didn't succeed."""
    others = [
        (progress.failed, "failed"),
        (progress.killed, "stopped"),
        (progress.stopped_early, "stopped early"),
    ]
    parts = ", ".join(f"{number} {what}" for number, what in others if number)
    return f"{counted(progress.finished, 'trial')} done{f' ({parts})' if parts else ''}"


NODES = {
    TAINT: "a node whose taints they tolerate",
    LABELS: "a node that matches their node selector",
    VOLUME: "a node that can use their volume",
}
PULL_FAILURES = {"ErrImagePull", "ImagePullBackOff"}


def waits_for(seen: Observation) -> str:
    """Return what waiting trials wait for, as a list of nouns; "" if none waits, or the cause is unknown.

    Numbers of nodes and trials are left out: each new text is an edit in Slack.
    """
    waiting = seen.live_names - seen.running - seen.finishing
    queues = {job.queue for job in read_once(_queued, seen.jobs) if job.name in waiting}
    causes = {f"quota in queue `{queue}` (`/sweep queue` shows their place)" for queue in queues}
    causes |= {cause for pod in seen.notable_pods if pod.job in waiting and (cause := _cause(pod))}
    return listed(sorted(causes))


def _queued(jobs: Sequence[Job]) -> tuple[Job, ...]:
    return tuple(job for job in jobs if job.state is JobState.ACTIVE and job.suspended and job.queue)


def _cause(pod: Pod) -> str:
    """Return what a pod waits for; "" if it is starting."""
    if pod.finished or pod.deleted:
        return ""
    if pod.waiting[0] in PULL_FAILURES:
        return "their image, which a node can't pull"
    if not pod.unschedulable:
        return ""
    kind = main_reason(refusals(pod.unschedulable))
    if not kind or " " in kind:  # such as `node(s) were unschedulable`
        return "a node"
    return NODES.get(kind) or f"free {RESOURCES.get(kind, shortened(kind))}"
