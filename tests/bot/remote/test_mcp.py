"""The tools that an agent gets, by MCP's own client."""

import json

import pytest
from mcp import Client as Agent

from bot.remote import client, mcp_tools
from bot.remote.client import Client
from bot.remote.credentials import Credentials
from bot.remote.mcp_tools import Remote
from bot.remote.mcp_tools import server as mcp_server
from k8s.retry import Retry
from tests.bot.remote.test_client import SWEEP, TOKEN, problem


@pytest.fixture
def call(server, monkeypatch):
    """`await call(tool, **arguments)`: whether it failed, and the answer or the error's text."""
    monkeypatch.setattr(client, "RETRY", Retry(base=0, attempts=2))
    credentials = Credentials(f"http://127.0.0.1:{server.server_port}", TOKEN)

    calls = Remote(Client(credentials, lambda _: None))

    async def answer(tool, **arguments):
        async with Agent(mcp_server(lambda _: calls)) as agent:
            found = await agent.call_tool(tool, arguments)
        return found.is_error, found.content[0].text if found.is_error else found.structured_content

    return answer


def ok(answer, status=200):
    return status, {}, json.dumps(answer)


async def test_launch_with_a_key_is_the_same_sweep(server, call):
    server.answers = [ok({"id": "lr-brave-otter", "state": "received"}, 202)]
    for _ in range(2):
        found = await call("launch", command="branch=main space=lr", key="try-7")
        assert found == (False, {"id": "lr-brave-otter", "state": "received"})
    assert [headers["Idempotency-Key"] for _, _, headers in server.calls] == ["try-7", "try-7"]


async def test_error_is_what_the_server_says(server, call):
    server.answers = [problem(422, "Missing `space=`. Example: `/sweep branch=main gpus=1 space=lr`")]
    failed, text = await call("launch", command="branch=main", key="one")
    assert failed
    assert text.endswith("Missing space=. Example: /sweep branch=main gpus=1 space=lr")
    server.answers = [problem(503, "Redis doesn't respond.")]
    assert (await call("status", sweep="lr-brave-otter"))[1].endswith("Redis doesn't respond.")


async def test_key_that_can_not_be_sent_is_named(server, call):
    for key in ("try–7", "try\n7"):
        failed, text = await call("launch", command="branch=main space=lr", key=key)
        assert (failed, "key must be 1 to 200 printable ASCII characters." in text) == (True, True), text
    assert server.calls == []


async def test_command_is_not_sent_after_its_agent_has_given_up(server, call):
    """With another key, the agent's own repetition would extend the sweep twice."""
    server.answers = [problem(503, "No worker has answered.", **{"Retry-After": "60"}), ok({}, 202)]
    failed, text = await call("command", sweep="lr-brave-otter", text="extend trials=30")
    assert (failed, text.endswith("No worker has answered."), len(server.calls)) == (True, True, 1)


@pytest.mark.parametrize("change", [{"state": "succeeded", "ended": "now"}, {"state": "held"}])
async def test_wait_returns_when_the_sweep_ended_or_needs_a_decision(server, call, change, monkeypatch):
    monkeypatch.setattr(mcp_tools, "PAUSE", 0)
    server.answers = [ok(SWEEP), ok(SWEEP), ok(SWEEP | change)]
    assert await call("wait", sweep="lr-brave-otter", seconds=100) == (False, SWEEP | change)
    assert len(server.calls) == 3


async def test_wait_returns_after_its_time(server, call):
    server.answers = [ok(SWEEP)]
    assert await call("wait", sweep="lr-brave-otter", seconds=0) == (False, SWEEP)
    failed, _ = await call("wait", sweep="lr-brave-otter", seconds=4000)
    assert (failed, len(server.calls)) == (True, 1)


async def test_results_are_the_best_trials_and_their_number(server, call):
    trials = [{"name": f"t{number}", "value": number} for number in range(3)]
    server.answers = [ok({"trials": trials})]
    assert await call("results", sweep="lr-brave-otter", limit=2) == (
        False,
        {"total": 3, "trials": trials[:2]},
    )


async def test_list_says_whether_it_is_complete(server, call):
    listed = SWEEP | {"best": 0.25}
    server.answers = [ok({"sweeps": [listed], "next": "c"})]
    assert await call("list_sweeps") == (False, {"sweeps": [listed], "complete": False})
    assert server.calls[0][1] == "/api/v1/sweeps?limit=200&active=true"


async def test_command_is_sent_as_it_is(server, call):
    server.answers = [ok({"id": "lr-brave-otter", "accepted": True}, 202)]
    assert await call("command", sweep="lr-brave-otter", text="pause now") == (
        False,
        {"id": "lr-brave-otter", "accepted": True},
    )


async def test_why_failed_has_the_failed_trials_and_the_end_of_a_log(server, call):
    failed = SWEEP | {"state": "failed", "ended": "now", "reason": "All failed.", "cause": "ValueError: x"}
    trials = [
        {"name": name, "state": state, "value": None, "parameters": {"lr": "1"}}
        for name, state in (("t1", "done"), ("t2", "failed"))
    ]
    log = {"source": "trial t2", "cause": "ValueError: x", "log": "\n".join(map(str, range(100)))}
    server.answers = [ok(failed), ok({"trials": trials}), ok(log)]
    is_error, found = await call("why_failed", sweep="lr-brave-otter", lines=2)
    assert not is_error, found
    assert (found["reason"], found["failed_trials"]) == (
        "All failed.",
        [{"name": "t2", "parameters": {"lr": "1"}}],
    )
    assert (found["log"]["log"], found["log"]["lines"]) == ("98\n99", 100)
    assert server.calls[-1][1] == "/api/v1/sweeps/lr-brave-otter/logs?trial=t2"
    server.answers = [ok(failed), ok({"trials": []}), problem(422, "Its pod was deleted.")]
    _, found = await call("why_failed", sweep="lr-brave-otter")
    assert found["log"] == {"unavailable": "Its pod was deleted."}


async def test_compare_and_history_are_exact(server, call):
    server.answers = [ok({"sweeps": [], "comparable": False, "text": "x"})]
    assert (await call("compare", sweeps=["lr-a-b", "lr-c-d"]))[1]["text"] == "x"
    assert server.calls[-1][1] == "/api/v1/comparison?sweeps=lr-a-b%2Clr-c-d"
    server.answers = [ok({"sweeps": [{"id": "a"}, {"id": "b"}]})]
    assert await call("history", space="lr", limit=1) == (False, {"total": 2, "sweeps": [{"id": "a"}]})
