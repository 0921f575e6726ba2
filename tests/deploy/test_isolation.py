"""What deploy/isolation lets builds, trials, and environments reach, as a network plugin decides."""

from dataclasses import replace
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml

from bot.sweep.launch.plan import plan
from k8s import trial_kinds
from k8s.katib.pod_shape import PodShape
from local.kubernetes.apiserver.kinds import Object
from tests.bot.factories import ORDER, PLAN, SETTINGS
from tests.deploy.kustomize import DEPLOY, of, render
from tests.deploy.test_manifests import well_formed

JOB = {"batch.kubernetes.io/job-name": "x"}  # the Job controller's
BUILD = PLAN.builds[0].job["spec"]["template"]["metadata"]["labels"] | JOB
EXPERIMENT = plan(ORDER, SETTINGS).experiment
TRIAL = EXPERIMENT["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["metadata"]["labels"] | JOB
OPERATORS = {"training.kubeflow.org/job-name": "x"}  # the Training Operator's
SHAPE = PodShape(multi_node=trial_kinds.PYTORCH_JOB)
ON_TWO_NODES = replace(ORDER, request=replace(ORDER.request, nodes=2), shape=SHAPE)
PYTORCH_JOB = plan(ON_TWO_NODES, SETTINGS).experiment["spec"]["trialTemplate"]["trialSpec"]
PYTORCH = trial_kinds.pod_templates(PYTORCH_JOB)[1]["metadata"]["labels"] | OPERATORS
ON_TRAINER = replace(ON_TWO_NODES, shape=PodShape(multi_node=trial_kinds.TRAIN_JOB))
RUNTIME = plan(ON_TRAINER, SETTINGS).runtime
TRAINER = RUNTIME["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]
TRAIN_JOB = TRAINER["labels"] | JOB | {"jobset.sigs.k8s.io/jobset-name": "x"}  # JobSet's, too
SUGGESTION = EXPERIMENT["metadata"]["labels"] | {"katib.kubeflow.org/deployment": "x-random"}  # no Job's
WORKER = TRIAL | {"sweepbot/multi": "true"}  # of a trial on several machines
DNS = {"k8s-app": "kube-dns"}


@pytest.fixture(scope="module")
def policies() -> list[Object]:
    return [
        each
        for folder in ("isolation", "environments")
        for each in of(render(DEPLOY / folder), "NetworkPolicy")
    ]


def matches(selector: Object, labels: dict[str, str]) -> bool:
    labelled = selector.get("matchLabels", {}).items() <= labels.items()
    return labelled and all(map(partial(admits, labels), selector.get("matchExpressions", [])))


def admits(labels: dict[str, str], rule: Object) -> bool:
    if rule["operator"] == "In":
        return labels.get(rule["key"]) in rule["values"]
    return (rule["key"] in labels) is (rule["operator"] == "Exists")


def selecting(
    policies: list[Object], labels: dict[str, str], way: str, namespace: str = "sweeps"
) -> list[Object]:
    specs = [policy["spec"] for policy in policies if policy["metadata"]["namespace"] == namespace]
    return [s for s in specs if matches(s["podSelector"], labels) and way in s["policyTypes"]]


def is_peer(peer: Object, to: Any, own: str = "sweeps") -> bool:
    """`to`: a public or a node's address; or a pod's namespace and labels. `own`: the policy's namespace."""
    if isinstance(to, str):
        block = peer.get("ipBlock")
        inside = [block and block["cidr"], *(block or {}).get("except", [])]
        allowed, *excepted = [bool(cidr) and _within(to, cidr) for cidr in inside]
        return allowed and not any(excepted)
    namespace, labels = to
    if "namespaceSelector" not in peer:  # the policy's own namespace
        return namespace == own and "podSelector" in peer and matches(peer["podSelector"], labels)
    home = {"kubernetes.io/metadata.name": namespace}
    return matches(peer["namespaceSelector"], home) and matches(peer.get("podSelector", {}), labels)


def _within(address: str, cidr: str) -> bool:
    one, network = ip_address(address), ip_network(cidr)
    return one.version == network.version and one in network


def can_call(policies: list[Object], labels: dict[str, str], to: Any, port: int, own: str = "sweeps") -> bool:
    found = selecting(policies, labels, "Egress", own)
    rules = [rule for spec in found for rule in spec.get("egress", [])]
    return not found or any(
        any(is_peer(peer, to, own) for peer in rule["to"])
        and port in [each["port"] for each in rule.get("ports", [{"port": port}])]
        for rule in rules
    )


# An address, a port, and whether builds, trials, and environments reach it.
CONNECTIONS = (
    (("kube-system", DNS), 53, True, True, True),
    (("kube-system", {"k8s-app": "node-local-dns"}), 53, True, True, True),  # of GKE's Dataplane V2
    (("openshift-dns", {"dns.operator.openshift.io/daemonset-dns": "default"}), 5353, True, True, True),
    ("169.254.20.10", 53, True, True, True),
    ("169.254.25.10", 53, True, True, True),  # NodeLocal DNSCache of Kubespray
    ("169.254.169.254", 53, True, True, True),  # GKE's Cloud DNS
    ("140.82.112.3", 443, True, True, True),
    ("2606:50c0:8000::153", 443, True, True, True),
    (("registry", {}), 5000, True, False, False),
    (("mlflow", {}), 5000, False, True, True),
    (("kubeflow", {}), 6789, False, True, False),
    (("kubeflow", {}), 3306, False, False, False),
    (("sweepbot", {"app.kubernetes.io/name": "sweepbot-redis"}), 6379, False, False, False),
    (("sweeps", TRIAL), 22, False, False, False),
    (("kube-system", DNS), 9153, False, False, False),
    ("169.254.169.254", 80, False, False, False),
    ("fd00:ec2::254", 80, False, False, False),
    ("10.43.0.1", 443, False, False, False),  # the API server
    ("192.168.1.7", 10250, False, False, False),  # a node's kubelet
)


@pytest.mark.parametrize(("to", "port", "build", "trial"), [each[:4] for each in CONNECTIONS])
def test_network_policies_allow_the_required_connections(
    policies: list[Object], to: Any, port: int, build: bool, trial: bool
) -> None:
    answers = [can_call(policies, labels, to, port) for labels in (BUILD, TRIAL, PYTORCH, TRAIN_JOB)]
    assert answers == [build, trial, trial, trial]


def test_network_policies_protect_builds_and_trials_and_admit_katib(
    policies: list[Object],
) -> None:
    for labels in (BUILD, TRIAL):
        (spec,) = selecting(policies, labels, "Ingress")
        assert "ingress" not in spec
    assert selecting(policies, SUGGESTION, "Ingress") == selecting(policies, SUGGESTION, "Egress") == []


@pytest.mark.parametrize("worker", [WORKER, PYTORCH, TRAIN_JOB])
def test_network_policies_connect_the_nodes_of_a_trial(
    policies: list[Object], worker: dict[str, str]
) -> None:
    assert can_call(policies, worker, ("sweeps", worker), 29500)
    assert not can_call(policies, worker, ("sweeps", TRIAL), 29500)
    assert not can_call(policies, worker, ("other", worker), 29500)
    rules = [rule for spec in selecting(policies, worker, "Ingress") for rule in spec.get("ingress", [])]
    callers = [peer for rule in rules for peer in rule["from"]]
    assert [is_peer(peer, ("sweeps", worker)) for peer in callers] == [True]
    assert not any(is_peer(peer, ("sweeps", TRIAL)) for peer in callers)


def test_isolation_is_valid_and_one_line_of_the_documented_overlay(policies: list[Object]) -> None:
    for policy in policies:
        well_formed(policy)
        assert policy["metadata"]["namespace"] in {"sweeps", "environments"}
    assert "\n- ../isolation" in (DEPLOY.parent / "docs" / "install.md").read_text()


def test_isolation_applies_to_another_trial_namespace_unchanged() -> None:
    alone = [*yaml.safe_load_all((DEPLOY / "isolation" / "trials.yaml").read_text())]
    assert not any("namespace" in policy["metadata"] for policy in alone)
    assert len(alone) == 2
