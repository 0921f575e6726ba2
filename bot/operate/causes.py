"""Why a sweep doesn't continue, and the fix, often a kubectl or `/sweep` command: one table of rules, the
first match counts. Pure.

In order of what hides what: without a record or a worker nothing else matters; a failing service explains
waiting objects; a problem of one object comes last.
"""

from collections.abc import Callable
from datetime import timedelta

from bot.core.finding import Finding
from bot.core.record import APPROVAL, Phase
from bot.operate.facts import ObjectFacts, SweepFacts, phase_name
from bot.operate.words import LOGS, NO_WORKER, age
from bot.platform.slack.client import NO_ACCESS
from bot.text.wording import counted

SLOW = timedelta(minutes=1)  # after which a deletion, a wait for a worker, or a missing pod is a problem
POSTING_REFUSED = {
    "is_archived": "the channel is archived",
    "is_inactive": "the channel is archived",  # of an edit
    "not_in_channel": "the bot isn't in the channel",
    "channel_not_found": "the channel is gone, or private without the bot",
}
BEFORE_RESULTS = {Phase.BUILDING, Phase.PENDING, Phase.RUNNING}  # the reconciler opens MLflow then


Rule = Callable[[SweepFacts], Finding | None]


def find_cause(facts: SweepFacts) -> Finding:
    """Return the cause of the first rule that matches; without one, what the sweep waits for."""
    return next((found for rule in RULES if (found := rule(facts))), None) or Finding(waits_for(facts))


def unreadable(facts: SweepFacts) -> Finding | None:
    if not facts.unreadable:
        return None
    return Finding(f"The record is unreadable: {facts.unreadable}.", "Finish the upgrade of all pods.")


def unknown(facts: SweepFacts) -> Finding | None:
    if facts.known or facts.cluster_error:
        return None
    return Finding(
        "Unknown sweep: Redis and the cluster have no record.",
        "Check the name with `sweepbot ps` or `/sweep admin ps`.",
    )


def lost_record(facts: SweepFacts) -> Finding | None:
    if facts.record or not facts.stored:
        return None
    phase, words = facts.stored.phase, phase_name(facts.stored.phase)
    if phase.final:
        return Finding(f"No trouble found: the sweep ended ({words}), and Redis no longer has its record.")
    return Finding(f"Redis lost the record; its ConfigMap has it ({words}).", "`sweepbot recover`")


def no_worker(facts: SweepFacts) -> Finding | None:
    late = facts.overdue
    if facts.has_worker and (late < SLOW or facts.item.failures):
        return None
    waits = f" The sweep has been due for {age(late, facts.now)}." if late >= SLOW else ""
    if facts.has_worker:
        return Finding(
            f"No worker has taken the sweep; all workers are busy or stuck.{waits}", f"{LOGS}; add replicas."
        )
    return Finding(f"{NO_WORKER.text}{waits}", NO_WORKER.fix)


def quarantined(facts: SweepFacts) -> Finding | None:
    held = facts.item.quarantine
    if held is None:
        return None
    text = f"Quarantined for {age(held.since, facts.now)}: {held.why}."
    fix = f"{LOGS} --previous; correct the cause, then `sweepbot release {facts.sweep}`."
    return Finding(text.replace("..", "."), fix)


def cluster_down(facts: SweepFacts) -> Finding | None:
    last = facts.error("kubernetes") if facts.item.failures else None
    words = facts.cluster_error or (last.text if last else "")
    if not words:
        return None
    if facts.cluster_refuses or "403" in words:
        fix = "`sweepbot doctor` prints the missing permission and the command that grants it."
        return Finding(f"The API server rejects a request: {words}.", fix)
    return Finding(
        f"The API server isn't working: {words}.", "`kubectl get --raw /readyz`; Sweepbot retries."
    )


def git_down(facts: SweepFacts) -> Finding | None:
    last = facts.error("git")
    if last is None or facts.phase is not Phase.RECEIVED:
        return None
    return Finding(f"The git host doesn't respond: {last.text}.", "`git ls-remote URL`; Sweepbot retries.")


def registry_down(facts: SweepFacts) -> Finding | None:
    last = facts.error("registry")
    if last is None or not facts.item.failures:
        return None
    fix = "`sweepbot doctor` (`registry`); Sweepbot retries."
    return Finding(f"The registry doesn't respond: {last.text}.", fix)


def slack_refuses(facts: SweepFacts) -> Finding | None:
    last = facts.error("slack")
    if last is None:
        return None
    code = last.text.rpartition(" ")[2]
    if code in NO_ACCESS:
        why = POSTING_REFUSED.get(code, "settings of the channel or the workspace don't let the bot post")
        fix = "Unarchive the channel, or run `/invite @sweepbot` there."
        fix = fix if code in POSTING_REFUSED else "Ask an admin of the workspace to let the bot post there."
        return Finding(
            f"Slack rejects messages: {why} ({last.text}).", f"{fix} Messages rejected so far are lost."
        )
    unsent = len(facts.record.outbox) if facts.record else 0
    if not (unsent or facts.item.failures):
        return None
    fix = "`sweepbot doctor` (`Slack token`); https://slack-status.com. Sweepbot retries."
    return Finding(f"Slack doesn't accept messages ({unsent} waiting): {last.text}.", fix)


def failing(facts: SweepFacts) -> Finding | None:
    if facts.item.failures and (last := facts.error(*(each.service for each in facts.errors))):
        times = counted(facts.item.failures, "time")
        return Finding(f"Failed {times} in a row: {last.text}.", f"{LOGS}; Sweepbot retries.")
    return None


def stuck_deletion(facts: SweepFacts) -> Finding | None:
    stuck = [each for each in facts.objects if each.deleted and facts.now - each.deleted > SLOW]
    blocked = next((each for each in stuck if each.finalizers), None)
    if blocked:
        names = ", ".join(blocked.finalizers)
        text = f"Cleanup waits for {_named(blocked)}: finalizer {names} has blocked its deletion"
        patch = """--type=merge -p '{"metadata":{"finalizers":null}}'"""
        command = f"`{_kubectl('patch', blocked)} {patch}`"
        fix = f"Restart the controller that owns the finalizer. If it's gone: {command}"
        return Finding(f"{text} for {age(blocked.deleted or facts.now, facts.now)}.", fix)
    if stuck and facts.phase is Phase.STOPPING:
        since = age(stuck[0].deleted or facts.now, facts.now)
        fix = f"`{_kubectl('describe', stuck[0])}`"
        return Finding(f"Cleanup has waited {since} for {_named(stuck[0])}.", f"Check its node: {fix}")
    return None


def suggestion_crash(facts: SweepFacts) -> Finding | None:
    if facts.phase not in {Phase.PENDING, Phase.RUNNING}:
        return None
    for pod in facts.objects:
        if pod.kind == "Suggestion pod" and any(word in pod.state for word in ("CrashLoop", "OOMKilled")):
            fix = "Raise its memory limit: docs/operate.md, The suggestion service is out of memory."
            return Finding(f"Katib's suggestion service is crashing, so no trial starts: {pod.state}.", fix)
    return None


def search_lost(facts: SweepFacts) -> Finding | None:
    record = facts.record
    if record is None or facts.phase is not Phase.RUNNING or record.draining:
        return None
    if f"search_lost/{record.attempt}" not in record.sent_keys:
        return None
    text = "Katib's suggestion service restarted and lost the search, so no new trial starts."
    return Finding(text, f"`/sweep drain {facts.sweep}`, then `/sweep rerun {facts.sweep}`")


def diagnosed(facts: SweepFacts) -> Finding | None:
    """A rule about its pods explains a build or a trial that hasn't started, or failed."""
    found = sorted(facts.diagnoses, key=lambda each: each.soft)
    if not found:
        return None
    detail = f" ({found[0].detail.splitlines()[0]})" if found[0].detail.strip() else ""
    return Finding(f"{found[0].text}{detail}", found[0].fix)


def build_without_pod(facts: SweepFacts) -> Finding | None:
    if facts.phase is not Phase.BUILDING:
        return None
    for job in facts.objects:
        if job.kind == "Job" and job.state == "no pod" and job.created and facts.now - job.created > SLOW:
            text = (
                f"Build Job {job.name} has had no pod for {age(job.created, facts.now)}; no reason reported."
            )
            return Finding(
                text, f"`kubectl -n {job.namespace} describe job {job.name}`; check the Job controller."
            )
    return None


def mlflow_down(facts: SweepFacts) -> Finding | None:
    record, fault = facts.record, facts.fault("MLflow")
    if fault is None or record is None or record.results_url or record.phase not in BEFORE_RESULTS:
        return None
    text = f"MLflow isn't working: {fault.text}. The sweep continues without a link and live values."
    return Finding(text, fault.fix)


def waiting_for_people(facts: SweepFacts) -> Finding | None:
    if facts.record and facts.phase is Phase.HELD:
        fix = "Ask its owner to use `/sweep open`, `retry`, or `cancel`."
        return Finding(f"On hold: {facts.record.reason}. {facts.record.failure}".strip(), fix)
    if facts.record and facts.phase is Phase.PAUSED:
        return Finding("Paused; no GPUs are allocated.", f"`/sweep resume {facts.sweep}`")
    if facts.record and facts.record.phase is Phase.OPENING and APPROVAL in facts.record.holds:
        fix = f"Ask an approver to use `/sweep approve {facts.sweep}` or `decline`."
        return Finding(f"Waiting for approval: {facts.record.reason}", fix)
    return None


RULES: tuple[Rule, ...] = (
    unreadable,
    unknown,
    no_worker,
    lost_record,
    quarantined,
    cluster_down,
    git_down,
    registry_down,
    stuck_deletion,
    slack_refuses,
    failing,
    suggestion_crash,
    search_lost,
    diagnosed,
    build_without_pod,
    mlflow_down,
    waiting_for_people,
)


def waits_for(facts: SweepFacts) -> str:
    """Return what a sweep without trouble waits for."""
    record = facts.known
    if record is None:
        return "unknown"
    if record.phase.final:
        return f"No trouble found: the sweep ended ({phase_name(record.phase)})."
    done = {
        Phase.RECEIVED: "its branch and space file are being checked",
        Phase.OPENING: "its thread is being opened",
        Phase.BUILDING: "its image is being built",
        Phase.PENDING: "the first trial is starting",
        Phase.STOPPING: "its pods are being deleted",
    }
    progress = record.progress
    running = f"{counted(progress.running, 'trial')} running, {progress.finished} finished"
    words = done.get(record.phase, running)
    return f"No trouble found: {words}."


def _kubectl(verb: str, obj: ObjectFacts) -> str:
    kind = obj.kind.split()[-1].lower()  # a suggestion pod is a pod
    return f"kubectl -n {obj.namespace} {verb} {kind} {obj.name}"


def _named(obj: ObjectFacts) -> str:
    return f"{obj.kind} {obj.name}"
