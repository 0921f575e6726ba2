"""MCP by HTTP, by MCP's own client: the API's calls, with the token's permissions."""

import httpx2
import pytest
from mcp import Client as Agent
from mcp.client.streamable_http import streamable_http_client

from bot.core.errors import UserError
from bot.core.record import Phase
from bot.core.request import Requester
from handlers.api.callers import CALLS_PER_MINUTE
from handlers.api.mcp import AgentDoor
from tests.bot.factories import OWNER
from tests.handlers.api.test_sweeps import stored


@pytest.fixture
def agent_door():
    return AgentDoor


@pytest.fixture
def agent(api, token):
    """`await agent(tool, **arguments)`: whether it failed, and the answer or the error's text."""

    async def answer(tool, **arguments):
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            door = streamable_http_client(f"http://127.0.0.1:{api.port}/api/v1/mcp", http_client=http)
            async with Agent(door) as there:
                found = await there.call_tool(tool, arguments)
        return found.is_error, found.content[0].text if found.is_error else found.structured_content

    return answer


async def test_agent_launches_follows_and_stops_its_sweep(agent, context):
    failed, made = await agent("launch", command="branch=main space=lr", key="one")
    assert (failed, made["state"]) == (False, "received")
    assert (await agent("launch", command="branch=main space=lr", key="one"))[1] == made
    assert (await context.store.get(made["id"])).requester.user == "U1"
    assert (await agent("wait", sweep=made["id"], seconds=0))[1]["state"] == "received"
    assert (await agent("command", sweep=made["id"], text="cancel"))[1]["accepted"]
    assert len(await context.store.commands(made["id"])) == 1


async def test_agent_that_waits_while_the_process_stops_keeps_its_calls(agent, context, stop):
    sweep = await stored(context, Phase.RUNNING)
    stop.set()
    failed, found = await agent("wait", sweep=sweep.id, seconds=2)
    assert (failed, found["state"]) == (False, "running")


async def test_agent_is_told_at_once_that_its_sweep_waits_for_approval(agent, context):
    sweep = await stored(context, Phase.OPENING, holds=("approval",), reason="the forecast is 9 GPU-h")
    _, found = await agent("wait", sweep=sweep.id, seconds=3600)
    assert (found["state"], found["reason"]) == (
        "opening",
        "Waiting for approval: the forecast is 9 GPU-h",
    )


async def test_agent_reads_the_sentence_of_a_refusal(agent, context):
    theirs = Requester(user=OWNER, user_name="bo", channel="C1")
    sweep = await stored(context, Phase.RUNNING, requester=theirs)
    failed, text = await agent("command", sweep=sweep.id, text="cancel")
    assert (failed, text.endswith("(owner) or an admin can cancel lr-brave-otter.")) == (True, True), text
    assert "Missing space=." in (await agent("launch", command="branch=main", key="two"))[1]


@pytest.mark.parametrize("by", ["", "swb_" + "x" * 43])
async def test_strangers_reach_no_tool(api, by):
    headers = {"Authorization": f"Bearer {by}", "Accept": "application/json, text/event-stream"}
    for body in (b"{", b"x" * 100_000, b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'):
        async with api.post("/api/v1/mcp", headers=headers, data=body) as answer:
            assert answer.status == 401
    async with api.get("/api/v1/mcp", headers=headers) as answer:
        assert answer.status == 405


async def test_large_and_broken_messages_are_refused(api, token):
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    headers["Content-Type"] = "application/json"
    for body, status in ((b"x" * 100_000, 413), (b"{", 400), (b"[" * 10_000, 400)):
        async with api.post("/api/v1/mcp", headers=headers, data=body) as answer:
            assert answer.status == status


async def test_agents_share_the_tokens_rate(api, token, call):
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    statuses = []
    for _ in range(CALLS_PER_MINUTE + 1):
        async with api.post("/api/v1/mcp", headers=headers, json=listing) as answer:
            statuses.append(answer.status)
    assert statuses == [200] * CALLS_PER_MINUTE + [429]
    assert (await call("GET", "/sweeps"))[0] == 429


async def test_error_beside_the_agents_is_raised_as_it_is():
    """Such as a missing Slack token: the process ends with its sentence, not with a group of errors."""
    with pytest.raises(UserError, match=r"^SLACK_APP_TOKEN isn't set$"):
        async with AgentDoor(None).open():
            raise UserError("SLACK_APP_TOKEN isn't set")
