"""The command line as its users run it: a login by a token from Slack, launches from a checkout, scripts."""

import asyncio
import json
import os
import pty
import signal
import sys
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from mcp import Client as Agent
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from local.world import commit, git
from tests.free_port import free_port
from tests.scenarios.local_world import APART, Instance, Sweep, instance, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]


class Shell:
    """A person's shell in the checkout."""

    def __init__(self, made: Instance, home: Path, url: str) -> None:
        self.instance, self.home, self.url = made, home, url

    async def start(
        self, *words: str, program: tuple[str, ...] = ("-m", "bot"), stdout: int = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *program, *words),
            cwd=self.instance.copy,
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(
        self, *words: str, typed: str = "", program: tuple[str, ...] = ("-m", "bot")
    ) -> tuple[int, str, str]:
        """Return the exit code, standard output, and standard error."""
        process = await self.start(*words, program=program)
        out, err = await process.communicate(typed.encode())
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="shell")
async def _shell(tmp_path_factory, mlflow_url):
    """Logged in as ada."""
    port = free_port()
    folder = tmp_path_factory.mktemp("instance")
    async with instance(folder, mlflow_url, APART, SWEEPBOT_API_PORT=str(port)) as made:
        shell = Shell(made, tmp_path_factory.mktemp("home"), f"http://127.0.0.1:{port}")
        token = (await made.types("token")).split("`")[1]
        code, out, err = await shell.run("login", shell.url, typed=f"{token}\n")
        assert (code, out) == (0, ""), err
        assert token not in err
        yield shell


async def test_sweep_is_launched_from_a_checkout_and_followed_to_its_results(shell):
    words = ("launch", "space=tiny", "trials=2", "--wait", "--key", "one")
    code, out, err = await shell.run(*words)
    assert (code, err) == (0, "")
    first, *_, last = (line for line in out.splitlines() if not line.startswith(" "))
    name = first.partition(":")[0]
    assert first == f"{name}: received"
    assert last == f"{name}: succeeded, 2 of 2 trials, best 0.5"
    assert "  Best:    width=2\n" in out
    await Sweep(shell.instance, name, "sweeps").posts("Finished:", "2 trials done")
    code, out, _ = await shell.run(*words)
    assert (code, out.partition(":")[0]) == (0, name), "the same key is the same sweep"
    code, out, _ = await shell.run("results", name)
    assert [line.split()[1:4] for line in out.splitlines()] == [
        ["state", "loss", "width"],
        ["done", "0.5", "2"],
        ["done", "1.0", "1"],
    ]
    code, out, _ = await shell.run("results", name, "--format", "json")
    assert [each["value"] for each in json.loads(out)["trials"]] == [0.5, 1.0]
    code, out, _ = await shell.run("list", "--json")
    assert (code, [json.loads(line)["id"] for line in out.splitlines()]) == (0, [name])
    assert (await shell.run("list"))[1] == f"{name}  succeeded  2 of 2 trials, best 0.5  ada\n"
    code, out, err = await shell.run("logs", name)
    assert (code, err.startswith(f"Log of trial {name}-"), "training with width" in out) == (0, True, True), (
        out
    )


async def test_dry_run_shows_the_plan_and_starts_nothing(shell):
    before = (await shell.run("list", "--json"))[1]
    code, out, err = await shell.run("launch", "space=tiny", "trials=2", "--dry-run")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert (lines[0].startswith("main @ "), lines[-1]) == (True, "Nothing has started.")
    assert "Trials: 2 of 2 combinations, grid search" in [" ".join(line.split()) for line in lines], out
    assert (await shell.run("list", "--json"))[1] == before
    code, out, err = await shell.run("launch", "branch=main", "space=no-such", "--dry-run")
    assert (code, out, "no-such" in err) == (2, "", True)


async def test_documented_notebook_runs_a_sweep_and_shows_its_trials(shell):
    page = (ROOT / "docs" / "command-line.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    launched = "space=lr gpus=2"
    assert launched in code
    code = code.replace(launched, "space=tiny trials=2")
    code += 'print(trials.set_index("width")["value"].to_dict(), trials["started"].dtype.kind)'
    status, out, err = await shell.run(program=("-c", code))
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "{2: 0.5, 1: 1.0} M", out


async def test_followed_sweep_is_cancelled_by_another_command_after_the_server_was_killed(shell):
    code, out, _ = await shell.run("launch", "branch=main", "space=held", "--json")
    name = json.loads(out)["id"]
    watching = await shell.start("watch", name, "--json")
    while (await watching.stdout.readline()).find(b'"running": 2') < 0:
        assert watching.returncode is None
    await shell.instance.kill("serve")
    assert (await shell.run("list", "--active"))[1].startswith(f"{name}  running")
    code, out, _ = await shell.run("cancel", name)
    assert (code, out) == (0, f"Request sent to {name}. Its result appears in sweepbot status {name}\n")
    out, err = await watching.communicate()
    assert (watching.returncode, b"Retrying." in err) == (1, True)
    assert json.loads(out.splitlines()[-1])["state"] == "cancelled"
    code, out, _ = await shell.run("status", name)
    assert (code, out.splitlines()[0].partition(",")[0]) == (0, f"{name}: cancelled")


async def test_interrupted_watch_in_a_terminal_leaves_the_sweep_running(shell):
    """The line is rewritten: a terminal gets no newline before the end."""
    master, slave = pty.openpty()
    process = await shell.start("launch", "space=held", "--wait", stdout=slave)
    os.close(slave)
    name, shown = "", ""
    while "running, 0 of 2 trials, 2 running" not in shown:
        shown += (await asyncio.to_thread(os.read, master, 1000)).decode()
    name = shown.removeprefix("\r\x1b[K").partition(":")[0]
    assert "\n" not in shown
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    os.close(master)
    assert process.returncode == 130
    assert err.decode() == f"Sweep {name} continues. Cancel it with sweepbot cancel {name}\n"
    assert (await shell.run("status", name))[1].startswith(f"{name}: running")
    await shell.run("cancel", name)
    await until(lambda: not shell.instance.pods_alive(), "no pod is left")


def program(shell: Shell) -> StdioServerParameters:
    environment = {"HOME": str(shell.home), "PYTHONPATH": str(ROOT)}
    return StdioServerParameters(command=sys.executable, args=["-m", "bot", "mcp"], env=environment)


async def test_command_line_agent_plain_http_and_slack_drive_one_sweep(shell):
    code, out, err = await shell.run("launch", "branch=main", "space=held", "--json")
    assert (code, err) == (0, "")
    sweep = Sweep(shell.instance, json.loads(out)["id"], "sweeps")
    await sweep.shows("Running", "2 running")
    stored = json.loads((shell.home / ".config/sweepbot/credentials.json").read_text())
    headers = {"Authorization": f"Bearer {stored['token']}", "Idempotency-Key": "one"}
    async with httpx2.AsyncClient(base_url=f"{shell.url}/api/v1/sweeps/{sweep.id}", headers=headers) as http:
        answer = await http.post("/commands", json={"command": "pause now"})
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    async with Agent(program(shell)) as agent:
        found = await agent.call_tool("wait", {"sweep": sweep.id, "seconds": 300})
    assert found.structured_content["state"] == "paused"
    await sweep.click_cancel("ada")
    await sweep.shows("Cancelled")
    code, out, _ = await shell.run("status", sweep.id, "--json")
    assert [each["command"] for each in json.loads(out)["commands"]] == ["launch", "pause_now", "cancel"], out
    await until(lambda: not shell.instance.pods_alive(), "no pod is left")


async def test_agent_launches_waits_and_reads_the_results(shell):
    async with Agent(program(shell)) as agent:

        async def call(tool, **arguments):
            return (await agent.call_tool(tool, arguments)).structured_content

        tools = {tool.name for tool in (await agent.list_tools()).tools}
        assert tools >= {"plan", "launch", "wait", "results", "compare", "history", "why_failed"}
        sweep = (await call("launch", command="branch=main space=tiny trials=2", key="agent"))["id"]
        assert (await call("wait", sweep=sweep, seconds=300))["state"] == "succeeded"
        found = await call("results", sweep=sweep, limit=1)
        assert (found["total"], found["trials"][0]["parameters"]) == (2, {"width": "2"})
        assert sweep in [each["id"] for each in (await call("history", space="tiny"))["sweeps"]]
        assert (await call("why_failed", sweep=sweep))["failed_trials"] == []
        refused = await agent.call_tool("command", {"sweep": sweep, "text": "logs"})
        assert refused.is_error
        assert "isn't one that changes a sweep" in refused.content[0].text


async def test_agent_without_a_command_reaches_the_server_by_http(shell, wait_until):
    token = (await shell.instance.types("token")).split("`")[1]  # a token can make 60 calls a minute
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        door = streamable_http_client(f"{shell.url}/api/v1/mcp", http_client=http)
        async with Agent(door) as agent:
            sweeps = (await agent.call_tool("list_sweeps", {"active": False})).structured_content["sweeps"]
            ended = [each["id"] for each in sweeps if each["state"] == "succeeded"][:2]

            async def compared():
                """Results are stored soon after the end."""
                await asyncio.sleep(2)
                return (await agent.call_tool("compare", {"sweeps": ended})).structured_content

            found = await wait_until(compared, f"{ended} are compared")
            assert [each["id"] for each in found["sweeps"]] == ended
            assert found["comparable"], found
            waiting = await agent.call_tool("wait", {"sweep": ended[0], "seconds": 60})
            assert waiting.structured_content["state"] == "succeeded"


LOOP = ROOT / "examples" / "agent" / "loop.py"
LOOPED = """\
import argparse
from tensorboardX import SummaryWriter
SCALE = 0
options = argparse.ArgumentParser()
options.add_argument("--width")
options.add_argument("--tensorboard_dir", default="runs")
with SummaryWriter(options.parse_args().tensorboard_dir) as log:
    log.add_scalar("loss", (SCALE - 1.3) ** 2, 1)
"""
LOOP_SPACE = """\
command: python looped.py
objective: {metric: loss, goal: minimize}
algorithm: grid
parameters: {width: {min: 1, max: 2}}
"""


async def test_agents_loop_of_10_commits_goes_on_after_kills_of_itself_and_of_sweepbot(shell, tmp_path):
    git(tmp_path, "clone", "--quiet", git(shell.instance.copy, "remote", "get-url", "origin").strip(), "loop")
    folder = tmp_path / "loop"
    git(folder, "config", "user.name", "Agent")
    git(folder, "config", "user.email", "agent@lab.example")
    git(folder, "switch", "--quiet", "--create", "agent")
    (folder / "looped.py").write_text(LOOPED)
    (folder / "sweeps" / "looped.yaml").write_text(LOOP_SPACE)
    commit(folder, "Add a training for a loop")
    words = ["--file=looped.py", "--constant=SCALE", "--start=0", "--step=1", "--tries=10"]
    words += ["--launch=space=looped trials=1"]
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    env |= {"HOME": str(shell.home), "GIT_CONFIG_GLOBAL": os.devnull}
    for killed in ("3", "7", ""):
        loop = await asyncio.create_subprocess_exec(
            *(sys.executable, LOOP, *words), cwd=folder, env=env, stdout=asyncio.subprocess.PIPE
        )
        told = []
        while line := (await loop.stdout.readline()).decode():
            told.append(line)
            if killed and line.startswith(f"{killed}:"):
                loop.kill()
                (folder / "looped.py").write_text("")  # as a kill while it was written leaves it
                await shell.instance.kill("work" if killed == "3" else "serve")
        assert (await loop.wait() == 0) == (not killed)
    assert len(told) == 11, "".join(told)
    assert abs(float(told[-1].split()[3].strip(":")) - 1.3) < 0.1, "".join(told)
    sweeps = [json.loads(line) for line in (await shell.run("list", "--json"))[1].splitlines()]
    looped = [each["id"] for each in sweeps if each["id"].startswith("looped-")]
    assert len(looped) == len(set(looped)) == 10, "one sweep for each commit"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("launch", "branch=main"), "Missing `space=`"),
        (("launch", "branch=main", "space=lr", "gpus=many"), "gpus= must be"),
        (("command", "lr-no-such", "pause"), "No sweep has this name."),
        (("watch", "lr-no-such"), "No sweep has this name."),
    ],
)
async def test_refusal_is_one_sentence_and_exit_code_2(shell, words, refusal):
    code, out, err = await shell.run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(refusal.replace("`", ""))


async def test_revoked_token_is_refused_with_what_to_do(shell):
    await shell.instance.types("token revoke")
    code, out, err = await shell.run("list")
    assert (code, out) == (2, "")
    assert "/sweep token" in err
