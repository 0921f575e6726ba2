"""The doctor in another cluster with trials, with the permissions that deploy/ grants there."""

from contextlib import suppress
from dataclasses import replace

import pytest
import yaml

from bot.operate.checks import check_remote
from bot.platform.clusters.connections import Identities
from bot.platform.config.clusters import TrialCluster
from k8s.api.remote import RemoteClient
from local.kubernetes.apiserver import api
from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.store import Store
from tests.bot.factories import CONFIG, SETTINGS
from tests.bot.operate.installation import DEPLOY
from tests.scenarios.fakes import DirectCluster

WORKER = "system:serviceaccount:sweepbot:sweepbot-work"


def apply(store, file, namespace=""):
    for obj in yaml.safe_load_all((DEPLOY / file).read_text()):
        if namespace:
            obj["metadata"]["namespace"] = namespace
        if obj["kind"] != "Secret":
            with suppress(Refused):
                store.create(obj)


@pytest.fixture
async def west(tmp_path):
    store = Store()
    apply(store, "clusters/remote.yaml")
    apply(store, "namespace/rights.yaml", "sweeps")
    server = await api.serve(store)
    server.tokens["work"] = WORKER
    server.kubeconfig(tmp_path / "west", "work")
    yield server
    await server.close()


async def examined(tmp_path):
    cluster = TrialCluster(name="west", kubeconfig=str(tmp_path / "west"))
    identities = Identities(DirectCluster(Store()), SETTINGS.k8s_namespace)
    found = await check_remote(cluster, identities, SETTINGS, replace(CONFIG, clusters=(cluster,)))
    return {each.check: each for each in found}


async def test_doctor_checks_what_trials_need_of_a_cluster(west, tmp_path):
    found = await examined(tmp_path)
    assert [
        found[each].level for each in ("cluster west", "west: RBAC of free GPUs", "west: RBAC in sweeps")
    ] == ["ok"] * 3
    assert (found["west: Katib CRDs"].level, found["west: Katib CRDs"].text) == (
        "warning",
        "unknown: no permission",
    )


async def test_doctor_names_missing_permissions_of_a_cluster(west, tmp_path):
    west.store.delete("ClusterRole", "", "sweepbot-cluster")
    found = await examined(tmp_path)
    assert list(found) == ["cluster west"]
    assert found["cluster west"].fix == "Grant `get` of the namespace kube-system."


async def test_doctor_reports_an_unreachable_cluster(west, tmp_path):
    await west.close()
    found = await examined(tmp_path)
    assert [(each.level, "unreachable" in each.text) for each in found.values()] == [("broken", True)]


async def test_doctor_names_what_an_old_cluster_lacks(west, tmp_path, monkeypatch):
    async def version(_):
        return "v1.30.4"

    monkeypatch.setattr(RemoteClient, "version", version)
    found = (await examined(tmp_path))["west: several nodes"]
    assert (found.level, "found v1.30.4" in found.text) == ("warning", True)
