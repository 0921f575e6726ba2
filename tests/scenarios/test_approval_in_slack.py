"""Budgets of a month as people meet them: a waiting sweep, an approver's click, and an agent's token."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from local.world import world
from tests.scenarios.local_world import Sweep, prepared

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


async def command_line(here, home, url, token, *words):
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", *words),
        cwd=here.copy,
        env=env | {"SWEEPBOT_URL": url, "SWEEPBOT_TOKEN": token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.features("approval")
async def test_sweep_waits_for_a_click_while_workers_are_killed(tmp_path, mlflow_url, free_port):
    async with world(tmp_path, mlflow_url) as around:
        around.env["SWEEPBOT_API_PORT"] = str(free_port)
        here = prepared(around, "budgets: {person: 20}\n")
        await around.start_bot("serve", "work")
        sweep = await here.sweep("branch=main space=tiny", person="grace")
        await sweep.posts(
            "Waiting for approval by", "the forecast is unknown, and grace has used 0 of 20 GPU-h"
        )
        await sweep.shows("Waiting for approval: the forecast", "can approve it. Nothing is built")
        await here.kill_worker()
        before = len(here.slack.ephemerals("grace"))
        await here.slack.click("grace", "sweeps", sweep.parent()["ts"], "approve_sweep")
        assert "You can't approve your own sweep. Ask" in await here.whispered("grace", before)
        assert not sweep.objects("Experiment")
        await here.slack.click("ada", "sweeps", sweep.parent()["ts"], "approve_sweep")
        await sweep.posts("approved this sweep")
        await sweep.posts("Finished:", "2 trials done")
        assert "ada approved the sweep" in await here.types(f"status {sweep.id}")
        known = await here.sweep("branch=main space=tiny", person="grace")
        await known.posts("Finished:")
        assert not [text for text in known.thread() if "approv" in text]
        large = await here.sweep("branch=main space=held budget=50", person="grace")
        await large.posts("the forecast is 50 GPU-h, and grace has used")
        await here.types(f'decline {large.id} reason="use tiny"', person="ada")
        await large.posts(":x:", "Declined by ada: use tiny")
        await large.shows("Declined by ada: use tiny")

        token = (await here.types("token budget=2", person="grace")).split("`")[1]
        (here.copy / "note.txt").write_text("not committed\n")
        url = f"http://127.0.0.1:{free_port}"
        _, out, err = await command_line(here, tmp_path, url, token, "launch", "space=tiny", "budget=3")
        assert "Pushed 1 uncommitted change and the commits of this checkout to sweepbot/" in err
        name = out.partition(":")[0]
        (here.copy / "note.txt").unlink()
        own = Sweep(here, name, "sweeps")
        await own.shows("1 uncommitted change on main", "sweepbot/")
        await own.posts("Finished:")
        _, out, err = await command_line(here, tmp_path, url, token, "launch", "branch=main", "space=held")
        agent = Sweep(here, out.partition(":")[0], "sweeps")
        await agent.posts("Waiting for approval by", "the forecast is unknown, and the token has used")
        _, out, _ = await command_line(here, tmp_path, url, token, "status", agent.id)
        assert "Reason:  Waiting for approval: the forecast is unknown, and the token" in out
        code, _, err = await command_line(here, tmp_path, url, token, "command", agent.id, "approve")
        assert (code, "A person must decide" in err) == (2, True), err
        assert not agent.objects("Experiment")
