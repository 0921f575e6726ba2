"""Alerts and dashboard of deploy/monitoring, run by Prometheus on metrics that the processes serve."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from redis.asyncio import Redis

from bot.core import metrics
from bot.core.metrics import REGISTRY, measured, running, slack_called
from bot.operate.check_services import Installation
from bot.operate.check_state import _prometheus
from bot.platform.runtime.probes import Probes
from bot.platform.storage.queue_state import Figures
from bot.text.masking import Mask
from handlers.http_server import Http, served
from tests.bot.factories import CONFIG, SETTINGS
from tests.deploy.kustomize import DEPLOY, one, render
from tests.free_port import free_port
from tests.servers import running as server

RULES = next(yaml.safe_load_all((DEPLOY / "monitoring" / "alerts.yaml").read_text()))["spec"]
DASHBOARD = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
QUERIES = {target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus isn't installed (Debian: prometheus)",
)

HEALTHY = {
    "sweepbot_redis_up": "1x60",
    "sweepbot_queue_oldest_ready_seconds": "0x60",
    'sweepbot_queue_items{state="quarantined"}': "0x60",
    'sweepbot_watch_last_response_timestamp_seconds{kind="Pod", namespace="sweeps"}': "0+60x60",
    'sweepbot_calls_total{service="slack", result="ok"}': "0+30x60",
    'sweepbot_calls_total{service="slack", result="error"}': "0+1x60",
    "sweepbot_messages_waiting": "3x60",
    "sweepbot_config_last_reload_successful": "1x60",
    'sweepbot_leader{lease="sweepbot:resync"}': "1x60",
    'sweepbot_gpu_figures_timestamp_seconds{figures="hours"}': "0x60",
}
# What each alert's cause does to the series, one sample a minute.
BROKEN = {
    "SweepbotRedisDown": ("sweepbot_redis_up", "0x60"),
    "SweepbotQueueStuck": ("sweepbot_queue_oldest_ready_seconds", "0+60x60"),
    "SweepbotWatchSilent": (
        'sweepbot_watch_last_response_timestamp_seconds{kind="Pod", namespace="sweeps"}',
        "60x60",
    ),
    "SweepbotCallsFail": ('sweepbot_calls_total{service="slack", result="error"}', "0+60x60"),
    "SweepbotMessagesWaiting": ("sweepbot_messages_waiting", "80x60"),
    "SweepbotQuarantine": ('sweepbot_queue_items{state="quarantined"}', "1x60"),
    "SweepbotConfigRejected": ("sweepbot_config_last_reload_successful", "0x60"),
    "SweepbotUnconfirmedUnsaved": ("sweepbot_unconfirmed_unsaved", "1x60"),
    "SweepbotNoLeader": ('sweepbot_leader{lease="sweepbot:resync"}', "0x60"),
    "SweepbotGpuFiguresOld": (
        'sweepbot_gpu_figures_timestamp_seconds{figures="hours"}',
        "-14400x60",
    ),
}


def promtool(folder: Path, *command: str) -> None:
    done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def firing(folder: Path, series: dict[str, str], alert: str, minute: int) -> list[dict[str, Any]]:
    """Return a promtool test of which alerts fire after `minute`; all but `alert` must be silent."""
    names = [rule["alert"] for rule in RULES["groups"][0]["rules"]]
    return [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if name == alert else [],
                }
                for name in names
            ],
        }
    ]


def test_operator_selects_the_rules_and_the_monitor_by_the_release(tmp_path: Path) -> None:
    """As kube-prometheus-stack, whose selectors have the name of its Helm release."""
    kinds = ("PrometheusRule", "PodMonitor")
    shipped = [one(render(DEPLOY / "monitoring"), kind)["metadata"]["labels"]["release"] for kind in kinds]
    assert shipped == ["kube-prometheus-stack"] * 2
    mine = {"resources": [os.path.relpath(DEPLOY / "monitoring", tmp_path)]}
    mine["labels"] = [{"pairs": {"release": "prometheus"}}]  # type: ignore[list-item]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    objects = render(tmp_path)
    assert {one(objects, kind)["metadata"]["labels"]["release"] for kind in kinds} == {"prometheus"}


@needs_prometheus
def test_few_calls_of_a_quiet_night_are_no_alert(tmp_path: Path) -> None:
    quiet = {
        'sweepbot_calls_total{service="git", result="ok"}': "1x60",
        'sweepbot_calls_total{service="git", result="error"}': "0x20 1x7 2x60",
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    tests = [test for minute in range(20, 60, 5) for test in firing(tmp_path, HEALTHY | quiet, "", minute)]
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool(tmp_path, "test", "rules", "test.yaml")


@needs_prometheus
def test_alert_fires_for_its_cause_only(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    promtool(tmp_path, "check", "rules", "rules.yaml")
    tests = firing(tmp_path, HEALTHY, "", 40) + firing(tmp_path, {}, "SweepbotAbsent", 40)
    for alert, (name, values) in BROKEN.items():
        tests += firing(tmp_path, HEALTHY | {name: values}, alert, 40)
    assert {*BROKEN, "SweepbotAbsent"} == {rule["alert"] for rule in RULES["groups"][0]["rules"]}
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool(tmp_path, "test", "rules", "test.yaml")


def test_alerts_and_dashboard_use_existing_metrics() -> None:
    expressions = {rule["expr"] for rule in RULES["groups"][0]["rules"]} | QUERIES
    used = {name for each in expressions for name in re.findall(r"(?:sweepbot|process)_\w+", each)}
    families = {family.name: family.type for family in REGISTRY.collect()}
    suffixes = {"counter": ["_total"], "histogram": ["_bucket"], "gauge": [""]}
    assert used <= {name + end for name, kind in families.items() for end in suffixes[kind]}


def test_runbook_of_each_alert_names_the_section_with_its_row() -> None:
    for rule in RULES["groups"][0]["rules"]:
        found = re.search(r'under the heading "(.+)" of (docs/\S+\.md) in', rule["annotations"]["runbook"])
        assert found, rule["alert"]
        heading, file = found.groups()
        _, _, section = (DEPLOY.parent / file).read_text().partition(f"\n### {heading}\n")
        rows = section.partition("\n## ")[0].splitlines()
        anchor = f'<a id="{rule["alert"]}"></a>'
        assert any(row.startswith(f"| {anchor}`{rule['alert']}` |") for row in rows), rule["alert"]
        assert f"#{rule['alert']}{{{{ end }}}}" in rule["annotations"]["runbook_url"]


@needs_prometheus
@pytest.mark.parametrize("url", ["https://docs.example/0.1.0/operate.html", ""])
def test_runbook_url_is_where_the_pods_say_the_page_is(url: str, tmp_path: Path) -> None:
    """Also after all pods are gone; without RUNBOOK_URL it is empty."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    series = {f'sweepbot_runbook_info{{url="{url}", pod="{pod}"}}': "1x30" for pod in "ab"} if url else {}
    rules = {rule["alert"]: rule["annotations"] for rule in RULES["groups"][0]["rules"]}

    def fires(alert: str, summary: str, series: dict[str, str]) -> dict[str, Any]:
        text = {**rules[alert], "summary": summary, "runbook_url": f"{url}#{alert}" if url else ""}
        labels = {"severity": "page"}
        expected = {"eval_time": "50m", "alertname": alert}
        expected |= {"exp_alerts": [{"exp_labels": labels, "exp_annotations": text}]}
        inputs = [{"series": name, "values": values} for name, values in series.items()]
        return {"interval": "1m", "input_series": inputs, "alert_rule_test": [expected]}

    tests = [
        fires("SweepbotAbsent", "No process of Sweepbot is scraped.", series),
        fires(
            "SweepbotRedisDown",
            "No process of Sweepbot can read Redis. Commands in Slack fail.",
            series | {"sweepbot_redis_up": "0x60"},
        ),
    ]
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool(tmp_path, "test", "rules", "test.yaml")


def test_monitoring_scrapes_the_port_of_the_pods() -> None:
    objects = render(DEPLOY / "monitoring")
    [endpoint] = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    work = one(render(DEPLOY / "base"), "Deployment", "sweepbot-work")
    [container] = work["spec"]["template"]["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    selected = one(objects, "PodMonitor")["spec"]["selector"]["matchLabels"].items()
    assert selected <= work["spec"]["template"]["metadata"]["labels"].items()
    assert json.loads(one(objects, "ConfigMap", "sweepbot-dashboard")["data"]["dashboard.json"]) == DASHBOARD


@pytest.fixture
async def scraped(redis: Redis) -> AsyncIterator[int]:
    """The port of a process that has done some work."""
    with running("sweep", 0.1), measured("slack"):
        slack_called()
    metrics.WATCH_RESPONSE.labels("Pod", "sweeps").set_to_current_time()
    metrics.GPU_FIGURES.labels("hours").set_to_current_time()
    probes = Probes(lambda: False, Mask([]))
    async with served(Http(probes, Figures(redis).refresh), "127.0.0.1", 0) as port:
        yield port
    await probes.close()


@pytest.fixture
def prometheus(tmp_path: Path, scraped: int) -> Iterator[str]:
    own = free_port()
    scrape = {"job_name": "sweepbot", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [scrape]}
    config["rule_files"] = ["rules.yaml"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    flags = [
        f"--web.listen-address=127.0.0.1:{own}",
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
    ]
    with server(["prometheus", *flags], own, tmp_path / "log", cwd=tmp_path):
        yield f"http://127.0.0.1:{own}"


async def result(client: aiohttp.ClientSession, query: str) -> list[Any]:
    async with client.get("/api/v1/query", params={"query": query}) as answer:
        page = await answer.json()
    assert page["status"] == "success", page
    return list(page["data"]["result"])


@needs_prometheus
@pytest.mark.slow
async def test_dashboard_has_data_from_a_real_prometheus(prometheus: str) -> None:
    async with aiohttp.ClientSession(prometheus) as client, asyncio.timeout(200):
        scrapes = "count_over_time(sweepbot_redis_up[2m]) >= 3"
        while True:
            try:
                if await result(client, scrapes):
                    break
            except (aiohttp.ClientError, KeyError):
                pass  # not listening yet
            await asyncio.sleep(0.2)
        found = {query: await result(client, query) for query in QUERIES}
    assert [query for query, rows in found.items() if not rows] == []
    settings = SETTINGS.model_copy(update={"prometheus_url": prometheus})
    *_, finding = await _prometheus(Installation(settings=settings, config=CONFIG))
    assert finding.text == f"Prometheus scrapes 1 pod, {len(RULES['groups'][0]['rules'])} alerts loaded"
