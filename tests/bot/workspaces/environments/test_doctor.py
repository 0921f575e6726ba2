"""What the doctor finds about `environments:`."""

from dataclasses import replace

import pytest

from bot.core.finding import Level
from bot.operate.check_environments import environments
from bot.platform.config.environments import ServiceConfig
from tests.bot.factories import CONFIG, SETTINGS
from tests.bot.workspaces.environments.world import ENVIRONMENTS

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


class Configured:
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


async def found_of(cluster, **changes):
    config = replace(CONFIG, environments=replace(ENVIRONMENTS, **changes))
    return await environments(cluster, SETTINGS, config)


async def test_doctor_passes_good_environments():
    findings = await found_of(Configured(), storage_class="cephfs", ingress_class="nginx")
    assert {each.level for each in findings} == {Level.OK}
    assert len(findings) == 4


@pytest.mark.parametrize(
    ("cluster", "changes", "what"),
    [
        (Configured(labels=None), {}, "namespace environments doesn't exist"),
        (Configured(labels={}), {}, "doesn't enforce Pod Security restricted"),
        (Configured(allowed=False), {}, "missing list events"),
        (Configured(), {"namespace": "sweeps"}, "also has trials or builds"),
        (
            Configured(),
            {"services": ServiceConfig(images=("a/",), volumes=("absent",))},
            "PersistentVolumeClaim absent doesn't exist in environments",
        ),
        (Configured(), {"storage_class": "nfs"}, "StorageClass nfs doesn't exist. Available: cephfs"),
        (Configured(), {"ingress_class": "traefik"}, "IngressClass traefik doesn't exist. Available: nginx"),
    ],
)
async def test_doctor_names_each_fault_of_environments(cluster, changes, what):
    faults = [each for each in await found_of(cluster, **changes) if each.level is not Level.OK]
    assert what in faults[0].text
    assert faults[0].fix


async def test_doctor_asks_for_deployments_only_where_services_are_configured():
    asked = Configured(allowed=False)
    services = ServiceConfig(images=("a/",), volumes=("models",))
    for configured, missing in ((None, False), (services, True)):
        found_ = await found_of(asked, services=configured)
        assert any("deployments" in each.text for each in found_) is missing
