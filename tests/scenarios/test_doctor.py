"""`sweepbot doctor` as a process, and `/sweep doctor` through Slack, Redis and a worker of a whole world."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from local.world import NAMESPACE, world

pytestmark = pytest.mark.slow
LABEL = "katib.kubeflow.org/metrics-collector-injection"


async def cli(here, *flags):
    """What `sweepbot doctor` prints, and its exit code."""
    command = [sys.executable, "-m", "bot", "doctor", *flags]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **here.env}, stdout=pipe)
    out, _ = await process.communicate()
    return out.decode(), process.returncode


def add_webhook(config):
    config.write_text(config.read_text() + "webhooks: {alerts: {url: https://hooks.example.com}}\n")


async def test_doctor_reports_a_healthy_and_then_a_broken_world(tmp_path, mlflow_url, wait_until):
    async with world(tmp_path, mlflow_url) as here:
        pods = lambda: here.store.list("Pod", "kube-system")  # noqa: E731
        running = lambda: {p["status"]["phase"] for p in pods()} == {"Running"}  # noqa: E731
        await wait_until(running, "the device plugin runs")
        text, code = await cli(here)
        assert (code, text.splitlines()[-1]) == (0, "0 broken, 0 warnings, 27 ok"), text
        await here.start_bot("all")

        here.store.patch("Namespace", "", NAMESPACE, {"metadata": {"labels": {LABEL: None}}})
        found, code = await cli(here, "--json")
        [broken] = [one for one in json.loads(found) if one["level"] != "ok"]
        assert (code, broken["check"]) == (1, "namespace sweeps")

        message = await here.slack.command("ada", "random", "/sweep", "doctor")
        assert message.startswith("Running checks…")
        reported = lambda: [m["text"] for m in here.slack.ephemerals("ada") if ":x:" in m["text"]]  # noqa: E731
        [answer] = await wait_until(reported, "the doctor answers ada alone")
        counts, first, *_ = answer.splitlines()
        assert counts == "*Sweepbot doctor:* 1 broken, 0 warnings, 26 ok"
        assert first.startswith(":x: *namespace sweeps*: missing label")
        message = await here.slack.command("grace", "sweeps", "/sweep", "doctor")
        assert "Only admins can do that" in message
        assert not here.slack.messages("random")

        add_webhook(Path(here.env["SWEEPBOT_CONFIG"]))
        found, _ = await cli(here, "--json")
        [first, *_] = json.loads(found)
        assert first["check"] == "configuration"
        assert first["found"].startswith("WEBHOOK_ALERTS_SECRET must be whsec_")
