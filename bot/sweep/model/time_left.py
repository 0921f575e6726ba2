"""Estimate when a sweep ends, from the run times of its finished trials. Pure."""

from collections.abc import Sequence
from datetime import datetime

from bot.core.events import Progress
from bot.core.record import SweepRecord
from bot.sweep.model.observation import Observation
from k8s.jobs import Job
from k8s.objects import read_once

# Minutes below a limit are rounded up to the step beside it: each new figure is an edit of the message.
ROUNDING = ((60, 5), (4 * 60, 15), (24 * 60, 60))
COARSE = 4 * 60  # minutes


def minutes_left(sweep: SweepRecord, progress: Progress, seen: Observation, now: datetime) -> int | None:
    """Return the minutes until all trials have finished, rounded up; None without a finished trial.

    Trials that haven't started run one after another on as many places as are running now.
    """
    usual = usual_seconds(seen)
    if sweep.plan is None or usual is None:
        return None
    running = {pod.job: pod.running_since for pod in seen.pods if pod.running}
    if not running:
        return None
    total = sweep.plan.space.max_trials
    ending = sweep.draining or sweep.holds
    new = 0 if ending else max(0, total - progress.finished - progress.finishing - progress.running)
    rest = [max(0.0, usual - (now - since).total_seconds()) for since in running.values() if since]
    seconds = max((new * usual + sum(rest)) / len(running), *rest)
    if sweep.deadline and sweep.deadline > now:  # running trials still finish after it
        seconds = min(seconds, (sweep.deadline - now).total_seconds() + usual)
    minutes = seconds / 60
    step = next((step for limit, step in ROUNDING if minutes <= limit), COARSE)
    return max(1, -int(-minutes // step)) * step


def usual_seconds(seen: Observation) -> float | None:
    """Return the mean run time of the trials that finished; None if none has."""
    times = run_times(seen)
    finished = [times[trial.name] for trial in seen.succeeded if times.get(trial.name)]
    return sum(finished) / len(finished) if finished else None


def run_times(seen: Observation) -> dict[str, float]:
    """Return the seconds of each trial whose Job has completed."""
    times = read_once(_job_times, seen.jobs)
    # A Job's time includes its pod's wait for a node.
    pods = seen.pods if times else ()
    return times | {pod.job: pod.seconds for pod in pods if pod.seconds is not None and pod.job in times}


def _job_times(jobs: Sequence[Job]) -> dict[str, float]:
    return {job.name: job.seconds for job in jobs if job.seconds is not None}
