"""The operators' commands as processes, `/sweep admin`, and a changed configuration, in a whole world."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from local.slack.workspace import ADA
from local.world import world

pytestmark = pytest.mark.slow


async def cli(here, *words):
    """What the command prints, and its exit code."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", *words),
        env={**os.environ, **here.env, "HOME": str(here.folder)},
        stdout=pipe,
        stderr=pipe,
    )
    out, errors = await process.communicate()
    return (out + errors).decode().splitlines(), process.returncode


def config(here, text=""):
    """Replace the configuration file if there is a text; return the file's."""
    file = Path(here.env["SWEEPBOT_CONFIG"])
    if text:
        file.write_text(text)
    return file.read_text()


async def test_operator_commands_and_a_changed_configuration_need_no_restart(tmp_path, wait_until):
    async with world(tmp_path, "http://127.0.0.1:1") as here:
        [channel] = [id_ for id_, each in here.slack.workspace.channels.items() if each.name == "sweeps"]
        valid = f"{config(here)}admin_channel: {channel}\n"
        config(here, valid)
        await here.start_bot("all")
        await here.processes.says("all", "(working in namespace)")

        config(here, valid.replace(ADA.id, "no-user"))
        reports = lambda: [m["text"] for m in here.slack.messages("sweeps") if "config.yaml" in m["text"]]  # noqa: E731
        [report] = await wait_until(reports, "the admin channel gets the error")
        assert report.startswith(":warning: *config.yaml has errors.*")
        assert "admins" in report
        config(here, valid)
        await wait_until(lambda: len(reports()) == 2, "the admin channel gets the end of it")

        summary = "0 unfinished sweeps; 0 quarantined, 0 failing; workers running."
        lines, code = await cli(here, "ps")
        assert (code, lines[0]) == (0, summary)
        lines, code = await cli(here, "inspect", "no-such-sweep")
        unknown = "no-such-sweep: Unknown sweep: Redis and the cluster have no record. Fix: Check the name"
        assert (code, len(lines)) == (1, 1)
        assert lines[0].startswith(unknown)
        for word in ("retry", "release", "results"):
            lines, code = await cli(here, word, "no-such-sweep")
            assert (code, len(lines)) == (1, 1), lines
        assert "Running `ps`" in await here.slack.command("ada", "sweeps", "/sweep", "admin ps")
        shown = lambda: [m for m in here.slack.ephemerals("ada") if m["text"].startswith(summary)]  # noqa: E731
        await wait_until(shown, "a worker answers ada")
        here.processes.check()
