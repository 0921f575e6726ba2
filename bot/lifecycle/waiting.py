"""What the waiting trials of a running sweep wait for, from their Jobs and pods. Pure.

Numbers of nodes and trials are left out: each new text is an edit in Slack.
"""

from bot.health.diagnosis import LABELS, RESOURCES, TAINT, main_reason, refusals
from bot.lifecycle.observation import Observation
from bot.text.wording import listed, shortened
from k8s.pods import Pod

NODES = {TAINT: "a node whose taints they tolerate", LABELS: "a node that matches their node selector"}
PULL_FAILURES = {"ErrImagePull", "ImagePullBackOff"}


def waits_for(seen: Observation) -> str:
    """Return what waiting trials wait for, as a list of nouns; "" if none waits, or the cause is unknown."""
    waiting = {trial.name for trial in seen.live} - seen.running - seen.finishing
    queues = {job.queue for job in seen.active_jobs if job.suspended and job.queue and job.name in waiting}
    causes = {f"quota in queue `{queue}` (`/sweep queue` shows their place)" for queue in queues}
    causes |= {cause for pod in seen.pods if pod.job in waiting and (cause := _cause(pod))}
    return listed(sorted(causes))


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
