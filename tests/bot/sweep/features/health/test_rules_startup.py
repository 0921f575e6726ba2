"""Rules for a pod that has a node and doesn't start training: volumes, network, image, and command."""

from datetime import timedelta

import pytest

from bot.platform.pod_health.rules_startup import may_pass
from k8s.objects import timestamp
from tests.bot.factories import NOW
from tests.bot.sweep.features.health import real_messages
from tests.bot.sweep.features.health.snapshots import (
    ADMIN,
    a_pod,
    an_event,
    ended,
    expected,
    found,
    key,
    running,
    waiting,
)
from tests.cases import cases

CREATING = ("ContainerCreating", "")


@cases(
    ("events", "cause"),
    [
        ([("FailedCreatePodSandBox", real_messages.NO_NETWORK)], "sandbox"),
        (
            [("FailedCreatePodSandBox", real_messages.NO_NETWORK), ("Pulling", real_messages.PULLING)],
            "slow-start",
        ),
        ([("FailedMount", real_messages.NO_SECRET)], "mount"),
        ([("FailedMount", real_messages.NO_SECRET), ("Pulling", real_messages.PULLING)], "slow-start"),
        ([("FailedAttachVolume", real_messages.MULTI_ATTACH)], "mount"),
        (
            [
                ("FailedAttachVolume", real_messages.MULTI_ATTACH),
                ("SuccessfulAttachVolume", real_messages.ATTACHED),
            ],
            "slow-start",
        ),
        (
            [
                ("FailedAttachVolume", real_messages.MULTI_ATTACH),
                ("SuccessfulAttachVolume", real_messages.OTHER_ATTACHED),
            ],
            "mount",
        ),
        (
            [("Pulling", real_messages.PULLING), ("FailedCreatePodSandBox", real_messages.NO_NETWORK)],
            "sandbox",
        ),
    ],
)
def test_diagnose_ignores_events_that_are_resolved(events, cause):
    assert key(waiting(*CREATING), events=tuple(an_event(*each) for each in events)) == cause


def test_slow_start_is_reported_a_minute_after_scheduling_with_the_pull_but_no_dead_node():
    pod = waiting("ContainerCreating", "")
    before = {"PodReadyToStartContainers": NOW - timedelta(hours=1), "PodScheduled": NOW}
    pod["status"]["conditions"] = [
        {"type": type_, "status": "True", "lastTransitionTime": timestamp(at)} for type_, at in before.items()
    ]
    assert found(pod).report_at == NOW + timedelta(seconds=55)
    fix = "None needed yet; the first pull of a large image on a node takes several minutes."
    pulls, prepares = creating(("Pulling", real_messages.PULLING)), creating()
    text = "The node is still pulling the image."
    assert pulls == expected("slow-start", text, fix, real_messages.PULLING, soft=True, due=25)
    assert prepares == expected(
        "slow-start", "The node is still preparing the container.", fix, soft=True, due=25
    )
    unplaced = waiting(*CREATING)
    unplaced["spec"] = {**unplaced["spec"], "nodeName": ""}
    assert found(unplaced) is None
    ready = {"type": "Ready", "status": "Unknown", "message": real_messages.NO_KUBELET}
    node = {"metadata": {"name": "n1"}, "status": {"conditions": [ready]}}
    diagnosis = found(waiting(*CREATING), nodes=(node,))
    assert (diagnosis.key, diagnosis.soft, diagnosis.detail) == ("node", False, real_messages.NO_KUBELET)
    assert diagnosis.fix.startswith("Ask an admin to restore or remove `n1`")


@pytest.mark.parametrize("cause", real_messages.PULLS)
def test_image_real_message_names_the_cause(cause):
    assert key(waiting("ErrImagePull", real_messages.PULLS[cause])) == cause.strip()
    assert (
        key(
            waiting(
                "ImagePullBackOff", f"{real_messages.BACK_OFF}: ErrImagePull: {real_messages.PULLS[cause]}"
            )
        )
        == cause.strip()
    )


@pytest.mark.parametrize("name", ["lab/certificates", "denied-team/x", "lab/x509", "short-name/x"])
def test_image_whose_name_looks_like_a_cause_is_not_that_cause(name):
    words = real_messages.PULLS["image-pull"].replace("lab/x", name)
    assert key(waiting("ErrImagePull", words)) == "image-pull"
    missing = f'failed to resolve reference "{name}:1": {name}:1: not found'
    assert key(waiting("ErrImagePull", missing)) == "image-missing"


@pytest.mark.parametrize("cause", real_messages.PULLS)
def test_image_of_an_older_kubelet_reads_the_event(cause):
    events = (
        an_event("Failed", f'Failed to pull image "reg.example/lab/x:1": {real_messages.PULLS[cause]}'),
    )
    assert key(waiting("ImagePullBackOff", real_messages.BACK_OFF), events=events) == cause.strip()


def test_image_unknown_cause_is_reported_when_repeated():
    failed = f"Failed to pull image: {real_messages.PULLS['image-pull']}"
    pod = waiting("ErrImagePull", real_messages.PULLS["image-pull"])
    once, twice = (found(pod, events=(an_event("Failed", failed, count),)) for count in (1, 2))
    assert (once.report_at, twice.report_at) == (NOW - timedelta(seconds=20), None)
    words = real_messages.PULLS["image-pull"]
    text = "The node can't pull the image; Kubernetes is retrying."
    assert found(waiting("ErrImagePull", words)) == expected("image-pull", text, ADMIN, words, due=-20)
    assert found(waiting("ImagePullBackOff", real_messages.BACK_OFF)).detail == real_messages.BACK_OFF
    failed = [f"Failed to pull image: {real_messages.PULLS[cause]}" for cause in ("image-dns", "image-login")]
    events = (*(an_event("Failed", each) for each in failed), an_event("BackOff", real_messages.BACK_OFF))
    diagnosis = found(waiting("ImagePullBackOff", real_messages.BACK_OFF), events=events)
    assert (diagnosis.key, diagnosis.detail) == ("image-login", failed[1])


@pytest.mark.parametrize(
    ("reason", "message", "passes"),
    [
        ("ErrImagePull", "unexpected EOF", True),
        ("ImagePullBackOff", real_messages.PULLS["image-dns"], True),
        ("ErrImagePull", real_messages.PULLS["image-missing"], False),
        ("CreateContainerError", "unexpected EOF", False),
    ],
)
def test_may_pass_only_for_a_pull_without_a_lasting_cause(reason, message, passes):
    assert may_pass(reason, message) is passes


def creating(*events, **known):
    return found(waiting(*CREATING), events=tuple(an_event(*each) for each in events), **known)


@pytest.mark.parametrize(
    ("reason", "message", "text", "wait"),
    [
        (
            "FailedMount",
            real_messages.NO_SECRET,
            "The pod can't start: secret `compcrdwebhook-secret` doesn't exist.",
            {},
        ),
        (
            "FailedAttachVolume",
            real_messages.MULTI_ATTACH,
            "The volume is still attached to another node and allows only one.",
            {"soft": True, "due": 25},
        ),
        (
            "FailedMount",
            "MountVolume.SetUp failed for volume: mount.nfs: Connection timed out",
            "The node can't mount the pod's volume.",
            {"soft": True, "due": 25},
        ),
    ],
)
def test_mount_names_the_cause(reason, message, text, wait):
    assert creating((reason, message)) == expected("mount", text, ADMIN, message, **wait)
    assert key(running(), events=(an_event(reason, message),)) is None


@pytest.mark.parametrize(
    "cause", [("FailedMount", real_messages.NO_SECRET), ("FailedAttachVolume", real_messages.MULTI_ATTACH)]
)
def test_mount_keeps_the_cause_when_the_kubelet_sums_up(cause):
    """The summary repeats every 2 min; the message in Slack alternated with it."""
    assert creating(cause, ("FailedMount", real_messages.UNMOUNTED)) == creating(cause)
    assert creating(("FailedMount", real_messages.UNMOUNTED)).key == "mount"


@pytest.mark.parametrize(
    ("reason", "what"), [("NetworkNotReady", "network"), ("FailedPrepareDynamicResources", "device driver")]
)
def test_sandbox_that_is_never_tried(reason, what):
    message = {
        "NetworkNotReady": "network is not ready: cni plugin not initialized",
        "FailedPrepareDynamicResources": "Failed to prepare dynamic resources: NodePrepareResources failed",
    }[reason]
    assert creating((reason, message, 2)).text == f"Node `n1` can't start the pod: {what} error."


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (real_messages.NO_NETWORK, "network"),
        (real_messages.NO_RUNTIME, "container runtime"),
        ("Failed to create pod sandbox: context deadline exceeded", "runtime"),
    ],
)
def test_sandbox_names_what_failed(message, what):
    once, twice = (creating(("FailedCreatePodSandBox", message, count)) for count in (1, 2))
    text = f"Node `n1` can't start the pod: {what} error."
    assert once == expected("sandbox", text, ADMIN, message, due=-20)
    assert twice == expected("sandbox", text, ADMIN, message)
    assert key(running(), events=(an_event("FailedCreatePodSandBox", message),)) is None


@pytest.mark.parametrize(
    ("reason", "message", "diagnosis"),
    [
        (
            "UnexpectedAdmissionError",
            real_messages.UNHEALTHY_GPU,
            (
                "device",
                "Node `n1` couldn't allocate GPUs; one may be faulty.",
                f"{ADMIN} The next trial can go to another node.",
            ),
        ),
        (
            "UnexpectedAdmissionError",
            real_messages.LOST_GPU,
            (
                "device",
                "Node `n1` couldn't allocate GPUs; one may be faulty.",
                f"{ADMIN} The next trial can go to another node.",
            ),
        ),
        (
            "TopologyAffinityError",
            "Resources cannot be allocated with Topology locality",
            (
                "device",
                "Node `n1` couldn't allocate GPUs and CPUs near each other, as its topology policy requires.",
                f"{ADMIN} The next trial can go to another node.",
            ),
        ),
        (
            "OutOfnvidia.com/gpu",
            real_messages.OUT_OF_GPU,
            (
                "out-of",
                "Node `n1` ran out of capacity while the pod was starting (OutOfnvidia.com/gpu).",
                "None needed; the next trial goes to another node.",
            ),
        ),
    ],
)
def test_device_rejected_pod_names_the_node(reason, message, diagnosis):
    pod = a_pod(phase="Failed", reason=reason, message=message)
    assert found(pod) == expected(*diagnosis, message, failed=True)


@pytest.mark.parametrize(
    ("cause", "text", "fix"),
    [
        ("image-missing", "not found in the registry", "If you set `image=`, check its tag."),
        ("image-login", "missing registry credentials", "add a pull secret for this registry"),
        ("image-limit", "registry rate limit reached", "Wait; Kubernetes is retrying."),
        ("image-tls", "it doesn't trust the registry's certificate", "add the registry's CA certificate"),
        ("image-dns", "it can't resolve the registry's name", "check the registry's name and the node's DNS"),
    ],
)
def test_image_known_cause_is_reported_at_once_with_its_fix(cause, text, fix):
    diagnosis = found(waiting("ErrImagePull", real_messages.PULLS[cause]))
    assert diagnosis.text == f"The node can't pull the image: {text}."
    assert fix in diagnosis.fix
    assert (diagnosis.report_at, diagnosis.soft) == (None, False)
    assert diagnosis.detail == real_messages.PULLS[cause]


@pytest.mark.parametrize(
    ("reason", "message", "why"),
    [
        ("InvalidImageName", 'couldn\'t parse image name "reg.example/lab/x:"', "invalid name"),
        ("ErrImageNeverPull", real_messages.NEVER_PULL, "the node isn't allowed to pull it"),
    ],
)
def test_image_that_is_never_pulled_names_the_cause(reason, message, why):
    fix = "If you set `image=`, check its tag. Otherwise, start the sweep again to rebuild the image."
    assert found(waiting(reason, message)) == expected(
        "image-name", f"The image can't be used: {why}.", fix, message
    )


@pytest.mark.parametrize(
    ("reason", "message", "what"),
    [
        (
            "CreateContainerConfigError",
            real_messages.NO_ENV_SECRET,
            "secret `secretpostgresql` doesn't exist",
        ),
        (
            "CreateContainerConfigError",
            real_messages.NO_KEY,
            "Secret `default/aegis-secret-aegis-workload-demo` has no key `VALUE`",
        ),
        ("CreateContainerError", "context deadline exceeded", "CreateContainerError"),
        ("PostStartHookError", "exit status 1", "PostStartHookError"),
    ],
)
def test_config_names_what_is_missing(reason, message, what):
    assert found(waiting(reason, message)) == expected(
        "config", f"The container can't start: {what}.", ADMIN, message
    )


def test_config_init_container_that_failed_is_named():
    pod = waiting("PodInitializing", "")
    exited = [
        {"name": name, "state": {"terminated": {"exitCode": code}}}
        for name, code in (("a", 0), ("istio-init", 1))
    ]
    pod["status"] |= {"phase": "Failed", "initContainerStatuses": exited}
    text = "Init container `istio-init` failed, so the training didn't start."
    assert found(pod) == expected("init", text, ADMIN, failed=True)


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_config_command_that_the_runtime_rejects(reason):
    pod = ended(128, reason)
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = real_messages.NO_COMMAND
    text, fix = "The container couldn't start the command.", "Check `command` and the Dockerfile."
    assert found(pod) == expected("command", text, fix, real_messages.NO_COMMAND, failed=True)


@pytest.mark.parametrize(
    ("message", "cause", "text"),
    [
        (real_messages.NO_GPU_HOOK, "device", "The node couldn't give the container its GPUs."),
        (real_messages.NO_CDI, "device", "The node couldn't give the container its GPUs."),
        (real_messages.NEW_CUDA, "cuda", "The image's CUDA is newer than the node's driver supports."),
        (real_messages.CRIO_NO_COMMAND, "command", "The container couldn't start the command."),
        ("context deadline exceeded", "config", "The container can't start: {}."),
    ],
)
def test_config_a_runtime_that_fails_is_not_the_commands_fault(message, cause, text):
    ran = ended(128, "StartError")
    ran["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = message
    for reason, pod in (
        ("StartError", ran),
        ("CreateContainerError", waiting("CreateContainerError", message)),
    ):
        diagnosis = found(pod)
        assert (diagnosis.key, diagnosis.text) == (cause, text.format(reason))
        assert ("Dockerfile" in diagnosis.fix) == (cause == "command")


@pytest.mark.parametrize(("code", "what"), [(126, "not executable"), (127, "not found")])
def test_config_command_that_the_shell_rejects(code, what):
    text, fix = f"Command {what} in the image (exit code {code}).", "Check `command` and the Dockerfile."
    diagnosis = found(ended(code), log=real_messages.NO_PYTHON)
    assert diagnosis == expected("command", text, fix, real_messages.NO_PYTHON, failed=True)
    assert key(ended(125), log=real_messages.NO_PYTHON) == "crash"
