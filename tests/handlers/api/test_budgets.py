"""A token with a budget of its own: what it starts counts for it, and it can't go around it."""

from dataclasses import replace

import pytest

from bot.core.budget import RULE
from bot.core.record import Phase
from bot.core.request import Requester
from bot.platform.config.live_policy import LivePolicy
from bot.platform.config.teams import Price
from bot.sweep.channels.store import SetupReader
from handlers.slash_sweep import _answer
from tests.bot.factories import a_sweep
from tests.handlers.api.conftest import token_in
from tests.handlers.signing import COMMAND


async def test_sweeps_of_a_token_have_its_account_and_budget(call, typed, context):
    answer = await typed("token budget=40 days=7")
    assert "Above 40 GPU-h in a month, its sweeps wait for your approval." in answer
    accounts, other = [], token_in(await typed("token budget=8"))
    for key, by in (
        ("a", token_in(answer)),
        ("b", token_in(answer)),
        ("c", other),
    ):
        _, made = await call("POST", "/sweeps", "branch=main space=lr", key=key, by=by)
        requester = (await context.store.get(made["id"])).requester
        accounts.append((requester.account, requester.account_budget))
    assert accounts[0] == accounts[1]
    assert [budget for _, budget in accounts] == ["40", "40", "8"]
    assert accounts[2][0] not in {"", accounts[0][0]}
    _, made = await call("POST", "/sweeps", "branch=main space=lr", key="d")
    assert (await context.store.get(made["id"])).requester.account == ""


@pytest.mark.parametrize("command", ["extend trials=400", "raise budget=400"])
async def test_token_with_a_budget_can_not_make_a_sweep_larger(call, typed, context, command):
    sweep = a_sweep(Phase.RUNNING, requester=Requester(user="U1", user_name="ada", channel="C1"))
    await context.store.create(sweep, [sweep.id], "r")
    limited = token_in(await typed("token budget=40"))
    path = f"/sweeps/{sweep.id}/commands"
    status, problem = await call("POST", path, command, key="a", by=limited)
    assert (status, problem["detail"].partition(" a sweep.")[2]) == (
        403,
        " Start another one, or do this in Slack.",
    )
    assert await context.store.commands(sweep.id) == []
    assert (await call("POST", path, "drain", key="b", by=limited))[0] == 202
    assert (await call("POST", path, command, key="c"))[0] == 202  # a token without one


@pytest.mark.parametrize("command", ["approve", "decline reason=later"])
async def test_no_token_can_approve(call, context, command):
    sweep = a_sweep(Phase.OPENING, requester=Requester(user="U1", user_name="ada", channel="C1"))
    await context.store.create(sweep, [sweep.id], "r")
    status, problem = await call("POST", f"/sweeps/{sweep.id}/commands", command, key="a")
    assert (status, problem["detail"].partition(" about ")[0]) == (403, "A person must decide")
    assert await context.store.commands(sweep.id) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("0", f'budget= must be {RULE.format("$100")}; got "0".'),
        ("€40", f'budget= must be {RULE.format("$100")}; got "€40".'),
        ("$40", "No prices are configured, so budget= must be GPU-hours, for example 40."),
    ],
)
async def test_budget_that_nothing_can_be_counted_against_is_refused(typed, redis, text, wrong):
    assert await typed(f"token budget={text}") == wrong
    assert not [key async for key in redis.scan_iter("*api-token:*")]


async def test_budget_can_be_money_where_prices_are_configured(redis, context):
    priced = replace(context.config, prices=(Price(model="NVIDIA", hourly=2.0),))
    here = replace(context, channel_setup=SetupReader(redis, context.queue, LivePolicy(priced)))
    assert "Above $40.00 in a month" in await _answer(here, COMMAND | {"text": "token budget=$40"}, None)
