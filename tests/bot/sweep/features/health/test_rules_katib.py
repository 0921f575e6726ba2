"""Rules for trials whose results get lost: Katib's metrics collector, its database, and dead nodes."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from bot.core.events import Progress
from bot.core.record import Phase
from bot.core.space import MetricSource
from bot.sweep.features.health.collect import EvidenceCollector
from bot.sweep.features.health.state import Health, HealthState, HealthStatus
from bot.sweep.spaces.metrics import OTHER_WAY, TAG_RULE
from k8s.objects import timestamp
from k8s.pods import read_trial_pod
from reader.__main__ import BUFFERED
from reader.events import Scalar
from reader.series import Metrics
from tests.bot.factories import NOW, PLAN, a_sweep
from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import (
    ADMIN,
    JOB,
    META,
    READ_TRIAL,
    TRIAL,
    a_pod,
    an_event,
    ended,
    expected,
    found,
    in_state,
    key,
    running,
    waiting,
)
from tests.bot.sweep.model.observations import OPEN

DONE = {"terminated": {"exitCode": 0}}


def of_trial(*types):
    return {**TRIAL, "status": {"conditions": [{"type": type_, "status": "True"} for type_ in types]}}


def with_collector(main, collector, name="metrics-collector", **status):
    """Return a pod with the states of both containers."""
    statuses = [{"name": "main", "state": main}, {"name": name, "state": collector}]
    return a_pod(containerStatuses=statuses, **{"phase": "Failed", **status})


def exited(code, message="", seconds=20):
    at = timestamp(NOW - timedelta(seconds=seconds))
    return {"terminated": {"exitCode": code, "message": message, "startedAt": at, "finishedAt": at}}


def test_no_collector_names_the_namespaces_label_unless_none_is_needed():
    pod = running()
    pod["spec"] = {**pod["spec"], "containers": [{"name": "main"}, {"name": "istio-proxy"}]}
    label = "katib.kubeflow.org/metrics-collector-injection=enabled"
    assert found(pod) == expected(
        "no-collector",
        "Katib doesn't collect metrics in namespace `sweeps`, so every trial will count as failed.",
        f"Ask an admin to run `kubectl label namespace sweeps {label}` and check Katib's webhook.",
        lasting=True,
    )
    pod = running()
    pod["spec"] = pod["spec"] | {"containers": [{"name": "main"}]}
    assert found(pod).key == "no-collector"
    assert found(pod, source=MetricSource.PUSH) is None
    assert found(with_reader(running(), **{"katib.kubeflow.org/trial": "t"})) is None
    assert found(with_reader(running())).key == "no-collector"


def test_no_metrics_shows_the_end_of_the_log():
    text = (
        "The trial finished but wrote no TensorBoard scalar `loss` to `--tensorboard_dir`, "
        "so it counts as failed."
    )
    fix = 'Write it with `SummaryWriter(args.tensorboard_dir).add_scalar("loss", value, step)`.'
    fix += " If the training reports another metric, start the sweep with it: `metric=NAME goal=minimize`."
    log = "\n".join(f"epoch {number}" for number in range(9))
    diagnosis = found(in_state(DONE), trial=of_trial("MetricsUnavailable"), log=log)
    shown = "epoch 4\nepoch 5\nepoch 6\nepoch 7\nepoch 8"
    assert diagnosis == expected("no-metrics", text, fix, shown, failed=True)


@pytest.mark.parametrize(
    ("source", "missing", "fix"),
    [
        (MetricSource.STDOUT, 'printed no line with `loss=0.1`, `loss: 0.1`, or `{"loss": 0.1}`', "Print it"),
        (MetricSource.FILE, "to `/logs/m.txt`, so it counts as failed", "check `metrics: path:`"),
        (MetricSource.PUSH, "pushed no metric `loss` to Katib", "kubeflow.katib.report_metrics"),
    ],
)
def test_no_metrics_names_the_source_that_brought_nothing_and_its_fix(source, missing, fix):
    known = {"source": source, "metrics_path": "/logs/m.txt"}
    diagnosis = found(in_state(DONE), trial=of_trial("MetricsUnavailable"), **known)
    assert diagnosis.key == "no-metrics"
    assert missing in diagnosis.text
    assert fix in diagnosis.fix


# What the reader prints of PyTorch Lightning's logger, of Hugging Face's Trainer, and of Keras' callback.
LIGHTNING = '{"metric": "lightning_logs/version_0/val_loss", "tag": "val_loss", "points": [[7, 1, 2, 1, 1]]}'
TRANSFORMERS = '{"metric": "eval/loss", "points": [[4, 0.4, 1.0, 0.4, 0.4]]}'
KERAS = '{"metric": "train/epoch_loss", "tag": "epoch_loss", "points": [[0, 1, 2.0, 1, 1]]}\n'
KERAS += '{"metric": "validation/epoch_loss", "tag": "epoch_loss", "points": [[0, 1, 2.0, 1, 1]]}'
NOT_A_METRIC = f"can't be the metric, which must be {TAG_RULE}. {OTHER_WAY}"


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (
            {"source": MetricSource.STDOUT, "log": "12:30:01 start\n{'eval_loss': '0.4', 'epoch': 1.0}"},
            "Did you mean eval_loss?",
        ),
        (
            {"source": MetricSource.STDOUT, "log": "lr: 0.1 at 12:30\nAcc=tensor(98.4)"},
            "Available: Acc and lr.",
        ),
        ({"source": MetricSource.STDOUT, "log": "step 9, loss 0.4"}, "goal=minimize`."),
        ({"collector_log": LIGHTNING}, "Did you mean val_loss?"),
        (
            {"collector_log": f"{LIGHTNING}\n{TRANSFORMERS}"},
            f"Did you mean val_loss? `eval/loss` {NOT_A_METRIC}",
        ),
        ({"collector_log": KERAS}, f"goal=minimize`. `train/epoch_loss` {NOT_A_METRIC}"),
    ],
)
def test_no_metrics_names_the_metrics_that_were_reported(known, hint):
    fix = found(in_state(DONE), trial=of_trial("MetricsUnavailable"), **known).fix
    assert fix.endswith(hint)


def with_reader(pod, **labels):
    spec = pod["spec"] | {"containers": [{"name": "main"}], "initContainers": [{"name": "metrics-reader"}]}
    meta = pod["metadata"]
    return {**pod, "metadata": {**meta, "labels": meta.get("labels", {}) | labels}, "spec": spec}


def test_reader_that_failed_or_restarts_is_told_from_missing_metrics():
    pod = with_reader(in_state(DONE), **{"katib.kubeflow.org/trial": "t"})
    pod["status"]["initContainerStatuses"] = [{"name": "metrics-reader", "state": exited(1)}]
    pod["status"]["phase"] = "Succeeded"
    why = "Can't report the metrics to Katib at katib-db-manager.kubeflow:6789: timed out"
    diagnosis = found(pod, trial=of_trial("MetricsUnavailable"), collector_log=why)
    text = "The training finished, but its metrics collector can't reach Katib's database."
    assert (diagnosis.key, diagnosis.text, diagnosis.detail) == ("collector", text, why)
    assert read_trial_pod(pod).init_failed == ""
    pod = with_reader(running(), **{"katib.kubeflow.org/trial": "t"})
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    pod["status"]["initContainerStatuses"] = [{"name": "metrics-reader", "state": state}]
    assert found(pod) is None
    pod = with_reader(running(), **{"katib.kubeflow.org/trial": "t"})
    diagnosis = found(pod, collector_log=f"{BUFFERED}\n")
    assert (diagnosis.key, "flush_secs=10" in diagnosis.fix) == ("buffered", True)
    assert found(pod, collector_log=f'{BUFFERED}\n{{"metric": "loss", "points": []}}') is None


def test_tag_that_directories_write_at_once_is_reported_while_the_trial_runs():
    pod = with_reader(running(), **{"katib.kubeflow.org/trial": "t"})
    metrics = Metrics(["loss"], [])
    for folder in ("", "lr=0.1,`a`", "validation"):
        metrics.add(folder, Scalar("loss", 1, 0.5, 1.0))
        metrics.add(folder, Scalar("loss", 2, 0.4, 2.0))
    diagnosis = found(pod, collector_log=f'{metrics.all[0].line()}\n{{"metric": "acc", "points": []}}')
    places = "at once: `--tensorboard_dir` itself, `lr=0.1,'a'`, and `validation`."
    assert (diagnosis.key, places in diagnosis.text) == ("mixed", True)


FINISHED = "The training finished, but its metrics collector"


@pytest.mark.parametrize(
    ("log", "text", "detail"),
    [
        (real_messages.NO_DB, f"{FINISHED} can't reach Katib's database.", real_messages.NO_DB),
        (real_messages.TRACEBACK, f"{FINISHED} failed (exit code 3).", real_messages.TRACEBACK),
        ("", f"{FINISHED} failed (exit code 3).", "of the runtime"),
    ],
)
@pytest.mark.parametrize("name", ["metrics-collector", "metrics-logger-and-collector"])
def test_collector_names_the_database_only_if_its_log_does(name, log, text, detail):
    pod = with_collector(DONE, exited(3, "of the runtime"), name)
    assert found(pod, collector_log=log) == expected("collector", text, ADMIN, detail, failed=True)


@pytest.mark.parametrize("log", real_messages.NO_MAIN_PID)
def test_collector_that_started_too_late_is_told_from_one_that_failed(log):
    diagnosis = found(with_collector(DONE, exited(1)), collector_log=log)
    assert diagnosis.key == "late-collector"
    assert "finished before Katib's metrics collector had started" in diagnosis.text
    assert "raise the CPU limit of the collector in `katib-config`" in diagnosis.fix
    assert diagnosis.detail == log


@pytest.mark.parametrize("main", [{"terminated": {"exitCode": 1, "reason": "Error"}}, {"running": {}}])
def test_collector_is_not_reported_unless_the_training_succeeded(main):
    pod = with_collector(main, exited(1), phase="Running")
    assert key(pod, log=real_messages.TRACEBACK) == ("crash" if "terminated" in main else None)
    assert key(with_collector(DONE, exited(0), phase="Succeeded")) is None


LATE_START = {"startedAt": timestamp(NOW - timedelta(seconds=10))}


@pytest.mark.parametrize("main", [{"running": LATE_START}, {"terminated": {"exitCode": 0, **LATE_START}}])
def test_collector_that_exited_before_a_late_pull_loses_the_results(main):
    failed = f"Failed to pull image: {real_messages.PULLS['image-dns']}"
    events = (
        an_event("Failed", "failed to pull before"),
        an_event("Failed", failed),
        an_event("Started", "x"),
    )
    diagnosis = found(with_collector(main, exited(1), phase="Running"), events=events)
    text = "The image couldn't be pulled at first, and Katib's metrics collector exited before the training "
    text += "started, so the trial's results are lost."
    fix = "Find out why the node couldn't pull the image, then rerun the sweep."
    due = 45 if "running" in main else None  # until then, Sweepbot can start it again
    assert diagnosis == expected("abandoned", text, fix, failed, due=due)
    assert found(with_collector(main, exited(1)), collector_log="no pid").detail == "no pid"


def test_failed_training_before_a_collector_or_on_a_dead_node_is_a_crash():
    late = {"terminated": {"exitCode": 1, **LATE_START}}
    assert key(with_collector(late, exited(1)), log=real_messages.TRACEBACK) == "crash"
    assert key(ended(1), nodes=(a_node(),)) == "crash"


def complete(seconds):
    at = timestamp(NOW - timedelta(seconds=seconds))
    return {**JOB, "status": {"conditions": [{"type": "Complete", "status": "True"}], "completionTime": at}}


def test_unreported_metrics_are_due_a_minute_after_the_job_of_each_kind():
    text = (
        "The trial finished, but Katib received no metrics; the metrics collector or Katib's database may be "
    )
    text += "down. Sweepbot stops the trial 10 min after training ended."
    pod = in_state(DONE, phase="Succeeded")
    diagnosis = found(pod, job=complete(20), collector_log="no answer")
    assert diagnosis == expected("unreported", text, ADMIN, "no answer", due=35)
    assert (
        found(pod, job={**complete(20), "status": {"conditions": [{"type": "Failed", "status": "True"}]}})
        is None
    )
    job = complete(20)
    job["status"]["conditions"] = [{"type": "Succeeded", "status": "True"}]
    assert found(in_state(DONE, phase="Succeeded"), job=job).key == "unreported"


@pytest.mark.parametrize("why", ["Succeeded", "Killed", "EarlyStopped", "Failed"])
def test_unreported_ends_with_the_trial(why):
    assert key(in_state(DONE, phase="Succeeded"), job=complete(90), trial=of_trial(why)) is None


def a_node(name="n1", status="Unknown", message=real_messages.NO_KUBELET):
    conditions = [
        {"type": "MemoryPressure", "status": "False", "message": "kubelet has sufficient memory"},
        {"type": "Ready", "status": status, "message": message},
    ]
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


DEAD = (
    "node",
    "Node `n1` isn't responding.",
    "Ask an admin to restore or remove `n1`; until then the trial can't restart elsewhere.",
)
NOT_READY = an_event("NodeNotReady", real_messages.NODE_NOT_READY)


@pytest.mark.parametrize(
    ("pod", "known", "words"),
    [
        (running(), {"nodes": (a_node("n0", "True"), a_node())}, real_messages.NO_KUBELET),
        (running(), {"nodes": (a_node(status="False"),)}, real_messages.NO_KUBELET),
        (waiting("ContainerCreating", ""), {"nodes": (a_node(),)}, real_messages.NO_KUBELET),
        (running(), {"events": (NOT_READY,)}, real_messages.NODE_NOT_READY),
        (running(reason="NodeLost", message="lost"), {}, "lost"),
        (running(reason="NodeLost"), {"nodes": (a_node(status="True", message="ready"),)}, "ready"),
        (running(), {"nodes": (a_node(),), "collector_log": BUFFERED}, real_messages.NO_KUBELET),
    ],
)
def test_dead_node_is_named(pod, known, words):
    assert found(pod, **known) == expected(*DEAD, words)


@pytest.mark.parametrize(
    ("pod", "known"),
    [
        (running(), {"nodes": (a_node(status="True"),)}),
        (running(), {"nodes": (a_node(status="True"),), "events": (NOT_READY,)}),
        (running(), {"nodes": (a_node("n2"),)}),
        (in_state(DONE, phase="Succeeded"), {"nodes": (a_node(),)}),
    ],
)
def test_dead_node_is_only_that_of_a_running_pod(pod, known):
    assert found(pod, **known) is None


@pytest.mark.parametrize(("shown", "causes"), [("t1", ["node"]), ("t2", [])])
@pytest.mark.parametrize("succeeded", [0, 1])
async def test_lost_trial_is_followed_until_its_node_is_ready(shown, causes, succeeded):
    """Its pod is Ready before that, and other trials have succeeded."""
    health = Health(status=HealthStatus.UNHEALTHY, key="node", text=DEAD[1], trial=shown)
    sweep = a_sweep(Phase.RUNNING, HealthState(shown=health), progress=Progress(succeeded=succeeded))

    async def listed(kind, *_, **__):
        return [a_node()] if kind == "Node" else []

    async def tail(*_, **__):
        return ""

    clients = SimpleNamespace(now=lambda: NOW, trials=SimpleNamespace(list=listed), tail=tail)
    collector = EvidenceCollector(sweep, PLAN, clients)
    labels = {"batch.kubernetes.io/job-name": "t1"}
    pod = running(conditions=[{"type": "Ready", "status": "True"}])
    pod |= {
        "metadata": META | {"labels": labels, "ownerReferences": [{"kind": "Job", "name": "t1", "uid": "u"}]}
    }
    await collector.run(OPEN, (READ_TRIAL(TRIAL),), [JOB], [pod])
    assert [each.key for each in collector.found] == causes


@pytest.mark.parametrize(("seconds", "cause"), [(119, None), (120, None), (121, "node")])
def test_dead_node_is_suspected_two_minutes_after_a_deletion(seconds, cause):
    pod = running()
    at = timestamp(NOW - timedelta(seconds=seconds))
    assert key({**pod, "metadata": {**META, "deletionTimestamp": at}}) == cause
