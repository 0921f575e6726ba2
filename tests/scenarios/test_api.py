"""A sweep by the HTTP API, from its person's token to the results, with `serve` killed on the way."""

import asyncio
import json
from contextlib import suppress

import aiohttp
import pytest

from tests.scenarios.local_world import APART, Sweep, instance

pytestmark = pytest.mark.slow


async def test_sweep_by_the_api_goes_on_while_serve_is_killed(tmp_path, mlflow_url, free_port, wait_until):
    port = str(free_port)
    async with instance(tmp_path, mlflow_url, APART, SWEEPBOT_API_PORT=port) as here:
        token = (await here.types("token")).split("`")[1]
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "nightly"}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as client:

            async def launch():
                body = {"command": "branch=main space=held"}
                async with client.post("/api/v1/sweeps", json=body) as answer:
                    assert answer.status == 202
                    return (await answer.json())["id"]

            async def repeated():
                with suppress(aiohttp.ClientError):
                    return await launch()

            async def read(path, **options):
                async with client.get(f"/api/v1{path}", params=options) as answer:
                    assert answer.status == 200, await answer.text()
                    return await answer.json()

            async with client.post("/api/v1/plans", json={"command": "branch=main space=held"}) as answer:
                plan = await answer.json()
            assert (plan["branch"], plan["trials"], len(plan["commit"])) == ("main", 2, 40), plan
            assert {"Trials", "Goal", "Image"} <= {each["name"] for each in plan["facts"]}
            name = await launch()
            await here.kill("serve")
            assert await wait_until(repeated, "serve answers again") == name
            sweep = Sweep(here, name, "sweeps")
            await sweep.shows("2 running", "by the API")
            assert {each["state"] for each in await results(client, name)} == {"active"}
            found = await read(f"/sweeps/{name}/logs")
            assert (found["source"].startswith(f"trial {name}-"), found["cause"]) == (True, None), found
            here.hold.unlink()
            assert await followed(client, name) == "succeeded"
            assert [each["state"] for each in await results(client, name, done=True)] == ["done", "done"]
            assert (await read(f"/sweeps/{name}", wait="5"))["state"] == "succeeded"
            [past] = (await read("/history", space="held"))["sweeps"]
            assert (past["id"], past["commit"], past["trials"]) == (name, plan["commit"], 2)
            assert "ada started the sweep by the API" in await here.types(f"status {name}")
        logs = [file.read_text(errors="replace") for file in (tmp_path / "logs").iterdir()]
        assert not any(token in log for log in logs)
        assert any("via=API action=launch" in log for log in logs)


async def followed(client, name):
    """Return the last state of a sweep's events."""
    state = ""
    async with client.get(f"/api/v1/sweeps/{name}/events") as stream:
        async for line in stream.content:
            state = json.loads(line[6:])["state"] if line.startswith(b"data: ") else state
    return state


async def results(client, name, *, done=False):
    """Return the trials, once there are some; `done`: once none is active. They can be seconds old."""
    while True:
        async with client.get(f"/api/v1/sweeps/{name}/results") as answer:
            trials = (await answer.json())["trials"]
        if trials and not (done and any(each["state"] == "active" for each in trials)):
            return trials
        await asyncio.sleep(1)
