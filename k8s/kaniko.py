"""Kaniko builds: the Job we send.

Flags as read in and measured with the maintained fork, osscontainertools/kaniko v1.28.3.
"""

from dataclasses import dataclass

from k8s.names import label_value
from k8s.objects import BUILD_LABEL, MANAGED_BY, Manifest

CONTAINER = "kaniko"
# Part of the image tag: raise it when the flags below change what an image contains.
RECIPE_VERSION = "1"


@dataclass(frozen=True, kw_only=True)
class BuildSpec:
    name: str
    namespace: str
    repo_url: str
    ref: str  # refs/heads/main: Kaniko clones this, then checks the commit out
    commit: str
    dockerfile: str
    destination: str  # registry/repository:tag, as Kaniko pushes
    executor: str  # Kaniko's own image
    plain_http_registry: bool = False
    deadline: int = 1800  # seconds


def build_job(spec: BuildSpec) -> Manifest:
    """The Job that builds spec.commit and pushes spec.destination."""
    labels = {MANAGED_BY: "sweepbot", BUILD_LABEL: spec.name, "sweepbot/commit": label_value(spec.commit)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": spec.deadline,
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"labels": labels}, "spec": _pod(spec)},
        },
    }


def _pod(spec: BuildSpec) -> Manifest:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": CONTAINER,
                "image": spec.executor,
                "args": _arguments(spec),
                "env": _environment(spec),
                # Unpacking and RUN need root and these five capabilities, and nothing else.
                "securityContext": {
                    "runAsUser": 0,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {
                        "drop": ["ALL"],
                        "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
                    },
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "resources": {
                    "requests": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "20Gi"},
                    "limits": {"memory": "8Gi", "ephemeral-storage": "60Gi"},
                },
            }
        ],
    }


def _arguments(spec: BuildSpec) -> list[str]:
    registry, _, path = spec.destination.partition("/")
    repository = path.rpartition(":")[0]
    where = spec.repo_url.partition("://")[2]
    arguments = [
        f"--context=git://{where}#{spec.ref}#{spec.commit}",
        "--git=single-branch=true",
        f"--dockerfile={spec.dockerfile}",
        f"--destination={spec.destination}",
        "--cache=true",
        # The destination's own repository: another one would be pushed to twice.
        f"--cache-repo={registry}/{repository}",
        "--cache-ttl=8760h",
        # "true" keeps whole layers in memory: 570 MB for a 106 MB layer, an OOM kill for PyTorch.
        "--compressed-caching=false",
        "--snapshot-mode=redo",
        "--use-new-run",
        "--image-format=docker",
        "--digest-file=/dev/termination-log",
        "--push-retry=3",
        "--image-download-retry=3",
        "--image-fs-extract-retry=1",
    ]
    return [*arguments, f"--insecure-registry={registry}"] if spec.plain_http_registry else arguments


def _environment(spec: BuildSpec) -> list[Manifest]:
    # Kaniko turns git:// into https:// unless told so.
    plain = spec.repo_url.startswith("http://")
    return [{"name": "GIT_PULL_METHOD", "value": "http"}] if plain else []
