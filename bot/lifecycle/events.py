"""Build the events that the lifecycle enqueues, and the reasons with which it ends sweeps. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from bot.core.events import Event, EventKind, Progress
from bot.core.record import Phase, SweepRecord
from bot.core.request import Notify
from bot.lifecycle.observation import BuildSeen, Observation
from bot.text.wording import counted, listed
from k8s.jobs import JobState
from k8s.katib.patches import DRAINED, GOAL_REACHED
from k8s.katib.status import Experiment

ENDINGS = {
    Phase.SUCCEEDED: EventKind.SUCCEEDED,
    Phase.FAILED: EventKind.FAILED,
    Phase.CANCELLED: EventKind.CANCELLED,
}


def build_started(seen: Observation) -> Event:
    """Return the event with the images to build and the reused ones."""
    missing = [b for b in seen.builds if not b.there]
    joined = all(b.running for b in missing)
    reused = _reused(b for b in seen.builds if b.there)
    text = "; ".join(filter(None, (listed(b.build.role.label for b in missing), reused)))
    return Event(kind=EventKind.BUILD_JOINED if joined and missing else EventKind.BUILD_STARTED, text=text)


def build_failed(failed: BuildSeen) -> Event:
    """Return the event with the cause, and the pod and container whose log is attached."""
    if failed.job and failed.job.state is JobState.COMPLETE:
        text = (
            "The build succeeded, but its pod didn't report the image's digest, or the registry doesn't "
            "have the image."
        )
        return Event(kind=EventKind.BUILD_FAILED, text=text)
    text, detail = (failed.trouble.text, failed.trouble.detail) if failed.trouble else ("", "")
    return Event(
        kind=EventKind.BUILD_FAILED, text=text, detail=detail, pod=failed.pod, container=failed.container
    )


def cluster_chosen(sweep: SweepRecord) -> tuple[Event, ...]:
    """Report the choice between several clusters."""
    reason = sweep.plan.cluster_reason if sweep.plan else ""
    return (Event(kind=EventKind.CLUSTER_CHOSEN, text=reason),) if reason else ()


def build_finished(sweep: SweepRecord, seen: Observation) -> Event:
    """Return the event with the images built for this sweep and the reused ones."""
    built = [b for b in seen.builds if b.is_own(sweep.build_uids)]
    if not built:
        return Event(kind=EventKind.BUILD_REUSED)
    reused = _reused(b for b in seen.builds if b not in built and b.build.tag in sweep.digests)
    return Event(kind=EventKind.BUILD_DONE, text=", ".join(filter(None, (reused, *map(_built_in, built)))))


def _built_in(one: BuildSeen) -> str:
    seconds = one.job.seconds if one.job else None
    return f"{one.build.role.label} built" + (f" in {seconds:.0f} s" if seconds is not None else "")


def _reused(builds: Iterable[BuildSeen]) -> str:
    roles = listed(b.build.role.label for b in builds)
    return f"{roles} reused" if roles else ""


def success_reason(sweep: SweepRecord, experiment: Experiment) -> str:
    if experiment.reason == GOAL_REACHED:
        return "target reached"
    if experiment.reason == DRAINED or _is_short(sweep):
        why = "time limit reached" if sweep.out_of_time else "drained"
        return f"{why} after {counted(sweep.progress.finished, 'trial')}"
    return finished_trials(sweep.progress)


def _is_short(sweep: SweepRecord) -> bool:
    """Return whether a draining sweep used up the lowered maxTrialCount of `parallel=auto` before its own."""
    total = sweep.plan.space.max_trials if sweep.plan else 0
    return sweep.draining and sweep.progress.finished < total


def finished_trials(progress: Progress) -> str:
    """Return the number of ended trials, and of those among them that didn't succeed."""
    others = [
        (progress.failed, "failed"),
        (progress.killed, "stopped"),
        (progress.stopped_early, "stopped early"),
    ]
    parts = ", ".join(f"{number} {what}" for number, what in others if number)
    return f"{counted(progress.finished, 'trial')} done{f' ({parts})' if parts else ''}"


def failure_reason(experiment: Experiment, progress: Progress) -> str:
    """Return why Katib failed the experiment: failed trials, or its suggestion service."""
    if progress.failed and experiment.reason in {"ExperimentFailed", ""}:
        return f"{counted(progress.failed, 'trial')} failed"
    return f"Katib ended the experiment: {experiment.message or 'no reason given'}"


def to_owner(sweep: SweepRecord, event: Event) -> Event:
    """Address the event to the owner as an ephemeral message while there is no thread."""
    if sweep.thread:
        return event
    return replace(event, to_user=sweep.requester.user, response_url=sweep.requester.response_url)


def end_events(sweep: SweepRecord, ending: Phase) -> tuple[Event, ...]:
    """Return the end for the thread, and for everyone who gets it as a direct message."""
    kind = ENDINGS[ending]
    # Complete: when it is posted, the sweep may already have been extended.
    event = to_owner(sweep, Event(kind=kind, text=sweep.reason, result=sweep.progress.best))
    also = {sweep.requester.user} if sweep.request.notify is Notify.DM else set()
    if not sweep.thread and sweep.cancelled_by:
        also.add(sweep.cancelled_by)
    direct = [replace(event, to_user=user, response_url="") for user in sorted(also - {event.to_user})]
    of_results = (EventKind.RESULTS, EventKind.RESULT_FILES) if sweep.submitted else ()
    results = (Event(kind=each) for each in of_results)
    return (event, *direct, *results)
