"""Rules for a training that started, by its exit, its log, and its metrics."""

import pytest

from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import (
    ADMIN,
    TRIAL,
    a_pod,
    ended,
    expected,
    found,
    in_state,
    key,
    running,
    waiting,
)
from tests.cases import cases


@cases(
    ("log", "cause"),
    [
        (real_messages.TRACEBACK, "crash"),
        (real_messages.SHM, "shared-memory"),
        (real_messages.KILLED_LOADER, "memory"),
        (real_messages.CUDA_OOM, "gpu-memory"),
        (real_messages.OLD_CUDA_OOM, "gpu-memory"),
        (real_messages.NO_DRIVER, "cuda"),
        (real_messages.OLD_DRIVER, "cuda"),
        (real_messages.NOT_AVAILABLE, "cuda"),
        (real_messages.NOT_AVAILABLE_PRINTED, "cuda"),
        (real_messages.NOT_AVAILABLE_EQUALS, "cuda"),
        (real_messages.NO_MPS, "crash"),
        (real_messages.NCCL, "nccl"),
        (real_messages.HUNG, "nccl"),
        (
            f"{real_messages.NCCL}\n{real_messages.CUDA_OOM}",
            "gpu-memory",
        ),  # the other ranks only lose their connection
        (real_messages.NAN, "nan"),
        ("step 3 loss 0.4 nanoseconds 12", "crash"),
        ("java.lang.OutOfMemoryError: Java heap space", "crash"),
    ],
)
def test_diagnose_failed_training_reads_its_log(log, cause):
    diagnosis = found(ended(1), log=f"starting\n{log}")
    assert (diagnosis.key.partition("/")[0], diagnosis.failed, diagnosis.lasting) == (cause, True, True)
    assert diagnosis.parameters == {"lr": "0.1"}


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (real_messages.CUDA_OOM, None),
        (real_messages.NCCL, None),
        (real_messages.HUNG, "nccl"),
        (real_messages.NAN, "nan"),
        ("Namespace(stop_on_loss_nan=True, skip_loss_nan=False)", None),
        (f"{real_messages.NOT_AVAILABLE_PRINTED}, using cpu", "cuda"),
        (real_messages.NOT_AVAILABLE_EQUALS, "cuda"),
        (real_messages.NO_MPS, None),
    ],
)
def test_diagnose_running_training_ignores_errors_it_can_catch(log, cause):
    """Some programs find the largest batch by trying."""
    assert key(running(), log=log) == cause


@pytest.mark.parametrize(
    ("pod", "log", "cause"),
    [
        (running(), real_messages.NOT_AVAILABLE_PRINTED, None),
        (ended(1), f"{real_messages.NOT_AVAILABLE_PRINTED}\n{real_messages.TRACEBACK}", "crash"),
        (ended(1), real_messages.NOT_AVAILABLE, "cuda"),
    ],
)
def test_no_cuda_without_requested_gpus_is_fine(pod, log, cause):
    assert key(pod, log=log, gpus=0) == cause


WORKERS = "Use fewer data-loader workers (`num_workers`)."
BATCH = "Limit the batch size or model size in the space file."
CUDA = (
    "Use a base image whose CUDA version matches the driver, and set `gpus=` if the command needs a GPU. "
    "If that doesn't help, ask an admin to check the node's driver."
)
INCOMPATIBLE = "The image's CUDA version isn't compatible with the node's GPU or driver."
NCCL = "Set `NCCL_DEBUG=INFO` to see where, and try `gpus=1`."
HANGS = "The training hung: one GPU never reached a collective operation (NCCL timeout)."
RATE = "Lower the learning rate's `max` in the space file; a high learning rate is the usual cause."


@cases(
    ("log", "diagnosis"),
    [
        (real_messages.SHM, ("shared-memory", "A data-loader worker ran out of shared memory.", WORKERS)),
        (
            real_messages.KILLED_LOADER,
            ("memory", "Out of memory (RAM, not GPU): a data-loader worker was killed.", WORKERS),
        ),
        (real_messages.CUDA_OOM, ("gpu-memory", "Out of GPU memory (23.65 GiB).", BATCH)),
        (real_messages.OLD_CUDA_OOM, ("gpu-memory", "Out of GPU memory (10.92 GiB).", BATCH)),
        ("cublas: CUBLAS_STATUS_ALLOC_FAILED", ("gpu-memory", "Out of GPU memory.", BATCH)),
        ("RuntimeError: CUDA error: out of memory", ("gpu-memory", "Out of GPU memory.", BATCH)),
        (
            "Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
            ("gpu-memory", "Out of GPU memory.", BATCH),
        ),
        (
            "lightgbm.basic.LightGBMError: [CUDA] out of memory (cuda_tree.cpp line 124)",
            ("gpu-memory", "Out of GPU memory.", BATCH),
        ),
        (
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB",
            ("gpu-memory", "Out of GPU memory.", BATCH),
        ),
        (real_messages.NO_DRIVER, ("cuda", "The training found no usable GPU.", CUDA)),
        (real_messages.OLD_DRIVER, ("cuda", INCOMPATIBLE, CUDA)),
        ("The NVIDIA driver on your system is too old (found version 11040).", ("cuda", INCOMPATIBLE, CUDA)),
        ("CUDA error: no kernel image is available for execution", ("cuda", INCOMPATIBLE, CUDA)),
        (real_messages.NCCL, ("nccl", "GPU communication failed (NCCL).", NCCL)),
        (real_messages.HUNG, ("nccl", HANGS, NCCL)),
        (real_messages.NAN, ("nan", "The loss became NaN at step 1200.", RATE)),
        ("Epoch 3: loss is NaN", ("nan", "The loss became NaN at epoch 3.", RATE)),
        ("train/loss=nan", ("nan", "The loss became NaN.", RATE)),
        ("step 7 loss: tensor(nan, device='cuda:0')", ("nan", "The loss became NaN at step 7.", RATE)),
        ("train_loss_step=nan.000", ("nan", "The loss became NaN.", RATE)),
    ],
)
def test_diagnose_failed_training_has_text_fix_and_log(log, diagnosis):
    earlier = "\n".join(f"line {number}" for number in range(30))
    shown = "\n".join([*earlier.splitlines(), *log.splitlines()][-20:])
    assert found(ended(1), log=f"{earlier}\n{log}") == expected(*diagnosis, shown, failed=True)


@pytest.mark.parametrize(
    ("log", "diagnosis"),
    [
        (
            real_messages.NOT_AVAILABLE_PRINTED,
            ("cuda", "The training found no usable GPU and continues on the CPU.", CUDA),
        ),
        (real_messages.HUNG, ("nccl", HANGS, NCCL)),
        (real_messages.NAN, ("nan", "The loss became NaN at step 1200.", RATE)),
    ],
)
def test_diagnose_running_training_is_lasting(log, diagnosis):
    assert found(running(), log=log) == expected(*diagnosis, log, lasting=True)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (real_messages.SHM, None),
        (real_messages.CUDA_OOM, None),
        ("libcuda.so: cannot open shared object file", None),
        (real_messages.NOT_AVAILABLE_PRINTED, "cuda"),
    ],
)
def test_diagnose_successful_training_ignores_errors_it_caught(log, cause):
    assert key(in_state({"terminated": {"exitCode": 0}}, phase="Succeeded"), log=log) == cause


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, "The training failed with exit code 1."),
        (128, "The training failed with exit code 128."),
        (129, "The training was killed by signal 1 (exit code 129)."),
        (139, "The training was killed by signal 11 (exit code 139)."),
        (255, "The training failed with exit code 255."),
    ],
)
def test_crash_names_exit_code_and_signal(code, text):
    fix = "Run the command locally to debug it."
    assert found(ended(code), log="step 9") == expected("crash", text, fix, "step 9", failed=True)
    # No message is left by a signal: what an older line says was survived.
    log = "\n".join(["ValueError: no rows", *(f"uploading logs {n}" for n in range(5))])
    assert ("ValueError" in found(ended(code), log=log).key) is not ("signal" in text)


@pytest.mark.parametrize(
    ("last", "fix"),
    [
        ("train.py: error: unrecognized arguments: --lr=0.1", "Add the argument shown in the log"),
        ("error: Unrecognized arguments: --lr=0.1", "Add the argument shown in the log"),
        ("Unrecognized or misplaced options: --lr", "Add the argument shown in the log"),
        ("ERROR: Could not consume arg: --lr=0.1", "Add the argument shown in the log"),
        ("Could not override 'lr'.", "Add the argument shown in the log"),
        (
            "Could not override 'tensorboard_dir'.",
            "Add the arguments shown in the log to the",
        ),
        ("train.py: error: argument --bn: ignored explicit argument 'true'", "This flag takes no value: set"),
        (
            "╭─ Error ───╮\n│ Option '--bn' does not take a value. │\n╰───╯",
            "This flag takes no value: set `booleans: switch`",
        ),
        (
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--lr=1']",
            "Add the arg",
        ),
        ("ValueError: Unknown config key: lr", "Add the argument shown in the log"),
        ("train.py: error: the following arguments are required: --data", "Add the argument to `command:`"),
        ("python: can't open file '/app/trian.py': [Errno 2] No such file or directory", "Correct the path"),
        ("ModuleNotFoundError: No module named 'einops'", "Add a package to the build file"),
        ("/usr/bin/python: No module named trian", "Add a package to the build file"),
        (
            "Error while finding module specification for 'a.b' (ModuleNotFoundError: No module named 'a')",
            "Add a package to the build file, for example `requirements.txt`. If it's your own code, check",
        ),
        ("ImportError: attempted relative import with no known parent package", "Run the file as a module"),
        ("MemoryError", "Keep less data in memory"),
        ("  what():  std::bad_alloc", "Keep less data in memory"),
        ("ValueError: unknown optimizer 'adamw'", "Run the command locally"),
    ],
)
def test_crash_with_a_known_last_line_names_its_fix(last, fix):
    assert found(ended(1), log=f"epoch 1\n{last}").fix.startswith(fix)
    caught = f"{last}\n" + "step 9\n" * 100
    assert found(ended(1), log=caught).fix.startswith("Run the command locally"), "not the last lines"


@pytest.mark.parametrize("name", real_messages.TORCHRUN_NAMES)
def test_crash_under_torchrun_quotes_the_training_and_not_torchruns_epilogue(name):
    stops, failed = (
        t.format(name=name) for t in (real_messages.TORCHRUN_STOPS, real_messages.TORCHRUN_FAILED)
    )
    earlier = f"{failed.splitlines()[0]}\nrestarted, epoch 1"
    log = f"{earlier}\n{real_messages.TRACEBACK}\n{stops}\nrank 1 stops\n{failed}"
    shown = found(ended(1), log=log).detail
    assert shown.startswith(f"{earlier}\n{real_messages.TRACEBACK}\n{stops}\nrank 1 stops")
    assert len(shown.splitlines()) < 20, "the epilogue has 40 lines"
    assert found(ended(1), log=failed).detail == "\n".join(failed.splitlines()[-20:])  # there is nothing else
    killed = f"{failed.splitlines()[0]}\nepoch 2"  # an earlier attempt failed
    assert found(ended(1), log=killed).detail == killed


def test_crash_without_a_log_quotes_what_else_is_known():
    pod = ended(1)
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "exec format error"
    assert found(pod).detail == "exec format error"
    loops = found(waiting("CrashLoopBackOff", real_messages.CRASH_LOOP))
    assert (loops.text, loops.detail) == ("The training failed repeatedly.", real_messages.CRASH_LOOP)
    pod = waiting("CrashLoopBackOff", real_messages.CRASH_LOOP)
    pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 3}}
    assert found(pod, log="step 9").text == "The training failed with exit code 3."
    failed = [{"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"}]
    trial = {**TRIAL, "status": {"conditions": failed}}
    text = "Katib reports a failure; the pod is gone."
    assert found(trial=trial) == expected("crash", text, "", failed[0]["message"], failed=True)
    assert key(in_state({"terminated": {"exitCode": 0}}), trial=trial) is None
    diagnosis = found(ended(255, reason="Unknown"), log="epoch 3")
    assert diagnosis.text.startswith("The node restarted while the pod was running, or lost its container.")
    assert diagnosis.fix == "Rerun the sweep for the lost trials."
    pod = ended(1)
    main = {"name": "main", "securityContext": {"runAsUser": 1000}}
    mine = {**pod, "spec": {**pod["spec"], "containers": [main, *pod["spec"]["containers"][1:]]}}
    assert (
        "Write below /tmp or to a volume that user 1000 can write to: the training runs as user 1000"
        in found(mine, log=DENIED).fix
    )
    assert "not as root" not in found(pod, log=DENIED).fix, "the image names its user"
    assert "not as root" not in found(mine, log=real_messages.TRACEBACK).fix


@pytest.mark.parametrize(("status", "shown"), [({"reason": "NodeLost"}, "NodeLost"), ({}, "no reason given")])
def test_crash_of_a_pod_that_never_ran_names_the_nodes_reason(status, shown):
    text = f"The node terminated or rejected the pod ({shown})."
    pod = a_pod(phase="Failed", message="x", **status)
    assert found(pod) == expected("crash", text, ADMIN, "x", failed=True)


@pytest.mark.parametrize(
    ("latest", "text"),
    [("NaN", "`loss` is NaN."), ("-inf", "`loss` is infinite."), ("0.5", None), ("unavailable", None)],
)
def test_not_a_number_in_a_succeeded_trial_is_reported(latest, text):
    metrics = [{"name": "accuracy", "latest": "nan"}, {"name": "loss", "latest": latest}]
    done = [{"type": "Succeeded", "status": "True"}]
    trial = {**TRIAL, "status": {"conditions": done, "observation": {"metrics": metrics}}}
    diagnosis = found(in_state({"terminated": {"exitCode": 0}}, phase="Succeeded"), trial=trial)
    assert diagnosis == (text and expected("nan", text, RATE, lasting=True))


DENIED = "Traceback (most recent call last):\nPermissionError: [Errno 13] Permission denied: 'checkpoints'"


def test_crash_is_not_explained_by_what_is_harmless():
    pod = ended(139)
    pod["spec"]["containers"][0]["securityContext"] = {"runAsUser": 1000}
    denied = "PermissionError: [Errno 13] Permission denied: '/root/.cache'"
    survived = found(pod, log=f"{denied}\n" + "step 9\n" * 5)
    assert (survived.key, survived.fix) == ("crash", "Run the command locally to debug it.")
    later = found(ended(1), log=f"{denied}\nusing /tmp\nValueError: bad value")
    assert (later.key, later.fix) == ("crash/ValueError", "Run the command locally to debug it.")
    assert "user 1000 can write to" in found(pod, log=f"step 9\n{denied}").fix
    warned = (
        "[W101 10:00:00.0 socket.cpp:697] [c10d] The IPv6 network addresses of (t1-master-0, 23456) cannot "
        "be retrieved (gai error: -2 - Name or service not known)."
    )
    log = f'{warned}\nTraceback (most recent call last):\n  File "t.py", line 3\nValueError: bad value'
    assert found(ended(1), log=log, workers=2).key == "crash/ValueError"
