"""`sweepbot results`: an ended sweep's trials, on standard output."""

import argparse
import json

import pytest

from bot import results_command
from bot.__main__ import main
from bot.core.errors import UserError
from bot.platform.runtime import log_format
from bot.sweep.results.store import ResultsStore
from k8s.api.client import KubernetesClient
from k8s.engine import TrialState
from local.kubernetes.apiserver.store import Store
from tests.bot.sweep.results.factories import SWEEP, a_result, some_results
from tests.scenarios.fakes import DirectCluster

TOKEN = "hf_" + "a" * 30


class Cluster(DirectCluster):
    async def close(self):
        pass


@pytest.fixture(autouse=True)
def without_login(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
async def cluster(monkeypatch):
    found = Cluster(Store())
    found.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
    secret = a_result("t2", None, TrialState.FAILED, parameters={"lr": TOKEN})
    await ResultsStore(found, "sweeps").save(
        some_results(a_result("t1"), secret, best=f"{SWEEP}-t1", omitted=3)
    )

    async def connect():
        return found

    monkeypatch.setattr(KubernetesClient, "connect", connect)
    return found


def printed(capsys, sweep=SWEEP, **options):
    arguments = argparse.Namespace(sweep=sweep, **{"format": "table", "namespace": None} | options)
    assert results_command.print_results(arguments) == 0
    return capsys.readouterr().out


def test_results_are_printed_as_a_table_without_secrets(cluster, capsys):
    lines = printed(capsys).splitlines()
    assert lines[0].split()[:6] == ["trial", "state", "val_loss", "lr", "layers", "optimizer"]
    assert lines[1].split()[:6] == [f"{SWEEP}-t1", "done", "0.5", "0.01", "2", "adam"]
    assert lines[-1] == "3 more trials weren't stored."
    assert "hf_" not in "\n".join(lines)


def test_results_are_printed_as_csv_and_json_without_secrets(cluster, capsys):
    assert printed(capsys, format="csv").startswith("trial,state,val_loss,lr,layers,optimizer,started,")
    text = printed(capsys, format="json")
    assert [trial["name"] for trial in json.loads(text)["trials"]] == [f"{SWEEP}-t1", f"{SWEEP}-t2"]
    assert "hf_" not in text


def test_unknown_sweep_is_named_with_what_to_do(cluster, capsys):
    with pytest.raises(UserError, match="No results of lr-other in namespace sweeps"):
        printed(capsys, "lr-other")


def test_unreadable_results_are_an_error(cluster, capsys):
    cluster.store.patch("ConfigMap", "sweeps", f"results-{SWEEP}", {"binaryData": {"results": "AAAA"}})
    with pytest.raises(UserError, match="can't be read"):
        printed(capsys)


def test_error_on_a_terminal_has_no_markup(cluster, capsys, monkeypatch):
    monkeypatch.setattr(log_format, "start", lambda *_: None)  # the tests' own logging stays
    monkeypatch.setattr("sys.argv", ["sweepbot", "results", f"lr-{TOKEN}"])
    assert main() == 1
    complaint = capsys.readouterr().err
    assert "Fix: Give the sweep's full name" in complaint
    assert "*" not in complaint.replace("***", "")
    assert TOKEN not in complaint
