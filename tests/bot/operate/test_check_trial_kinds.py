"""The doctor's checks of the training operators, of what Katib and Kueue know, and of an old Kubernetes."""

from dataclasses import replace

import pytest

from bot.core.finding import Level
from bot.operate.check_cluster import WEBHOOKS, katib, katib_webhooks
from bot.operate.check_trial_kinds import event_reader, operators, several_nodes
from bot.platform.config.limits import Limits
from k8s.katib.pod_shape import PodShape
from k8s.trial_kinds import PYTORCH_JOB, TRAIN_JOB
from local import cluster_fixtures, training_operator
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG, SETTINGS
from tests.scenarios.fakes import DirectCluster
from tests.scenarios.queued_sweep import POLICY

SHAPE = PodShape(multi_node=PYTORCH_JOB)
KATIB = "init: {controller: {trialResources: [Job.v1.batch, PyTorchJob.v1.kubeflow.org]}}"
KUEUE = 'integrations: {frameworks: ["batch/job", "kubeflow.org/pytorchjob"]}'


def deploy(store, name, namespace, ready=1, image="x"):
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}}
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": name, "image": image}]}}
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
    return await operators(DirectCluster(store), with_pytorch_jobs)


async def test_pytorch_jobs_of_a_healthy_cluster_are_ok(store):
    [finding] = await examined(store, replace(CONFIG, **vars(POLICY)))
    assert (finding.level, finding.text) == (Level.OK, "served, and watched by Katib")


async def test_charms_of_kubeflow_which_are_stateful_sets_are_found(store):
    for found in [each for each in store.list("Deployment") if each["metadata"]["namespace"] == "kubeflow"]:
        name = found["metadata"]["name"]
        store.delete("Deployment", "kubeflow", name)
        made = {key: found["metadata"][key] for key in ("name", "namespace")}
        made = store.create({**found, "kind": "StatefulSet", "metadata": made})
        store.set_status(made, {"readyReplicas": 1})
    [finding] = await katib(DirectCluster(store))
    assert (finding.level, finding.text.endswith("ready in kubeflow")) == (Level.OK, True)
    assert [each.level for each in await examined(store)] == [Level.OK]
    configure(store, "katib-config", "kubeflow", "init: {}")
    [finding] = await examined(store)
    restart = "kubectl -n kubeflow rollout restart statefulset katib-controller"
    assert (finding.level, finding.fix.endswith(restart)) == (Level.BROKEN, True)
    hook = {"clientConfig": {"service": {"name": "katib-controller", "namespace": "kubeflow"}}}
    for kind in WEBHOOKS:
        store.patch(kind, "", "katib.kubeflow.org", {"webhooks": [hook]})
    assert [restart in each.fix for each in await katib_webhooks(DirectCluster(store))] == [True, True]


async def test_pytorch_jobs_without_the_operator_are_broken():
    [finding] = await examined(Store())
    assert finding.level is Level.BROKEN
    assert finding.text == "kubeflow.org/v1 not served; sweeps with nodes= are refused"


async def test_pytorch_jobs_with_an_operator_that_is_not_ready_are_broken(store):
    store.delete("Deployment", "kubeflow", "training-operator")
    [missing] = await examined(store)
    assert (missing.level, "training-operator not found" in missing.text) == (Level.WARNING, True)
    deploy(store, "training-operator", "kubeflow", ready=0)
    [finding] = await examined(store)
    assert (finding.level, finding.text) == (
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
    assert "trialResources in katib-config lacks PyTorchJob.v1.kubeflow.org" in finding.text
    assert finding.fix.endswith("kubectl -n kubeflow rollout restart deployment katib-controller")


async def test_pytorch_jobs_that_kueue_ignores_are_broken_if_there_are_queues(store):
    configure(store, "kueue-manager-config", "kueue-system", 'integrations: {frameworks: ["batch/job"]}')
    [finding] = await examined(store, replace(CONFIG, **vars(POLICY)))
    assert finding.level is Level.BROKEN
    assert "lacks kubeflow.org/pytorchjob; these trials start without quota" in finding.text
    [finding] = await examined(store)
    assert finding.level is Level.OK


@pytest.mark.parametrize("text", ["- a list", "{unclosed", ""])
async def test_pytorch_jobs_with_an_unreadable_configuration_warn(store, text):
    configure(store, "katib-config", "kubeflow", text)
    [finding] = await examined(store)
    assert (finding.level, finding.text) == (
        Level.WARNING,
        "ConfigMap katib-config in kubeflow can't be read",
    )


async def test_pytorch_jobs_without_the_configuration_of_katib_warn(store):
    store.delete("ConfigMap", "kubeflow", "katib-config")
    [finding] = await examined(store)
    assert (finding.level, finding.text) == (Level.WARNING, "ConfigMap katib-config in kubeflow not found")


async def test_pytorch_jobs_are_checked_with_the_permissions_of_deploy(here):
    install(here.store)
    here.config = replace(here.config, trials=SHAPE, **vars(POLICY))
    await here.examined()
    assert [each.level for each in here.all if each.check == "PyTorchJobs"] == [Level.OK]
    here.store.delete("ClusterRoleBinding", "", "sweepbot-doctor")
    [finding] = [each for each in await here.examined() if each.check == "PyTorchJobs"]
    assert (finding.level, finding.text) == (Level.WARNING, "unknown: no permission")


TRAINER = (
    ("trainjobs", "trainer.kubeflow.org", "v1alpha1"),
    ("trainingruntimes", "trainer.kubeflow.org", "v1alpha1"),
    ("jobsets", "jobset.x-k8s.io", "v1alpha2"),
)


def serve(store, plural, group, version, *fields):
    """`fields`: of the kind's spec, in its schema."""
    spec = {"type": "object", "properties": {field: {"type": "array"} for field in fields}}
    schema = (
        {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}} if fields else {}
    )
    versions = [{"name": version, "served": True, "storage": True, **schema}]
    meta = {"name": f"{plural}.{group}"}
    if store.get("CustomResourceDefinition", "", meta["name"]):
        store.delete("CustomResourceDefinition", "", meta["name"])
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    store.create({**head, "metadata": meta, "spec": {"group": group, "versions": versions}})


@pytest.fixture
def trainer(store):
    """A healthy cluster with Kubeflow Trainer 2, as its release installs it."""
    for each in TRAINER:
        serve(store, *each)
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}})
    deploy(store, "kubeflow-trainer-controller-manager", "kubeflow-system")
    deploy(store, "jobset-controller-manager", "kubeflow-system")
    kinds = "[Job.v1.batch, TrainJob.v1alpha1.trainer.kubeflow.org]"
    configure(store, "katib-config", "kubeflow", f"init: {{controller: {{trialResources: {kinds}}}}}")
    kinds = '["batch/job", "trainer.kubeflow.org/trainjob"]'
    configure(store, "kueue-manager-config", "kueue-system", f"integrations: {{frameworks: {kinds}}}")
    return store


async def with_train_jobs(store):
    config = replace(CONFIG, trials=PodShape(multi_node=TRAIN_JOB), **vars(POLICY))
    return await operators(DirectCluster(store), config)


async def test_train_jobs_of_a_healthy_cluster_are_ok(trainer):
    [finding] = await with_train_jobs(trainer)
    assert (finding.level, finding.check) == (Level.OK, "TrainJobs")


@pytest.mark.parametrize(("plural", "group", "version"), TRAINER)
async def test_train_jobs_without_a_kind_or_with_another_version_of_it_are_broken(
    trainer, plural, group, version
):
    serve(trainer, plural, group, "v1")
    [finding] = await with_train_jobs(trainer)
    what = f"{group}/{version} not served; sweeps with nodes= are refused"
    assert (finding.level, finding.text) == (Level.BROKEN, what)
    assert finding.fix.startswith("install Kubeflow Trainer 2")


@pytest.mark.parametrize("name", ["kubeflow-trainer-controller-manager", "jobset-controller-manager"])
async def test_train_jobs_with_a_controller_that_is_not_ready_are_broken(trainer, name):
    trainer.delete("Deployment", "kubeflow-system", name)
    deploy(trainer, name, "kubeflow-system", ready=0)
    [finding] = await with_train_jobs(trainer)
    assert (finding.level, finding.text) == (
        Level.BROKEN,
        f"Deployment {name} in kubeflow-system isn't ready",
    )


async def test_train_jobs_that_katib_and_kueue_do_not_know_are_broken(trainer):
    configure(trainer, "katib-config", "kubeflow", KATIB)
    configure(trainer, "kueue-manager-config", "kueue-system", KUEUE)
    katib, kueue = await with_train_jobs(trainer)
    assert "lacks TrainJob.v1alpha1.trainer.kubeflow.org" in katib.text
    assert "lacks trainer.kubeflow.org/trainjob" in kueue.text


@pytest.mark.parametrize(
    ("field", "image", "fits"),
    [
        ("podSpecOverrides", "registry.k8s.io/kueue/kueue:v0.14.4", True),
        ("podTemplateOverrides", "registry.k8s.io/kueue/kueue:v0.14.4", False),
        ("podTemplateOverrides", "registry.k8s.io/kueue/kueue:v0.14.5", True),
        ("podTemplateOverrides", "registry.k8s.io/kueue/kueue:v0.16.3", True),
        ("podTemplateOverrides", "registry.k8s.io/kueue/kueue:v0.17.0", False),
        ("runtimePatches", "registry.k8s.io/kueue/kueue:v0.16.3", False),
        ("runtimePatches", "mirror.example/kueue:v0.19.2@sha256:1", True),
        ("runtimePatches", "mirror.example/kueue:main", True),
        ("runtimePatches", "registry.k8s.io/kueue/kueue:v0.13.9", True),  # without TrainJobs: reported before
    ],
)
async def test_kueue_that_does_not_fit_trainer_is_broken(trainer, field, image, fits):
    serve(trainer, *TRAINER[0], "runtimeRef", field)
    trainer.delete("Deployment", "kueue-system", "kueue-controller-manager")
    deploy(trainer, "kueue-controller-manager", "kueue-system", image=image)
    [finding] = await with_train_jobs(trainer)
    assert finding.level is (Level.OK if fits else Level.BROKEN)
    if not fits:
        assert finding.text.endswith("trials ignore the nodes of their flavor, or never start")
        assert "0.17 or newer with 2.2 or newer" in finding.fix


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("docker.io/kubeflowkatib/katib-controller:v0.17.0", False),
        ("ghcr.io/kubeflow/katib/katib-controller:v0.18.0", False),
        ("ghcr.io/kubeflow/katib/katib-controller:v0.19.0", True),
        ("mirror.example/katib-controller:latest", True),
    ],
)
async def test_katib_without_permission_for_train_jobs_is_broken_whatever_its_settings(trainer, image, known):
    trainer.delete("Deployment", "kubeflow", "katib-controller")
    deploy(trainer, "katib-controller", "kubeflow", image=image)
    [finding] = await with_train_jobs(trainer)
    assert finding.level is (Level.OK if known else Level.BROKEN)
    assert known or finding.fix == "upgrade Katib to 0.19.0 or newer"


async def test_pytorch_jobs_need_no_version_of_katib(store):
    store.delete("Deployment", "kubeflow", "katib-controller")
    deploy(store, "katib-controller", "kubeflow", image="katib-controller:v0.17.0")
    [finding] = await examined(store)
    assert finding.level is Level.OK


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("v1.27.16", "nodes= needs Kubernetes 1.28 or newer; found v1.27.16"),
        ("v1.30.4-gke.1", "before Kubernetes 1.31, a trial with nodes= ends only when all its workers end"),
        ("v1.31.0", ""),
        ("v2.0.0", ""),
        ("main", ""),
    ],
)
def test_several_nodes_warns_of_an_old_kubernetes(version, text):
    found = several_nodes(version, CONFIG)
    assert [text in each.text for each in found] == ([True] if text else [])


@pytest.mark.parametrize("changes", [{"limits": Limits(nodes_per_trial=1)}, {"trials": SHAPE}])
def test_several_nodes_is_silent_where_no_job_has_several(changes):
    assert several_nodes("v1.20.0", replace(CONFIG, **changes)) == []


@pytest.mark.parametrize(
    ("version", "image", "keys"),
    [("v1.28.9", "reg/sweepbot", ["metrics reader"]), ("v1.29.0", "reg/sweepbot", []), ("v1.28.9", None, [])],
)
def test_event_reader_needs_a_kubernetes_with_sidecars(version, image, keys):
    found = event_reader(version, SETTINGS.model_copy(update={"metrics_reader_image": image}))
    assert [finding.check for finding in found] == keys
