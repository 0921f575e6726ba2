"""What the doctor finds about `environments:`."""

from dataclasses import replace

import pytest

from bot.config.services import ServiceConfig
from bot.doctor.findings import Level
from bot.doctor.probe_environments import environments
from tests.bot.environments.world import ENVIRONMENTS
from tests.bot.factories import CONFIG, SETTINGS

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


class Cluster:
    """A namespace or none, and classes; `allowed`: all permissions are granted."""

    def __init__(self, labels=RESTRICTED, allowed=True):
        self.labels, self.allowed = labels, allowed

    async def get(self, ref):
        if ref.kind == "PersistentVolumeClaim":
            return {} if ref.name == "absent" else {"metadata": {"name": ref.name}}
        return (self.labels is not None and {"metadata": {"name": ref.name, "labels": self.labels}}) or None

    async def list(self, kind, namespace):
        return [{"metadata": {"name": {"StorageClass": "cephfs", "IngressClass": "nginx"}[kind]}}]

    async def create(self, review):
        return {"status": {"allowed": self.allowed}}


async def found(cluster, **changes):
    config = replace(CONFIG, environments=replace(ENVIRONMENTS, **changes))
    return await environments(cluster, SETTINGS, config)


async def test_doctor_is_silent_without_environments():
    assert await environments(Cluster(), SETTINGS, CONFIG) == []


async def test_doctor_passes_a_good_configuration():
    findings = await found(Cluster(), storage_class="cephfs", ingress_class="nginx")
    assert {each.level for each in findings} == {Level.OK}
    assert len(findings) == 4


@pytest.mark.parametrize(
    ("cluster", "changes", "what"),
    [
        (Cluster(labels=None), {}, "namespace environments does not exist"),
        (Cluster(labels={}), {}, "doesn't enforce Pod Security restricted"),
        (Cluster(allowed=False), {}, "missing list events"),
        (Cluster(), {"namespace": "sweeps"}, "also has trials or builds"),
        (
            Cluster(),
            {"services": ServiceConfig(images=("a/",), volumes=("absent",))},
            "PersistentVolumeClaim absent does not exist in environments",
        ),
        (Cluster(), {"storage_class": "nfs"}, "StorageClass nfs does not exist (there are: cephfs)"),
        (Cluster(), {"ingress_class": "traefik"}, "IngressClass traefik does not exist (there are: nginx)"),
    ],
)
async def test_doctor_names_each_fault_and_its_fix(cluster, changes, what):
    faults = [each for each in await found(cluster, **changes) if each.level is not Level.OK]
    assert what in faults[0].found
    assert faults[0].fix


async def test_doctor_asks_for_deployments_only_where_services_are_configured():
    asked = Cluster(allowed=False)
    services = ServiceConfig(images=("a/",), volumes=("models",))
    for configured, missing in ((None, False), (services, True)):
        found_ = await found(asked, services=configured)
        assert any("deployments" in each.found for each in found_) is missing
