"""Write what installs Sweepbot: kustomization.yaml and config.yaml of a directory for git, notes, and the
commands that apply them. Pure.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from bot.operate.setup.answers import Answers
from bot.operate.setup.secrets import external_secrets, secrets_script
from bot.platform.config.policy import parse_config

# What is applied: the bot in one pod, and what most clusters want beside it (deploy/README.md).
PARTS = ("overlays/small", "doctor", "usage", "isolation")
NO_LOGIN = ("IMAGE_REGISTRY_SECRET=", "IMAGE_PUSH_SECRET=", "REGISTRY_AUTH_FILE=")
OPEN = ("registry", "mlflow")  # namespaces that deploy/isolation opens to builds and to trials
KUSTOMIZATION = """\
# Sweepbot's installation, written by `sweepbot setup` and yours to change: kubectl apply -k .
# overlays/replicas in place of small runs several pods. Leave isolation out if the network plugin ignores
# NetworkPolicy. Each variable of .env.example can be one of the literals.
"""
SERVICE = re.compile(r"(?P<name>[^.:/]+)\.(?P<namespace>[^.:/]+)\.svc(\.[^:/]+)?(:(?P<port>\d+))?(?=/|$)")
# The first sweep is the test of a build, a push, a node's pull, and a trial.
IN_SLACK = "in Slack: /invite @sweepbot, and /sweep branch=main space=NAME trials=1"
CONFIG = """\
# Repositories, people, and limits: docs/configuration.md has all keys. Running pods read what is applied.
"""


@dataclass(frozen=True)
class Base:
    """Sweepbot's repository, whose `deploy/` is the base."""

    address: str  # a URL, or a path relative to the folder
    source: str  # what `docker build` takes
    version: str
    documents: str = ""  # URL of the site with the documents of this version, if there is one

    def part(self, name: str) -> str:
        if "://" in self.address:
            return f"{self.address}//deploy/{name}?ref=v{self.version}"
        return f"{self.address}/deploy/{name}"


@dataclass(frozen=True)
class Secrets:
    """Where the Secrets come from: secrets.sh, unless a store has them; `sealed`: as SealedSecrets."""

    sealed: bool = False
    store: str = ""  # a ClusterSecretStore of External Secrets

    @property
    def resource(self) -> str:
        """The file of the directory that is applied with it; "" if there is none."""
        return "sealed.yaml" if self.sealed else "external.yaml" if self.store else ""


def files(
    answers: Answers, base: Base, secrets: Secrets, suggested: Mapping[str, Any], *, sidecars: bool
) -> dict[str, str]:
    """Return the texts of the files by their names. Raises UserError if a value isn't allowed.

    Args:
        suggested: what the cluster adds to config.yaml.
        sidecars: whether the cluster starts them; then one reads TensorBoard files while trials run.
    """
    config = {
        "repositories": {name: {"url": url} for name, url in answers.named_repositories.items()},
        "admins": [*answers.admins],
        **suggested,
    }
    found = {
        "kustomization.yaml": KUSTOMIZATION
        + _yaml(_kustomization(answers, base, secrets, sidecars=sidecars)),
        "config.yaml": CONFIG + _yaml(config),
    }
    if secrets.store:
        found[secrets.resource] = external_secrets(answers, secrets.store)
    else:
        found["secrets.sh"] = secrets_script(answers)
    parse_config(found["config.yaml"], "config.yaml")
    return found


def _kustomization(answers: Answers, base: Base, secrets: Secrets, *, sidecars: bool) -> dict[str, Any]:
    image = f"{answers.host}/sweepbot"
    settings = [f"IMAGE_REGISTRY={answers.host}", f"MLFLOW_TRACKING_URI={answers.mlflow}"]
    settings += ["IMAGE_REGISTRY_PLAIN_HTTP=true"] if answers.plain_http else []
    settings += NO_LOGIN if answers.registry_login == "none" else ()
    settings += [f"RUNBOOK_URL={base.documents}/operate.html"] if base.documents else []
    settings += [f"METRICS_READER_IMAGE={image}:{base.version}"] if sidecars else []
    own = {"namespace": "sweepbot"}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*map(base.part, PARTS), *([secrets.resource] if secrets.resource else [])],
        "images": [{"name": "sweepbot", "newName": image, "newTag": base.version}],
        "configMapGenerator": [
            {"name": "sweepbot-settings", **own, "behavior": "merge", "literals": settings},
            {"name": "sweepbot-config", **own, "behavior": "replace", "files": ["config.yaml"]},
        ],
    }


def _yaml(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000)


def notes(answers: Answers) -> list[str]:
    """Return what the directory can't do by itself."""
    hosts = {"builds": answers.host, "trials": answers.mlflow.partition("//")[2]}
    closed = [
        f"{who} to namespace {found['namespace']}"
        for who, host in hosts.items()
        if (found := SERVICE.match(host)) and found["namespace"] not in OPEN
    ]
    policy = "deploy/isolation closes the way of {}: add a NetworkPolicy (docs/security.md#network)."
    return [policy.format(each) for each in closed]


def commands(answers: Answers, base: Base, secrets: Secrets, folder: str) -> list[str]:
    """Return what a shell runs next, until Sweepbot is ready and the doctor has looked at it."""
    quoted, image = shlex.quote(folder), f"{answers.host}/sweepbot:{base.version}"
    forward = ""
    if found := SERVICE.match(answers.host):  # no name for this machine; Docker allows HTTP on localhost
        image = f"localhost:5000/{image.partition('/')[2]}"
        service = f"-n {found['namespace']} port-forward service/{found['name']} 5000:{found['port'] or 80}"
        forward = f"kubectl {service} &\n   "
    bot, work = "kubectl -n sweepbot", "deployment/sweepbot-work"
    apply, script = f"kubectl apply -k {quoted}", f"sh {quoted}/secrets.sh"
    seal = f"{script} | kubeseal --format yaml > {quoted}/{secrets.resource}"
    applied = [apply, f"{script} | kubectl apply -f -"]
    return [
        f"{forward}docker build -t {image} {shlex.quote(base.source)} && docker push {image}",
        *([apply] if secrets.store else [seal, apply] if secrets.sealed else applied),
        f"{bot} rollout status {work} && {bot} exec {work} -- sweepbot doctor",
    ]
