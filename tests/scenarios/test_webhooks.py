"""A sweep's events reach a receiver of another team, which fails at first, while a worker is killed."""

import base64
import hashlib
import hmac
import json

import pytest
from aiohttp import web

from local.world import world
from tests.scenarios.local_world import prepared, until

pytestmark = [pytest.mark.slow, pytest.mark.features("webhooks")]

KEY = b"k" * 32
CONFIG = """\
webhooks:
  lab-alerts:
    url: http://{}/sweeps/path-that-nobody-logs
    channels: [{}]
"""


async def test_receiver_gets_signed_events_although_it_fails_and_a_worker_is_killed(
    tmp_path, mlflow_url, toy
):
    calls, accepted = [], {}

    async def receive(request):
        body, headers = await request.read(), request.headers
        signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
        expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        calls.append(headers["webhook-id"])
        if len(calls) <= 2:
            return web.Response(status=500)
        accepted.setdefault(headers["webhook-id"], json.loads(body))
        return web.Response(status=204)

    address = await toy(receive)
    async with world(tmp_path, mlflow_url) as here:
        secret = f"whsec_{base64.b64encode(KEY).decode()}"
        here.env["WEBHOOK_LAB_ALERTS_SECRET"] = secret
        made = prepared(here, CONFIG.format(address, here.slack.workspace.channel("sweeps").id))
        await here.start_bot("serve", "work")
        sweep = await made.sweep("branch=main space=held")
        await until(lambda: calls, "the receiver is called")
        await made.kill_worker()
        await until(lambda: accepted, "the receiver has accepted an event")
        await sweep.shows("2 running")
        made.hold.unlink()
        await until(lambda: len(accepted) == 3, "the sweep's end is reported", sweep.story)
        assert len(set(calls[:3])) == 1, "the event that failed came again"
        assert [each["type"] for each in accepted.values()] == [
            "sweep.started",
            "sweep.first_trial.healthy",
            "sweep.ended",
        ]
        end = [*accepted.values()][-1]["data"]
        assert (end["id"], end["state"], end["owner"], end["best"]["value"]) == (
            *(sweep.id, "succeeded", "ada", 0.5),
        )
        assert end["thread"].startswith("http")
        await sweep.posts("Finished:")
    logs = "".join(file.read_text(errors="replace") for file in (tmp_path / "logs").iterdir())
    assert "the receiver answers with status 500" in logs
    assert "path-that-nobody-logs" not in logs
    assert secret.removeprefix("whsec_") not in logs
