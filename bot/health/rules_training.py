"""Signatures 13 to 23: why a first trial that came to train does not do well. Pure.

Numbers and order are those of the table in `bot.health.rules`. A log that tells of trouble counts when the
training has ended by it; what a hung or useless training prints counts while it runs, too.
"""

import math
import re
from datetime import timedelta

from bot.health.diagnosis import Diagnosis
from bot.health.evidence import TrialEvidence
from bot.health.rules_admission import ADMIN, PATIENCE
from k8s.katib.spec import MAIN
from k8s.objects import Manifest, parse_time, true_conditions
from k8s.pods import COLLECTORS

DELETED = timedelta(minutes=2)  # after its grace, which deletionTimestamp includes: its node is dead
OUT_OF_GPU = r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
BLIND = (
    r"no CUDA-capable device|driver version is insufficient|driver on your system is too old"
    r"|Found no NVIDIA driver|No CUDA GPUs are available|Torch not compiled with CUDA"
    r"|cuda\.is_available((?!True).){0,40}False"
)
NO_CUDA = rf"{BLIND}|libcuda\.so|no kernel image is available|nvidia-smi: (command )?not found"
NO_DB = r"ReportObservationLog|InactiveRpcError|:6789"
HUNG = r"Watchdog caught collective operation timeout"
NCCL = rf"NCCL (WARN|error)|{HUNG}"
NAN = r"(?i)loss[^a-z]{0,6}nan\b|loss (is|became|was) nan"
DENIED = r"PermissionError|Permission denied|Read-only file system"
LOADER = (
    r"DataLoader worker .{0,200}killed by signal: (Killed|Bus error)"
    r"|Unexpected bus error encountered in worker"
)
SIZE = r"total capac\w{1,9} of ([\d.]{1,12} [GM]iB)|([\d.]{1,12} [GM]iB) total capacity"
PLACE = r"(?i)(epoch|iter\w{0,20}|step)\W{0,3}(\d{1,12})"
# kubelet, pkg/kubelet/eviction/eviction_manager.go: of a container, of the pod, and of a volume in the pod
OVER_DISK = (
    r'exceeded its local ephemeral storage limit "([^"]{1,40})"'
    r"|exceeds the total limit of containers (\w{1,40})"
    r'|EmptyDir volume "[^"]{1,63}" exceeds the limit "([^"]{1,40})"'
)
BY_NODE = {"Evicted", "Preempting", "Preempted", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity"}


def out_of_memory(evidence: TrialEvidence) -> Diagnosis | None:
    """14. The machine's memory, not the GPU's. A killed child leaves its own words and no OOMKilled."""
    over = evidence.exit or {}
    if over.get("reason") == "OOMKilled":
        limit = _limits(evidence).get("memory", "")
        what = f"its limit of {limit}" if limit else "the node's"
        text = f"The training ran out of memory (the machine's, not the GPU's): {what} was too small."
        return evidence.found(
            "memory", text, "Use fewer data-loader workers, or a smaller data set in memory.", evidence.tail
        )
    line = evidence.line(LOADER)
    if not over.get("exitCode") or not line:
        return None
    fix = "Use fewer data-loader workers (`num_workers`)."
    if "us error" in line:
        return evidence.found("shared-memory", "A data loader ran out of shared memory.", fix, evidence.tail)
    text = "A data loader was killed: the training ran out of memory (the machine's, not the GPU's)."
    return evidence.found("memory", text, fix, evidence.tail)


def evicted(evidence: TrialEvidence) -> Diagnosis | None:
    """15. Nobody's fault, unless it filled the node's disk. Disrupted pods are made again by their Job."""
    reason, message = evidence.status.get("reason", ""), evidence.status.get("message", "")
    if reason == "DeadlineExceeded":
        return _over_time(evidence)
    if not evidence.disrupted and (evidence.status.get("phase") != "Failed" or reason not in BY_NODE):
        return None
    words = message or evidence.disrupted
    again = "Kubernetes starts it again." if evidence.disrupted else "Start the sweep again."
    if over := re.search(OVER_DISK, words):
        limit = next(filter(None, over.groups()))
        text = f"The trial wrote more than its limit of {limit} to the container's disk."
        fix = "Write less there, or ask an admin for a higher limit of ephemeral-storage."
        return evidence.found("disk-limit", text, fix, words)
    if "ephemeral" in words:  # no wait: the next pod fills it, too
        text = "The node ended its pod: its disk was full."
        return evidence.found("disk", text, f"Write less to the container's disk. {again}", words)
    text = "The node ended its pod. It is not your code."
    if "preempt" in words.lower():
        text = "Its pod had to make room for a more important one. It is not your code."
    return evidence.found("evicted", text, again, words, soft=bool(evidence.disrupted))


def _over_time(evidence: TrialEvidence) -> Diagnosis:
    """By `trial_hours:`, not by the node's own needs."""
    hours = (evidence.pod or {})["spec"]["activeDeadlineSeconds"] / 3600
    text = f"It was ended after {hours:.3g} hours, the most that a trial of this space may take."
    fix = "Train for less time, or raise `trial_hours:` under `trials:` in the space file."
    return evidence.found("over-time", text, fix, evidence.tail)


def out_of_gpu_memory(evidence: TrialEvidence) -> Diagnosis | None:
    """16. The parameters tell what was too large."""
    line = evidence.line(OUT_OF_GPU)
    if not line or not _failed(evidence):
        return None
    size = re.search(SIZE, line)
    room = f" of {size[1] or size[2]}" if size else ""
    fix = "Keep the batch size or the model smaller in the space file."
    return evidence.found(
        "gpu-memory", f"The GPU's memory{room} was too small for this trial.", fix, evidence.tail
    )


def no_cuda(evidence: TrialEvidence) -> Diagnosis | None:
    """17. The container sees no GPU, or the image and the node's driver do not go together.

    Many a training says so and goes on without; one that asked for no GPU has no trouble by that.
    """
    line = evidence.line(NO_CUDA if _failed(evidence) else BLIND)
    if not line or (not evidence.gpus and "Error" not in line):
        return None
    text = "The training found no GPU that it can use"
    if "insufficient" in line or "too old" in line or "no kernel image" in line:
        text = "The image's CUDA version and the node's GPU or driver don't go together"
    text += "." if _failed(evidence) else "; it runs on without."
    fix = "Build on an image with CUDA for this driver; does the command need a GPU (`gpus=`)?"
    fix = f"{fix} If all that fits: {ADMIN[0].lower()}{ADMIN[1:]}"
    return evidence.found("cuda", text, fix, evidence.tail, lasting=True)


def nccl(evidence: TrialEvidence) -> Diagnosis | None:
    """18. The GPUs of one training do not reach each other. A warning alone may be harmless."""
    line = evidence.line(NCCL if _failed(evidence) else HUNG)
    if not line:
        return None
    text = "The training's GPUs stopped talking to each other (NCCL)."
    if re.search(HUNG, line):
        text = "The training hung: one of its GPUs never came to a step that all do together (NCCL)."
    fix = "`NCCL_DEBUG=INFO` in the training's environment shows where; does it work with `gpus=1`?"
    return evidence.found("nccl", text, fix, evidence.tail, lasting=True)


def not_a_number(evidence: TrialEvidence) -> Diagnosis | None:
    """19. Katib keeps NaN and infinity as values, so the trial may count as a success."""
    line, reported = evidence.line(NAN), not_finite(evidence.trial, evidence.metric)
    if not line and not reported:
        return None
    places = re.findall(PLACE, line)
    step = max(places, key=lambda place: place[0].lower(), default=None)  # a step is finer than an epoch
    where = f" at {step[0].lower()} {step[1]}" if step else ""
    text = f"`{evidence.metric}` is {reported}." if not line else f"The loss became NaN{where}."
    fix = "Often the learning rate is too large: keep it smaller in the space file."
    return evidence.found("nan", text, fix, evidence.tail, lasting=True)


def no_collector(evidence: TrialEvidence) -> Diagnosis | None:
    """20. Without the label on its namespace Katib reads no trial's metrics, ever (katib#1182)."""
    if evidence.pod is None or {c["name"] for c in evidence.pod["spec"]["containers"]} & COLLECTORS:
        return None
    namespace = evidence.pod["metadata"]["namespace"]
    label = "katib.kubeflow.org/metrics-collector-injection=enabled"
    text = f"Katib reads no metrics in the namespace `{namespace}`, so every trial will count as failed."
    run = f"`kubectl label namespace {namespace} {label}`"
    fix = f"An administrator has to run {run}, or to see why Katib's webhook was away."
    return evidence.found("no-collector", text, fix, lasting=True)


def no_metrics(evidence: TrialEvidence) -> Diagnosis | None:
    """20. The collector looks for TensorBoard scalars whose tag starts with the metric's name."""
    if "MetricsUnavailable" not in true_conditions(evidence.trial or {}):
        return None
    text = (
        f"It ended well, but wrote no TensorBoard scalar named {evidence.metric} into the folder given as "
        "--tensorboard_dir, so it counts as failed."
    )
    fix = f'Write it with `SummaryWriter(args.tensorboard_dir).add_scalar("{evidence.metric}", value, step)`.'
    return evidence.found("no-metrics", text, fix, "\n".join(evidence.log.splitlines()[-5:]))


def collector(evidence: TrialEvidence) -> Diagnosis | None:
    """21. The training ended well and its metrics collector did not. When both failed, blame the training."""
    ended, over = evidence.exit, evidence.collector_exit
    if evidence.abandoned and (evidence.running or (ended and not ended["exitCode"])):
        return _abandoned(evidence)
    if not over or not over["exitCode"] or (ended is None or ended["exitCode"]):
        return None
    text = f"The training ended well, but its metrics collector with exit code {over['exitCode']}."
    if re.search(NO_DB, evidence.collector_log):
        text = "The training ended well, but its metrics collector can't reach Katib's database."
    return evidence.found("collector", text, ADMIN, evidence.collector_log or over.get("message", ""))


def _abandoned(evidence: TrialEvidence) -> Diagnosis:
    """A pod in which the image came late, and that was not restarted any more, or not in time."""
    text = "Its image couldn't be pulled at first, and Katib's metrics collector gave up before the training "
    text += "started, so its results are lost."
    pulls = (e["message"] for e in reversed(evidence.events) if "ailed to pull" in e.get("message", ""))
    fix = "Find out why the node couldn't pull the image, then rerun the sweep."
    return evidence.found("abandoned", text, fix, next(pulls, evidence.collector_log))


def unreported(evidence: TrialEvidence) -> Diagnosis | None:
    """22. The training is over and Katib has heard no metric; it would wait for ever (katib#1795)."""
    complete = true_conditions(evidence.job or {}).get("Complete")
    if complete is None or evidence.ended_badly or _done(evidence):
        return None
    text = (
        "It ended well, but Katib has received none of its metrics; its metrics collector or its database "
        "may be down. I end such a trial after ten minutes."
    )
    at = parse_time((evidence.job or {})["status"].get("completionTime"))
    at = at and at + timedelta(seconds=PATIENCE)
    return evidence.found("unreported", text, ADMIN, evidence.collector_log, tell_at=at)


def dead_node(evidence: TrialEvidence) -> Diagnosis | None:
    """23. Nothing is heard of the node; for minutes its pods look as if they ran, or were being made."""
    if evidence.pod is None or evidence.status.get("phase") in {"Succeeded", "Failed"}:
        return None
    name = evidence.pod["spec"].get("nodeName", "")
    node = next((n for n in evidence.nodes if n["metadata"]["name"] == name), {})
    ready: Manifest = next(
        (c for c in node.get("status", {}).get("conditions") or () if c["type"] == "Ready"), {}
    )
    event = None if ready else evidence.last("NodeNotReady")  # without the right to see nodes
    gone = ready.get("status", "True") != "True" or evidence.status.get("reason") == "NodeLost"
    if not (gone or event or _long_deleted(evidence)):
        return None
    words = ready.get("message") or (event or evidence.status).get("message", "")
    text = f"Nothing is heard of its node `{name}` any more."
    # A Job with a podFailurePolicy replaces a pod that has failed, and only its node says that it has.
    fix = f"Until an administrator brings `{name}` back or removes it, the trial starts nowhere else."
    return evidence.found("node", text, fix, words)


def crash(evidence: TrialEvidence) -> Diagnosis | None:
    """13. Whatever else ended the training; so it comes last, or it would hide the others."""
    reason, message = evidence.waiting
    over = evidence.exit or {}
    if reason == "CrashLoopBackOff" or over.get("exitCode"):
        text, fix = _exit_words(over.get("exitCode", 0)), "Run its command on your machine to see more."
        if (user := _user(evidence)) and evidence.line(DENIED):
            fix = f"The training runs as user {user}, not as root: write below /tmp or on a volume that this "
            fix += "user may write to. An admin can set another user (`trials: user:`, docs/security.md)."
        return evidence.found("crash", text, fix, evidence.tail or over.get("message") or message)
    if evidence.status.get("phase") == "Failed" and not evidence.disrupted:
        text = (
            f"The node ended or refused its pod ({evidence.status.get('reason') or 'it does not say why'})."
        )
        return evidence.found("crash", text, ADMIN, evidence.status.get("message", ""))
    failed = true_conditions(evidence.trial or {}).get("Failed")
    if failed and not evidence.pod:
        return evidence.found(
            "crash", "Katib says that it failed; its pod is gone.", "", failed.get("message", "")
        )
    return None


def _exit_words(code: int) -> str:
    if code > 128:
        return f"The training was ended by signal {code - 128} (exit code {code})."
    return f"The training ended with exit code {code}."


def _failed(evidence: TrialEvidence) -> bool:
    return bool((evidence.exit or {}).get("exitCode"))


def _user(evidence: TrialEvidence) -> int:
    """0: the image's."""
    containers = evidence.pod["spec"]["containers"] if evidence.pod else ()
    main: Manifest = next((c for c in containers if c["name"] == MAIN), {})
    return int(main.get("securityContext", {}).get("runAsUser", 0))


def _done(evidence: TrialEvidence) -> bool:
    return bool({"Succeeded", "Killed", "EarlyStopped"} & true_conditions(evidence.trial or {}).keys())


def _limits(evidence: TrialEvidence) -> dict[str, str]:
    containers = evidence.pod["spec"]["containers"] if evidence.pod else ()
    return next((c.get("resources", {}).get("limits", {}) for c in containers if c["name"] == MAIN), {})


def not_finite(trial: Manifest | None, metric: str) -> str:
    """What the metric of a trial is instead of a number; empty when it is one, or unknown."""
    observation = (trial or {}).get("status", {}).get("observation") or {}
    for latest in (m.get("latest", "") for m in observation.get("metrics") or () if m["name"] == metric):
        try:
            value = float(latest)
        except ValueError:  # "unavailable"
            continue
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "infinite"
    return ""


def _long_deleted(evidence: TrialEvidence) -> bool:
    at = parse_time((evidence.pod or {})["metadata"].get("deletionTimestamp"))
    return at is not None and evidence.now - at > DELETED
