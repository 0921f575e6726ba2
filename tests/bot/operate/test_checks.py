"""The checks of the doctor on a healthy installation, and on one with a fault."""

import asyncio
import re
from dataclasses import replace

import pytest

from bot import workspace_table
from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.work_item import DOCTOR
from bot.operate import checks, findings
from bot.operate.check_cluster import profiles
from bot.operate.check_queues import queues
from bot.operate.check_services import SCOPES
from bot.operate.check_trial_kinds import operators
from bot.operate.findings import findings_lines
from bot.platform.clients import Clients
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.settings import Settings
from bot.platform.slack.client import NotInChannelError
from bot.platform.storage.sweeps import Store as Records
from tests.bot.factories import CONFIG, SETTINGS
from tests.bot.operate.faults import (
    FAULTS,
    an_exporter_is_missing,
    exporters_are_forbidden,
    gpu_operator,
    no_namespace,
    prometheus_down,
    webhook_without_backend,
)
from tests.bot.operate.installation import DEPLOY


async def test_checks_of_a_healthy_installation_find_only_ok(here):
    assert await here.examined() == []
    guide = (DEPLOY.parent / "docs" / "install.md").read_text()
    assert [one.check for one in here.all] == re.findall(r"^ok       ([^:]+):", guide, re.MULTILINE)


@pytest.mark.parametrize("faults", FAULTS)
async def test_checks_find_each_fault_with_its_fix(here, faults):
    for plant, *_ in faults:
        await plant(here)
    findings = await here.examined()
    assert len(findings) == len(faults)
    found = {finding.check: finding for finding in findings}
    for _, check, level, words, fix in faults:
        assert found[check].level == level
        assert words in found[check].text
        assert fix in found[check].fix


async def test_missing_exporter_leaves_its_node_without_metrics(here):
    await an_exporter_is_missing(here)
    log, use = await here.examined()
    assert (use.check, use.level) == ("GPU use", "warning")
    assert "dcgm-exporter" in use.fix
    assert "no dcgm-exporter on gpu-2" in use.text
    assert (log.check, log.level, log.text[:14]) == ("kubelet logs", "warning", "gpu-2: unknown")


async def test_exporters_in_another_namespace_need_their_own_roles(here):
    await exporters_are_forbidden(here)
    *logs, use = await here.examined()
    assert (use.check, use.level) == ("GPU use", "warning")
    assert "in gpu-operator; GPU use is unknown" in use.text
    assert "deploy/usage" in use.fix
    assert [(log.check, log.level, log.text[:14]) for log in logs] == [
        ("kubelet logs", "warning", "gpu-1: unknown"),
        ("kubelet logs", "warning", "gpu-2: unknown"),
    ]
    assert all("deploy/doctor in gpu-operator" in log.text for log in logs)


async def test_one_fault_can_cause_two_findings(here):
    await webhook_without_backend(here)
    assert [f.check for f in await here.examined()] == ["Katib validating webhook", "Katib mutating webhook"]


async def test_missing_namespace_is_reported(here):
    await no_namespace(here)
    assert [f.check for f in await here.examined()] == ["RBAC in elsewhere", "namespace elsewhere"]


async def test_every_trial_namespace_is_checked(here):
    here.config = replace(here.config, namespaces=("speech", "vision"))
    rights, *more = await here.examined()
    assert (rights.check, rights.fix) == (
        "RBAC in speech",
        "kubectl -n speech apply -f deploy/namespace/rights.yaml",
    )
    assert "list events" in rights.text
    assert [finding.check for finding in more] == ["RBAC in vision", "namespace vision"]


async def test_missing_scope_is_named(here, monkeypatch):
    all_but_one = [scope for scope in SCOPES if scope != "files:write"]
    monkeypatch.setattr("local.slack.webapi.SCOPES", ",".join(all_but_one))
    [finding] = await here.examined()
    assert (finding.check, finding.text) == ("Slack scopes", "bot token is missing files:write")


async def test_doctor_without_its_role_reports_missing_permissions_and_no_faults(here):
    here.store.delete("ClusterRoleBinding", "", "sweepbot-doctor")
    here.store.delete("ClusterRoleBinding", "", "sweepbot-usage")
    found = await here.examined()
    assert {f.text for f in found} == {"unknown: no permission"}
    assert {f.level for f in found} == {"warning"}
    assert {f.fix for f in found} == {"kubectl apply -k deploy/doctor", "kubectl apply -k deploy/usage"}
    assert len(found) == 10


async def test_invalid_setting_is_reported_by_its_sentence():
    async def check():
        raise UserError("REDIS_URL: the value of db is invalid.")

    [finding] = await findings.run_all([("Redis", check())])
    assert (finding.check, finding.text) == ("Redis", "REDIS_URL: the value of db is invalid.")


async def test_unreadable_log_is_unknown_not_broken(here):
    here.store.delete("RoleBinding", "dcgm-exporter", "sweepbot-doctor")
    assert [(f.check, f.level) for f in await here.examined()] == [("kubelet logs", "warning")] * 2
    denied = [finding.text for finding in here.all if finding.check == "kubelet logs"]
    assert denied == [
        f"{node}: unknown; no permission to read logs in dcgm-exporter and kube-system"
        for node in ("gpu-1", "gpu-2")
    ]


async def test_logs_of_kube_system_are_not_granted(here):
    assert [finding.check for finding in await here.examined()] == []
    roles = here.store.list("Role", "kube-system")
    assert not any("pods/log" in rule["resources"] for role in roles for rule in role["rules"])


async def test_one_readable_pod_is_enough(here):
    gpu_operator(here)
    for number in range(5):
        meta = {"name": f"device-plugin-{number}", "namespace": "gpu-operator"}
        spec = {"nodeName": "gpu-1", "containers": [{"name": "main", "image": "x"}]}
        here.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        here.change("Pod", meta["name"], {"status": {"phase": "Running"}}, "gpu-operator", "status")
    assert await here.examined() == []


async def test_prometheus_makes_exporter_access_unnecessary(here):
    await exporters_are_forbidden(here)
    await prometheus_down(here)
    assert {finding.check for finding in await here.examined()} == {"Prometheus", "kubelet logs"}


async def test_mlflow_gets_the_credentials_that_its_own_client_would_send(here, monkeypatch):
    for name, text in (("USERNAME", "bot"), ("TOKEN", "token")):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", text)
    await here.examined()
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "password")
    await here.examined()
    assert here.logins == ["Bearer token", "Basic Ym90OnBhc3N3b3Jk"]


async def test_endless_check_is_stopped(here, monkeypatch):
    monkeypatch.setattr(findings, "CHECK_TIMEOUT", 0.5)

    async def silent(_):
        await asyncio.Event().wait()

    here.mlflow_status = None
    monkeypatch.setitem(checks.CHECKS, "MLflow", silent)
    [finding] = [f for f in await here.examined() if f.check == "MLflow"]
    assert "no answer within" in finding.text


async def test_findings_contain_no_secrets(here):
    here.settings |= {"slack_bot_token": "xoxb-planted", "slack_app_token": "xapp-planted"}
    here.settings |= {"redis_url": "redis://:planted@127.0.0.1:9/0"}
    await here.examined()
    assert "planted" not in findings_lines(here.all)


class EphemeralSlack:
    def __init__(self, refuses=()):
        self.received, self.refuses = [], refuses

    async def post_ephemeral(self, user, text, response_url):
        if user in self.refuses:
            raise NotInChannelError(user)
        self.received.append((user, text.partition("\n")[0], response_url))


def clients_of(here, records, slack_):
    config = replace(here.config, admins=("U1", "U2", "U3"))
    unused = dict.fromkeys(("cluster", "registry", "git", "queue", "capacity", "now"))
    return Clients(store=records, slack=slack_, settings=Settings(**here.settings), config=config, **unused)


async def test_checks_answers_each_requester_once(here):
    records, slack_ = Records(here.redis), EphemeralSlack(refuses={"U2"})
    for user in ("U1", "U2", "U3", "U4"):
        await records.add_command(
            str(DOCTOR), Command(action=Action.EXAMINE, user=user, user_name="", response_url=f"url-{user}")
        )
    clients = clients_of(here, records, slack_)
    policy = LivePolicy(here.config)
    await checks.answer_commands(DOCTOR.key, clients, policy, workspace_table.checks)
    await checks.answer_commands(DOCTOR.key, clients, policy, workspace_table.checks)
    counts = "*Sweepbot doctor:* 0 broken, 0 warnings, 22 ok"
    denial = "Only admins can do that: <@U1>, <@U2>, or <@U3>."
    answers = [("U1", counts, "url-U1"), ("U3", counts, "url-U3"), ("U4", denial, "url-U4")]
    assert slack_.received == answers
    assert await records.commands(str(DOCTOR)) == []


async def test_checks_reports_a_rejected_configuration_first(here):
    records, slack_ = Records(here.redis), EphemeralSlack()
    await records.add_command(str(DOCTOR), Command(action=Action.EXAMINE, user="U1", user_name=""))
    clients = clients_of(here, records, slack_)
    policy = LivePolicy(here.config)
    policy.error = "config.yaml:3: admins: must be a list."
    await checks.answer_commands(DOCTOR.key, clients, policy, workspace_table.checks)
    [(_, counts, _)] = slack_.received
    assert counts == "*Sweepbot doctor:* 1 broken, 0 warnings, 22 ok"
    [finding] = checks.configuration(policy.error)
    assert (finding.check, finding.text) == ("configuration", policy.error)


async def test_checks_find_nothing_about_what_is_not_configured():
    of_workspaces = [check for _, check in workspace_table.checks(None, SETTINGS, CONFIG)]
    others = profiles(None, CONFIG), queues(None, SETTINGS, CONFIG), operators(None, CONFIG)
    assert [await check for check in (*of_workspaces, *others)] == [[]] * (len(of_workspaces) + 3)
