"""Why a sweep doesn't continue, and how to fix it: one table of rules, the first match counts. Pure.

In order of what hides what: without a record or a worker nothing else matters; a failing service explains
waiting objects; a problem of one object comes last.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from bot.core.events import EventKind, Progress
from bot.core.record import Phase
from bot.operator.facts import ObjectFacts, SweepFacts
from bot.operator.words import LOGS, NO_WORKER, Cause
from bot.text.wording import counted

SLOW = timedelta(minutes=1)  # after which a deletion, a wait for a worker, or a missing pod is a problem
POSTING_REFUSED = {
    "is_archived": "the channel is archived",
    "not_in_channel": "the bot isn't in the channel",
    "channel_not_found": "the channel is gone, or private without the bot",
    "restricted_action": "the channel's settings don't let the bot post",
}
BEFORE_RESULTS = {Phase.BUILDING, Phase.PENDING, Phase.RUNNING}  # bot.sweeps.reconciler opens MLflow then


Rule = Callable[[SweepFacts], Cause | None]


def find_cause(facts: SweepFacts) -> Cause:
    """Return the cause of the first rule that matches; without one, what the sweep waits for."""
    return next((found for rule in RULES if (found := rule(facts))), None) or Cause(waits_for(facts))


def age(since: datetime | timedelta, now: datetime) -> str:
    """`40 s`, `12 min`, `3 h`, `2 d`."""
    seconds = (now - since if isinstance(since, datetime) else since).total_seconds()
    for unit, size, least in (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 2)):
        if seconds >= size * least:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def phase_name(phase: Phase) -> str:
    """Return the phase in the words of messages; records store some older names."""
    return phase.name.lower()


def unreadable(facts: SweepFacts) -> Cause | None:
    if not facts.unreadable:
        return None
    return Cause(f"The record is unreadable: {facts.unreadable}.", "Finish the upgrade of all pods.")


def unknown(facts: SweepFacts) -> Cause | None:
    if facts.known or facts.cluster_error:
        return None
    return Cause(
        "Unknown sweep: Redis and the cluster have no record.",
        "Check the name with `sweepbot ps` or `/sweep admin ps`.",
    )


def lost_record(facts: SweepFacts) -> Cause | None:
    if facts.record or not facts.stored:
        return None
    phase, words = facts.stored.phase, phase_name(facts.stored.phase)
    if phase.final:
        return Cause(f"No trouble found: the sweep ended ({words}), and Redis no longer has its record.")
    return Cause(f"Redis lost the record; its ConfigMap has it ({words}).", "`sweepbot recover`")


def no_worker(facts: SweepFacts) -> Cause | None:
    late = facts.overdue
    if facts.has_worker and (late < SLOW or facts.item.failures):
        return None
    waits = f" The sweep has been due for {age(late, facts.now)}." if late >= SLOW else ""
    if facts.has_worker:
        return Cause(
            f"No worker has taken the sweep; all are busy or stuck.{waits}", f"{LOGS}; add replicas."
        )
    return Cause(f"{NO_WORKER.text}{waits}", NO_WORKER.fix)


def quarantined(facts: SweepFacts) -> Cause | None:
    held = facts.item.quarantine
    if held is None:
        return None
    text = f"Quarantined for {age(held.since, facts.now)}: {held.why}."
    fix = f"{LOGS} --previous; correct the cause, then `sweepbot release {facts.sweep}`."
    return Cause(text.replace("..", "."), fix)


def cluster_down(facts: SweepFacts) -> Cause | None:
    last = facts.error("kubernetes") if facts.item.failures else None
    words = facts.cluster_error or (last.text if last else "")
    if not words:
        return None
    if facts.cluster_refuses or "403" in words:
        fix = "`sweepbot doctor` prints the missing permission and the command that grants it."
        return Cause(f"The API server rejects a request: {words}.", fix)
    return Cause(f"The API server isn't working: {words}.", "`kubectl get --raw /readyz`; Sweepbot retries.")


def git_down(facts: SweepFacts) -> Cause | None:
    last = facts.error("git")
    if last is None or facts.phase is not Phase.RECEIVED:
        return None
    return Cause(f"The git host doesn't respond: {last.text}.", "`git ls-remote URL`; Sweepbot retries.")


def registry_down(facts: SweepFacts) -> Cause | None:
    last = facts.error("registry")
    if last is None or not facts.item.failures:
        return None
    fix = "`sweepbot doctor` (`registry`); Sweepbot retries."
    return Cause(f"The registry doesn't respond: {last.text}.", fix)


def slack_refuses(facts: SweepFacts) -> Cause | None:
    last = facts.error("slack")
    if last is None:
        return None
    code = last.text.rpartition(" ")[2]
    if why := POSTING_REFUSED.get(code):
        fix = "Unarchive the channel, or run `/invite @sweepbot` there. Messages rejected so far are lost."
        return Cause(f"Slack rejects messages: {why} ({last.text}).", fix)
    unsent = len(facts.record.outbox) if facts.record else 0
    if not (unsent or facts.item.failures):
        return None
    fix = "`sweepbot doctor` (`Slack token`); https://slack-status.com. Sweepbot retries."
    return Cause(f"Slack doesn't accept messages ({unsent} waiting): {last.text}.", fix)


def failing(facts: SweepFacts) -> Cause | None:
    if facts.item.failures and (last := facts.error(*(each.service for each in facts.errors))):
        times = counted(facts.item.failures, "time")
        return Cause(f"Failed {times} in a row: {last.text}.", f"{LOGS}; Sweepbot retries.")
    return None


def stuck_deletion(facts: SweepFacts) -> Cause | None:
    stuck = [each for each in facts.objects if each.deleted and facts.now - each.deleted > SLOW]
    blocked = next((each for each in stuck if each.finalizers), None)
    if blocked:
        names = ", ".join(blocked.finalizers)
        text = f"Cleanup waits for {_named(blocked)}: finalizer {names} has blocked its deletion"
        patch = """--type=merge -p '{"metadata":{"finalizers":null}}'"""
        command = f"`kubectl -n {blocked.namespace} patch {blocked.kind.lower()} {blocked.name} {patch}`"
        fix = f"Restart the controller that owns the finalizer. If it's gone: {command}"
        return Cause(f"{text} for {age(blocked.deleted or facts.now, facts.now)}.", fix)
    if stuck and facts.phase is Phase.STOPPING:
        since = age(stuck[0].deleted or facts.now, facts.now)
        fix = f"`kubectl -n {stuck[0].namespace} describe {stuck[0].kind.lower()} {stuck[0].name}`"
        return Cause(f"Cleanup has waited {since} for {_named(stuck[0])}.", f"Check its node: {fix}")
    return None


def suggestion_crash(facts: SweepFacts) -> Cause | None:
    if facts.phase not in {Phase.PENDING, Phase.RUNNING}:
        return None
    for pod in facts.objects:
        if pod.kind == "Suggestion pod" and any(word in pod.state for word in ("CrashLoop", "OOMKilled")):
            fix = "Raise its memory limit: docs/operate.md, The suggestion service is out of memory."
            return Cause(f"Katib's suggestion service is crashing, so no trial starts: {pod.state}.", fix)
    return None


def search_lost(facts: SweepFacts) -> Cause | None:
    record = facts.record
    if record is None or facts.phase is not Phase.RUNNING or record.draining:
        return None
    if f"{EventKind.SEARCH_LOST}/{record.attempt}" not in record.sent_keys:
        return None
    text = "Katib's suggestion service restarted and lost the search, so no new trial starts."
    return Cause(text, f"`/sweep drain {facts.sweep}`, then `/sweep rerun {facts.sweep}`")


def diagnosed(facts: SweepFacts) -> Cause | None:
    """A rule of bot.health explains a build or a trial that hasn't started, or failed."""
    found = sorted(facts.diagnoses, key=lambda each: each.soft)
    if not found:
        return None
    detail = f" ({found[0].detail.splitlines()[0]})" if found[0].detail.strip() else ""
    return Cause(f"{found[0].text}{detail}", found[0].fix)


def build_without_pod(facts: SweepFacts) -> Cause | None:
    if facts.phase is not Phase.BUILDING:
        return None
    for job in facts.objects:
        if job.kind == "Job" and job.state == "no pod" and job.created and facts.now - job.created > SLOW:
            text = (
                f"Build Job {job.name} has had no pod for {age(job.created, facts.now)}; no reason reported."
            )
            return Cause(
                text, f"`kubectl -n {job.namespace} describe job {job.name}`; check the Job controller."
            )
    return None


def mlflow_down(facts: SweepFacts) -> Cause | None:
    record, fault = facts.record, facts.fault("MLflow")
    if fault is None or record is None or record.results_url or record.phase not in BEFORE_RESULTS:
        return None
    text = f"MLflow isn't working: {fault.text}. The sweep continues without a link and live values."
    return Cause(text, fault.fix)


def waiting_for_people(facts: SweepFacts) -> Cause | None:
    if facts.record and facts.phase is Phase.HELD:
        fix = "Ask its owner to use `/sweep open`, `retry`, or `cancel`."
        return Cause(f"On hold, because the first trial failed: {facts.record.hold.splitlines()[0]}", fix)
    if facts.record and facts.phase is Phase.PAUSED:
        return Cause("Paused; no GPUs are allocated.", f"`/sweep resume {facts.sweep}`")
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
    words = done.get(record.phase) or _progress(record.progress)
    return f"No trouble found: {words}."


def _progress(progress: Progress) -> str:
    return f"{counted(progress.running, 'trial')} running, {progress.finished} finished"


def _named(obj: ObjectFacts) -> str:
    return f"{obj.kind} {obj.name}"
