"""Rules R13 to R22, R24, R33, and R34: why a first trial that started training fails or hangs, and its fix:
RAM (eviction, too), disk, GPU memory, CUDA, NCCL, NaN, metrics, time limit, crash,
a deleted pod. Pure.

An error in the log counts once the training has failed, because a training can catch it; the signs of a hung
or useless training count while it runs, too.
"""

import re
from collections import Counter
from datetime import timedelta
from difflib import get_close_matches

from bot.core.space import MetricSource
from bot.platform.pod_health.diagnosis import Diagnosis
from bot.platform.pod_health.evidence import LAST_SIGNAL, LOST, OVER_DISK, TrialEvidence
from bot.platform.pod_health.rules_admission import ADMIN, WAIT_GRACE
from bot.platform.pod_health.rules_startup import DEAD_NODE
from bot.sweep.features.health.crash_fixes import crash_fix
from bot.sweep.spaces.metrics import OTHER_WAY, QUOTE, TAG_RULE, WRAPPER, metric_objection
from bot.text.wording import did_you_mean, listed
from k8s.engine import TrialState
from k8s.jobs import JobState, read_job
from k8s.katib.training import COLLECTOR_VARIABLE, INJECTION_LABEL
from k8s.objects import Manifest
from k8s.pods import read_trial_pod
from k8s.quantities import amount

OUT_OF_GPU = (
    r"(CUDA|HIP) (error: )?out of memory|(?<!java\.lang\.)OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
    r"|OOM when allocating tensor|RESOURCE_EXHAUSTED: (Out of memory|Failed to allocate)"
    r"|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure .{0,20}out of memory"
    r"|cudaErrorMemoryAllocation|\[CUDA\] out of memory"  # XGBoost, LightGBM
)
GPU_MISSING = (
    r"no CUDA-capable device|driver version is insufficient|driver on your system is too old"
    r"|Found no NVIDIA driver|No CUDA GPUs are available|Torch not compiled with CUDA"
    r"|cuda\.is_available((?!True).){0,40}False"
)
NO_CUDA = rf"{GPU_MISSING}|libcuda\.so|no kernel image is available|nvidia-smi: (command )?not found"
NO_DB = r"ReportObservationLog|InactiveRpcError|:6789|report the metrics to Katib"
BUFFERED = "TensorBoard file is still empty"  # reader/__main__.py
LATE = r"[Uu]nable to find main pid"  # of Katib's collectors: common/pns.go, pns.py
HUNG = r"Watchdog caught collective operation timeout"
NCCL = rf"NCCL (WARN|error)|{HUNG}"
# Lightning logs a loss by step and by epoch; `loss_nan` is an option.
NAN = rf"(?i)loss(_step|_epoch)?[^a-z_]{{0,6}}{WRAPPER}nan\b|loss (is|became|was) nan"
DENIED = r"PermissionError|Permission denied|Read-only file system"
LOADER = (
    r"DataLoader worker .{0,200}killed by signal: (Killed|Bus error)"
    r"|Unexpected bus error encountered in worker"
)
GPU_MEMORY_SIZE = r"total capac\w{1,9} of ([\d.]{1,12} [GM]iB)|([\d.]{1,12} [GM]iB) total capacity"
# A metric in a line of the output, and in one of the reader (reader/series.py).
PRINTED = rf"(?<![\w./-])([A-Za-z_][\w./-]{{0,99}}){QUOTE}\s?[:=]\s?{QUOTE}{WRAPPER}[+-]?\.?\d"
LOGGED = r'(?m)^{"metric": "([\w./ ()-]{1,100})"(?:, "tag": "([\w./ ()-]{1,100})")?'
MIXED = r'(?m)^{"metric": "%s", .{0,16000}"mixed": (\[.{0,2000}\])}$'
MAX_REPORTED = 12  # names that are listed
PLACE = r"(?i)(epoch|iter\w{0,20}|step)\W{0,3}(\d{1,12})"
STOPPED = {137, 143}  # exit codes after SIGKILL and SIGTERM
BY_NODE = {"Evicted", "Preempting", "Preempted", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity"}
OVER_TIME = "over-time"  # key
# kubelet, pkg/kubelet/eviction/helpers.go: it lists the containers that use more than they request
USED_MEMORY = r"Container (\S{1,63}) was using (\d{1,15}(?:[KMG]i)?),"


def out_of_memory(evidence: TrialEvidence) -> Diagnosis | None:
    """R14: out of RAM. A killed data-loader worker leaves a log line and no OOMKilled."""
    over = evidence.exit or {}
    if over.get("reason") == "OOMKilled":
        limit = _main(evidence).get("resources", {}).get("limits", {}).get("memory", "")
        what = f"the container hit its {limit} limit" if limit else "the node ran out"
        text = f"Out of memory (RAM, not GPU): {what}."
        fix = "Use fewer data-loader workers or keep less data in memory."
        return evidence.found("memory", text, fix, evidence.tail)
    line = evidence.failed_with(LOADER)
    if not over.get("exitCode") or not line:
        return None
    fix = "Use fewer data-loader workers (`num_workers`)."
    if "us error" in line:
        return evidence.from_log("shared-memory", "A data-loader worker ran out of shared memory.", fix)
    text = "Out of memory (RAM, not GPU): a data-loader worker was killed."
    return evidence.from_log("memory", text, fix)


def evicted(evidence: TrialEvidence) -> Diagnosis | None:
    """R15: evicted, preempted, or over a limit. The Job replaces disrupted pods."""
    reason, message = evidence.status.get("reason", ""), evidence.status.get("message", "")
    if reason == "DeadlineExceeded":
        return _over_time(evidence)
    if not evidence.disrupted and (evidence.status.get("phase") != "Failed" or reason not in BY_NODE):
        return None
    words = message or evidence.disrupted
    disrupted = evidence.replaced
    if over := re.search(OVER_DISK, words):
        limit = next(filter(None, over.groups()))
        text = f"The trial exceeded its limit of {limit} for the container's disk."
        fix = "Write less to the container's disk, or ask an admin for a higher ephemeral-storage limit."
        return evidence.found("disk-limit", text, fix, words)
    if "ephemeral" in words:  # not soft: the next pod fills the disk, too
        text = "The node evicted the pod: the disk is full."
        fix = f"Write less to the container's disk{'' if disrupted else ', then start the sweep again'}."
        return evidence.found("disk", text, fix, words)
    used = dict(re.findall(USED_MEMORY, words)).get(evidence.container)
    if used and "low on resource: memory" in words:  # not soft: the next pod uses as much
        size = f"{float(amount(used) / 2**30):.4g} GiB"
        text = f"The node ran out of memory (RAM), and the training used {size}, more than it requests."
        fix = "Use fewer data-loader workers, keep less data in memory, or ask an admin for a higher request."
        return evidence.found("memory", text, fix, words)
    text = "The node terminated the pod. This isn't caused by your code."
    if evidence.disrupted.startswith("EvictionByEvictionAPI"):
        text = "The pod was evicted, as when a node is drained. This isn't caused by your code."
    elif "preempt" in words.lower():
        text = "The pod was preempted by a higher-priority one. This isn't caused by your code."
    fix = "None needed; Kubernetes restarts the trial." if disrupted else "Start the sweep again."
    return evidence.found("evicted", text, fix, words, soft=disrupted)


def _over_time(evidence: TrialEvidence) -> Diagnosis:
    hours = timedelta(seconds=(evidence.pod or {})["spec"]["activeDeadlineSeconds"]) / timedelta(hours=1)
    text = f"The trial reached its time limit of {hours:.4g} h."
    fix = (
        "Shorten the training, or raise `trial_hours:` under `trials:` in the space file, up to the "
        "cluster's "
    )
    fix += "limit."
    return evidence.found(OVER_TIME, text, fix, evidence.tail)


def out_of_gpu_memory(evidence: TrialEvidence) -> Diagnosis | None:
    """R16: out of GPU memory."""
    line = evidence.failed_with(OUT_OF_GPU)
    if not line or not failed(evidence):
        return None
    size = re.search(GPU_MEMORY_SIZE, line)
    room = f" ({size[1] or size[2]})" if size else ""
    fix = "Limit the batch size or model size in the space file."
    return evidence.from_log("gpu-memory", f"Out of GPU memory{room}.", fix)


def no_cuda(evidence: TrialEvidence) -> Diagnosis | None:
    """R17: the container sees no GPU, or the image doesn't fit the node's driver.

    Many trainings print this and continue on the CPU, which is right for a trial that requested no GPU.
    """
    line = evidence.failed_with(NO_CUDA) if failed(evidence) else evidence.line(GPU_MISSING)
    if not line or (not evidence.gpus and "Error" not in line):
        return None
    text = "The training found no usable GPU"
    if not failed(evidence):
        text += " and continues on the CPU"
    if "insufficient" in line or "too old" in line or "no kernel image" in line:
        text = "The image's CUDA version isn't compatible with the node's GPU or driver"
    fix = (
        "Use a base image whose CUDA version matches the driver, and set `gpus=` if the command needs a GPU. "
    )
    fix += "If that doesn't help, ask an admin to check the node's driver."
    return evidence.from_log("cuda", f"{text}.", fix, lasting=True)


def nccl(evidence: TrialEvidence) -> Diagnosis | None:
    """R18: the GPUs of one training can't communicate. A warning without a failure can be harmless."""
    line = evidence.failed_with(NCCL) if failed(evidence) else evidence.line(HUNG)
    if not line:
        return None
    text = "GPU communication failed (NCCL)."
    if re.search(HUNG, line):
        text = "The training hung: one GPU never reached a collective operation (NCCL timeout)."
    fewer = "nodes" if evidence.workers > 1 else "gpus"
    fix = f"Set `NCCL_DEBUG=INFO` to see where, and try `{fewer}=1`."
    return evidence.from_log("nccl", text, fix, lasting=True)


def not_a_number(evidence: TrialEvidence) -> Diagnosis | None:
    """R19: the loss is not finite. Katib stores such values, so the trial can count as succeeded."""
    line, reported = evidence.line(NAN), evidence.trial.not_finite if evidence.trial else ""
    if failed(evidence) and evidence.cause.text and not evidence.failed_with(r"(?i)\bnan"):
        line = ""  # the training survived it
    if not line and not reported:
        return None
    places = re.findall(PLACE, line)
    step = max(places, key=lambda place: place[0].lower(), default=None)  # a step is finer than an epoch
    where = f" at {step[0].lower()} {step[1]}" if step else ""
    text = f"`{evidence.metric}` is {reported}." if not line else f"The loss became NaN{where}."
    fix = "Lower the learning rate's `max` in the space file; a high learning rate is the usual cause."
    return evidence.found("nan", text, fix, evidence.tail, lasting=True)


def no_collector(evidence: TrialEvidence) -> Diagnosis | None:
    """R24: without a label on the namespace, Katib collects no metrics in it (katib#1182)."""
    if evidence.pod is None or evidence.source is MetricSource.PUSH or evidence.index:
        return None
    if evidence.collector:
        return None
    namespace = evidence.pod["metadata"]["namespace"]
    text = f"Katib doesn't collect metrics in namespace `{namespace}`, so every trial will count as failed."
    run = f"`kubectl label namespace {namespace} {INJECTION_LABEL}=enabled`"
    fix = f"Ask an admin to run {run} and check Katib's webhook."
    return evidence.found("no-collector", text, fix, lasting=True)


def buffered(evidence: TrialEvidence) -> Diagnosis | None:
    """R33: values come late, because the writer of the event file keeps them in memory."""
    said = evidence.collector_log.strip().rpartition("\n")[2]  # once there are values, they are the last line
    if not evidence.running or BUFFERED not in said:
        return None
    text = "Its TensorBoard file is still empty, so live values are late: tensorboardX writes after 120 s."
    fix = "`SummaryWriter(args.tensorboard_dir, flush_secs=10)`. The training itself isn't affected."
    return evidence.found("buffered", text, fix)


def mixed(evidence: TrialEvidence) -> Diagnosis | None:
    """R34: training and validation, for example, write the objective's tag in a directory each."""
    found = re.findall(MIXED % re.escape(evidence.metric), evidence.collector_log)
    if not found:
        return None
    names = re.findall(r'"((?:[^"\\]|\\.)*)"', found[-1].replace("`", "'"))
    places = listed(f"`{name[:100]}`" if name else "`--tensorboard_dir` itself" for name in names)
    text = f"Several directories have the TensorBoard tag `{evidence.metric}` at once: {places}."
    text += " Their values are mixed, so a trial's value isn't that of one of them."
    fix = "Write the values that count by a tag of their own, or print them and set `metrics: stdout`."
    return evidence.found("mixed", text, fix, lasting=True)


def no_metrics(evidence: TrialEvidence) -> Diagnosis | None:
    """R20: the source of the metrics had none of the objective's name."""
    if evidence.trial is None or evidence.trial.state is not TrialState.NO_METRICS:
        return None
    if (evidence.collector_exit or {}).get("exitCode"):  # the reader's, which doesn't fail the pod
        return None
    missing, fix = _missing_metric(evidence)
    text = f"The trial finished but {missing}, so it counts as failed."
    fix += " If the training reports another metric, start the sweep with it: `metric=NAME goal=minimize`."
    reported = _reported(evidence)
    refused = [each for each in reported if metric_objection(each, evidence.source)]
    fix += did_you_mean(evidence.metric, [each for each in reported if each not in refused])
    for tag in get_close_matches(evidence.metric, refused, n=1, cutoff=0):
        fix += f" `{tag}` can't be the metric, which must be {TAG_RULE}. {OTHER_WAY}"
    return evidence.found("no-metrics", text, fix, "\n".join(evidence.log.splitlines()[-5:]))


def _reported(evidence: TrialEvidence) -> list[str]:
    """Return names of other metrics, the last ones first: of the printed lines, or from the reader's log."""
    found = re.findall(PRINTED, evidence.log) if evidence.source is MetricSource.STDOUT else []
    tags = {name: tag or name for name, tag in re.findall(LOGGED, evidence.collector_log)}
    times = Counter(tags.values())  # Keras has one tag in directories for training and validation
    found += (tag if times[tag] == 1 else name for name, tag in tags.items())
    return [*dict.fromkeys(reversed(found))][:MAX_REPORTED]


def _missing_metric(evidence: TrialEvidence) -> tuple[str, str]:
    """Return what the training didn't do, and the fix."""
    metric = evidence.metric
    lines = f'`{metric}=0.1`, `{metric}: 0.1`, or `{{"{metric}": 0.1}}`'
    match evidence.source:
        case MetricSource.STDOUT:
            fix = f'Print it, for example `print(f"{metric}={{value}}")`, or set another source (`metrics:`).'
            return f"printed no line with {lines}", fix
        case MetricSource.FILE:
            fix = "Write such a line, flush the file, and check `metrics: path:`."
            return f"wrote no line with {lines} to `{evidence.metrics_path}`", fix
        case MetricSource.PUSH:
            fix = f'Call `kubeflow.katib.report_metrics({{"{metric}": value}})` in the training.'
            return f"pushed no metric `{metric}` to Katib", fix
        case MetricSource.TENSORBOARD:
            fix = f'Write it with `SummaryWriter(args.tensorboard_dir).add_scalar("{metric}", value, step)`.'
            return f"wrote no TensorBoard scalar `{metric}` to `--tensorboard_dir`", fix


def collector(evidence: TrialEvidence) -> Diagnosis | None:
    """R21: the metrics collector failed. If the training failed too, R13 to R19 explain it."""
    ended, over = evidence.exit, evidence.collector_exit
    if evidence.abandoned and (evidence.running or (ended and not ended["exitCode"])):
        return _abandoned(evidence)
    if not over or not over["exitCode"] or (ended is None or ended["exitCode"]):
        return None
    text = f"The training finished, but its metrics collector failed (exit code {over['exitCode']})."
    if re.search(LATE, evidence.collector_log):
        text = "The training finished before Katib's metrics collector had started, so its metrics are lost."
        fix = "Rerun the sweep. If it happens again, ask an admin to raise the CPU limit of the collector in "
        fix += f"`katib-config`, or set `{COLLECTOR_VARIABLE}` in the image to more seconds (default: 60)."
        return evidence.found("late-collector", text, fix, evidence.collector_log)
    if re.search(NO_DB, evidence.collector_log):
        text = "The training finished, but its metrics collector can't reach Katib's database."
    return evidence.found("collector", text, ADMIN, evidence.collector_log or over.get("message", ""))


def _abandoned(evidence: TrialEvidence) -> Diagnosis:
    """Return the diagnosis of a pod whose image was pulled only after Katib's collector had failed.

    It is due later while the training runs: Sweepbot starts most of these trials again within seconds.
    """
    text = "The image couldn't be pulled at first, and Katib's metrics collector exited before the training "
    text += "started, so the trial's results are lost."
    pulls = (e["message"] for e in reversed(evidence.events) if "ailed to pull" in e.get("message", ""))
    fix = "Find out why the node couldn't pull the image, then rerun the sweep."
    since = read_trial_pod(evidence.pod).running_since if evidence.pod else None
    at = since and since + timedelta(seconds=WAIT_GRACE)
    return evidence.found("abandoned", text, fix, next(pulls, evidence.collector_log), report_at=at)


def unreported(evidence: TrialEvidence) -> Diagnosis | None:
    """R22: the training finished and Katib received no metric; Katib would wait forever (katib#1795)."""
    job = read_job(evidence.job) if evidence.job else None
    if job is None or job.state is not JobState.COMPLETE or evidence.trial_failed or _done(evidence):
        return None
    text = (
        "The trial finished, but Katib received no metrics; the metrics collector or Katib's database may be "
        "down. Sweepbot stops the trial 10 min after training ended."
    )
    at = job.ended and job.ended + timedelta(seconds=WAIT_GRACE)
    return evidence.found("unreported", text, ADMIN, evidence.collector_log, report_at=at)


def crash(evidence: TrialEvidence) -> Diagnosis | None:
    """R13: any other failure of the training. Last, because it matches what more precise rules explain."""
    reason, message = evidence.waiting
    over = evidence.exit or {}
    if over.get("reason") == LOST:
        text = (
            "The node restarted while the pod was running, or lost its container. Your code isn't the cause."
        )
        return evidence.found(DEAD_NODE, text, "Rerun the sweep for the lost trials.", evidence.tail)
    if over.get("exitCode") in STOPPED and evidence.pod and "deletionTimestamp" in evidence.pod["metadata"]:
        text = "The trial's pod was deleted, as by kubectl delete. Your code isn't the cause."
        return evidence.found("deleted", text, "Rerun the sweep for the lost trials.", evidence.tail)
    if reason == "CrashLoopBackOff" or over.get("exitCode"):
        text, fix = _exit_text(over.get("exitCode")), crash_fix(evidence)
        if (user := _user(evidence)) and re.search(DENIED, evidence.cause.line):
            fix = f"Write below /tmp or to a volume that user {user} can write to: the training runs as user "
            fix += f"{user}, not as root. An admin can change it (`trials: user:`, docs/security.md)."
        key = f"crash/{evidence.cause.kind}" if evidence.cause.kind else "crash"
        if evidence.log:
            return evidence.from_log(key, text, fix)
        return evidence.found(key, text, fix, over.get("message") or message)
    if evidence.status.get("phase") == "Failed" and not evidence.disrupted:
        text = (
            f"The node terminated or rejected the pod ({evidence.status.get('reason') or 'no reason given'})."
        )
        return evidence.found("crash", text, ADMIN, evidence.status.get("message", ""))
    trial = evidence.trial
    if trial and trial.state is TrialState.FAILED and not evidence.pod:
        return evidence.found("crash", "Katib reports a failure; the pod is gone.", "", trial.message)
    return None


def _exit_text(code: int | None) -> str:
    if code is None:  # of a restarting container whose previous state is gone
        return "The training failed repeatedly."
    if 128 < code <= 128 + LAST_SIGNAL:
        return f"The training was killed by signal {code - 128} (exit code {code})."
    return f"The training failed with exit code {code}."


def failed(evidence: TrialEvidence) -> bool:
    return bool((evidence.exit or {}).get("exitCode"))


def _user(evidence: TrialEvidence) -> int:
    """Return the user ID that the pod sets; 0 if it leaves it to the image."""
    return int(_main(evidence).get("securityContext", {}).get("runAsUser", 0))


def _main(evidence: TrialEvidence) -> Manifest:
    containers = evidence.pod["spec"]["containers"] if evidence.pod else ()
    return next((c for c in containers if c["name"] == evidence.container), {})


def _done(evidence: TrialEvidence) -> bool:
    """Return whether the trial ended otherwise than by a failure."""
    trial = evidence.trial
    return trial is not None and trial.state is not TrialState.LIVE and not trial.failed
