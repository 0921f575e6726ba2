"""Report pods that don't end, of a sweep that stops or pauses. Pure."""

from datetime import timedelta

from bot.core.events import Event
from bot.core.record import SweepRecord
from bot.platform.slack.mrkdwn import plain
from bot.sweep.model.observation import Observation
from k8s.katib.manifest import grace_of

STUCK_AFTER = timedelta(minutes=5)  # after the grace period; a dead node never reports a pod's end


def stuck_timeout(sweep: SweepRecord) -> timedelta:
    return STUCK_AFTER + timedelta(seconds=grace_of(sweep.plan.with_pod) if sweep.plan else 0)


def report_stuck(sweep: SweepRecord, seen: Observation, then: str = "ends") -> SweepRecord:
    """Report them, once. `then`: what the sweep does once they are gone."""
    builds = [pod for build in seen.unwanted_builds(sweep.image) for pod in build.alive]
    alive = [pod for pod in (*seen.pods, *builds) if not pod.finished]
    pods = [f"{pod.name} on {pod.node or 'no node'}" for pod in alive]
    force = "`kubectl delete pod NAME --grace-period=0 --force`"
    text = (
        f":warning: Pods still terminating: {plain(', '.join(pods[:10]))}. If a node is down, an admin can "
        f"remove its pods with {force}. The sweep {then} once they're gone."
    )
    return sweep.enqueue_once("stuck", Event(kind="stuck", text=text)) if pods else sweep
