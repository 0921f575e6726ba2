"""The doctor's checks of the Training Operator, and of what Katib and Kueue know about PyTorchJobs."""

from dataclasses import replace

import pytest

from bot.doctor.findings import Level
from bot.doctor.pytorch_jobs import pytorch_jobs
from k8s.katib.trial_pod import PodShape
from k8s.trial_kinds import PYTORCH_JOB
from local import cluster_fixtures, training_operator
from local.kubernetes.store import Store
from tests.bot.factories import CONFIG
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.queued_sweep import POLICY

SHAPE = PodShape(multi_node=PYTORCH_JOB)
KATIB = "init: {controller: {trialResources: [Job.v1.batch, PyTorchJob.v1.kubeflow.org]}}"
KUEUE = 'integrations: {frameworks: ["batch/job", "kubeflow.org/pytorchjob"]}'


def deploy(store, name, namespace, ready=1):
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}}
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": name, "image": "x"}]}}
    made = store.create({**head, "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod}})
    store.set_status(made, {"readyReplicas": ready})


def configure(store, name, namespace, text):
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    store.delete("ConfigMap", namespace, name) if store.get("ConfigMap", namespace, name) else None
    store.create({**head, "data": {"config.yaml": text}})


def install(store):
    """Add what a healthy cluster with PyTorchJobs has. Katib is there."""
    training_operator.install(store)
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    deploy(store, "training-operator", "kubeflow")
    deploy(store, "kueue-controller-manager", "kueue-system")
    configure(store, "katib-config", "kubeflow", KATIB)
    configure(store, "kueue-manager-config", "kueue-system", KUEUE)


@pytest.fixture
def store():
    found = Store()
    cluster_fixtures.install(found, [])
    install(found)
    return found


async def examined(store, config=CONFIG):
    with_pytorch_jobs = replace(config, trials=SHAPE)
    return await pytorch_jobs(DirectCluster(store), with_pytorch_jobs)


async def test_pytorch_jobs_of_a_healthy_cluster_are_ok(store):
    [finding] = await examined(store, replace(CONFIG, queueing=POLICY))
    assert (finding.level, finding.found) == (Level.OK, "served, and watched by Katib")


async def test_pytorch_jobs_are_not_checked_without_the_setting():
    assert await pytorch_jobs(DirectCluster(Store()), CONFIG) == []


async def test_pytorch_jobs_without_the_operator_are_broken():
    [finding] = await examined(Store())
    assert finding.level is Level.BROKEN
    assert finding.found == "kubeflow.org/v1 not served; sweeps with nodes= are refused"


async def test_pytorch_jobs_with_an_operator_that_is_not_ready_are_broken(store):
    store.delete("Deployment", "kubeflow", "training-operator")
    [missing] = await examined(store)
    assert (missing.level, "training-operator not found" in missing.found) == (Level.WARNING, True)
    deploy(store, "training-operator", "kubeflow", ready=0)
    [finding] = await examined(store)
    assert (finding.level, finding.found) == (
        Level.BROKEN,
        "Deployment training-operator in kubeflow isn't ready",
    )


@pytest.mark.parametrize(
    "text", ["init: {controller: {trialResources: [Job.v1.batch]}}", "init: {}", "init: 3"]
)
async def test_pytorch_jobs_that_katib_does_not_watch_are_broken(store, text):
    configure(store, "katib-config", "kubeflow", text)
    [finding] = await examined(store)
    assert finding.level is Level.BROKEN
    assert "trialResources in katib-config lacks PyTorchJob.v1.kubeflow.org" in finding.found
    assert finding.fix.endswith("kubectl -n kubeflow rollout restart deployment katib-controller")


async def test_pytorch_jobs_that_kueue_ignores_are_broken_if_there_are_queues(store):
    configure(store, "kueue-manager-config", "kueue-system", 'integrations: {frameworks: ["batch/job"]}')
    [finding] = await examined(store, replace(CONFIG, queueing=POLICY))
    assert finding.level is Level.BROKEN
    assert "lacks kubeflow.org/pytorchjob; these trials start without quota" in finding.found
    [finding] = await examined(store)
    assert finding.level is Level.OK


@pytest.mark.parametrize("text", ["- a list", "{unclosed", ""])
async def test_pytorch_jobs_with_an_unreadable_configuration_warn(store, text):
    configure(store, "katib-config", "kubeflow", text)
    [finding] = await examined(store)
    assert (finding.level, finding.found) == (
        Level.WARNING,
        "ConfigMap katib-config in kubeflow can't be read",
    )


async def test_pytorch_jobs_are_checked_with_the_permissions_of_deploy(here):
    install(here.store)
    here.config = replace(here.config, trials=SHAPE, queueing=POLICY)
    await here.examined()
    assert [each.level for each in here.all if each.check == "PyTorchJobs"] == [Level.OK]
    here.store.delete("ClusterRoleBinding", "", "sweepbot-doctor")
    [finding] = [each for each in await here.examined() if each.check == "PyTorchJobs"]
    assert (finding.level, finding.found) == (Level.WARNING, "unknown: no permission")
