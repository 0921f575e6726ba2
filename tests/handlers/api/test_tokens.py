"""Tokens of the HTTP API: made in Slack, stored as hashes, and valid as long as their person is."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.platform.storage.api_tokens import MAX_TOKENS, TokenOwner
from handlers.api.app import CALLS_AT_ONCE
from handlers.api.callers import CALLS_PER_MINUTE
from handlers.slash_sweep import _answer
from local.slack.workspace import ADA, Channel
from tests.bot.factories import ADMIN, OWNER
from tests.handlers.signing import COMMAND


def token_in(answer):
    return answer.split("`")[1]


async def test_token_is_stored_and_logged_only_as_a_hash(token, typed, redis, caplog):
    with caplog.at_level("DEBUG"):
        other = token_in(await typed("token days=7"))
    everything = [str((await redis.dump(key), key)) async for key in redis.scan_iter()]
    values = [str(await redis.get(key)) async for key in redis.scan_iter("*api-token:*")]
    for each in (token, other):
        assert not any(each in text or each[4:] in text for text in [*everything, *values, caplog.text])
    assert len(values) == 2


async def test_token_is_refused_everywhere_else_with_the_same_sentence(call, context, redis, typed, token):
    """One that is forged, expired, revoked, or none at all."""
    expired = await context.tokens.create(
        TokenOwner(user="U1", user_name="ada", channel="C1"), timedelta(days=1)
    )
    for key in [key async for key in redis.scan_iter("*api-token:*")]:
        await redis.expireat(key, 1)
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    answers = [await call("GET", "/sweeps", by=by) for by in (forged, expired, token, "x", "swb_", "é" * 47)]
    assert [status for status, _ in answers] == [401] * 6
    assert len({problem["detail"] for _, problem in answers}) == 1
    before = await redis.dbsize()
    await call("GET", "/sweeps", by=forged)
    assert await redis.dbsize() == before


async def test_revoking_ends_all_tokens_of_the_person_alone(call, typed):
    mine = [token_in(await typed("token")) for _ in range(2)]
    theirs = token_in(await typed("token", user_id="U2"))
    assert await typed("token revoke") == "3 tokens revoked."  # with the fixture's
    assert [(await call("GET", "/sweeps", by=each))[0] for each in (*mine, theirs)] == [401, 401, 200]


async def test_person_can_have_so_many_tokens(typed, redis):
    answers = [await typed("token") for _ in range(MAX_TOKENS + 1)]
    assert ["swb_" in each for each in answers] == [True] * MAX_TOKENS + [False]
    assert "`/sweep token revoke`" in answers[-1]


async def test_expired_tokens_leave_room_for_others(typed, redis):
    for _ in range(MAX_TOKENS):
        await typed("token")
    await redis.zadd(
        "sweepbot:api-tokens:U1", dict.fromkeys(await redis.zrange("sweepbot:api-tokens:U1", 0, 0), 1)
    )
    assert "swb_" in await typed("token")


@pytest.mark.parametrize(
    "fields", [{"request_id": "said"}, {"channel_id": "D1"}], ids=["in a message", "in a direct message"]
)
async def test_token_is_only_shown_in_the_private_answer_in_a_channel(typed, fields):
    assert "swb_" not in await typed("token", **fields)


@pytest.mark.parametrize("text", ["token days=0", "token days=91", "token days=x", "token for=ever"])
async def test_invalid_lifetime_is_refused(typed, redis, text):
    with pytest.raises(Exception, match="days"):
        await typed(text)
    assert not [key async for key in redis.scan_iter("*api-token*")]


async def test_no_tokens_while_the_api_is_off(context):
    off = replace(context, tokens=None)
    assert "The HTTP API is off." in await _answer(off, COMMAND | {"text": "token"}, None)


async def test_token_has_so_many_calls_a_minute(call, typed, no_litter):
    statuses = [(await call("GET", "/sweeps"))[0] for _ in range(CALLS_PER_MINUTE + 1)]
    assert statuses == [200] * CALLS_PER_MINUTE + [429]
    assert (await call("GET", "/sweeps", by=token_in(await typed("token"))))[0] == 200


@pytest.mark.parametrize("what", ["deleted", "is_restricted"])
async def test_token_of_a_person_who_left_or_became_a_guest_is_refused(call, monkeypatch, what):
    async def users_info(*_, **__):
        return {"user": {"id": ADA.id, what: True}}

    monkeypatch.setattr(AsyncWebClient, "users_info", users_info)
    assert (await call("GET", "/sweeps"))[0] == 403


async def test_token_of_a_person_whom_slack_no_longer_has_is_refused(call, slack):
    del slack.workspace.users["U1"]
    status, problem = await call("GET", "/sweeps")
    assert (status, problem["detail"]) == (403, "Your Slack account is deactivated.")


async def test_token_of_another_workspace_is_refused(call, typed):
    theirs = token_in(await typed("token", team_id="T0PARTNER"))
    status, problem = await call("GET", "/sweeps", by=theirs)
    assert (status, "another Slack workspace" in problem["detail"]) == (403, True)


async def test_burst_of_forged_tokens_keeps_nobody_out(call, redis, monkeypatch):
    """They share one connection to Redis."""
    for module in ("callers", "sweeps"):  # 400 calls at once can need more than two seconds
        monkeypatch.setattr(f"handlers.api.{module}.ACK_TIMEOUT", 60)
    forged = [call("GET", "/sweeps", by=f"swb_{n:043}") for n in range(400)]
    answers = await asyncio.gather(*forged, call("POST", "/sweeps", "branch=main space=lr", key="one"))
    assert [status for status, _ in answers] == [401] * 400 + [202]


async def test_person_can_have_so_many_calls_in_progress(call, context, monkeypatch, wait_until):
    running, go_on, listed = [], asyncio.Event(), context.store.listed

    async def slow():
        running.append(1)
        await go_on.wait()
        return await listed()

    with monkeypatch.context() as patch:
        patch.setattr(context.store, "listed", slow)
        patch.setattr("handlers.api.sweeps.ACK_TIMEOUT", 60)
        calls = [asyncio.create_task(call("GET", "/sweeps")) for _ in range(CALLS_AT_ONCE + 3)]
        await wait_until(lambda: sum(each.done() for each in calls) == 3, "three calls are refused")
        go_on.set()
        statuses = sorted([(await each)[0] for each in calls])
    assert len(running) == CALLS_AT_ONCE
    assert statuses == [200] * CALLS_AT_ONCE + [429] * 3
    assert (await call("GET", "/sweeps"))[0] == 200


async def test_token_of_a_person_who_left_its_channel_is_refused(call, slack, typed):
    theirs = token_in(await typed("token", user_id="U2"))
    slack.workspace.channels["C1"].members.discard("U1")
    status, problem = await call("GET", "/sweeps")
    assert (status, "aren't in the token's channel any more" in problem["detail"]) == (403, True)
    assert (await call("GET", "/sweeps", by=theirs))[0] == 200


async def test_person_who_joins_the_channel_is_admitted_within_a_minute(call, slack, typed, monkeypatch):
    slack.workspace.channels["C1"].members.discard("U2")
    assert (await call("GET", "/sweeps"))[0] == 200
    slack.workspace.channels["C1"].members.add("U2")
    theirs = token_in(await typed("token", user_id="U2"))
    assert (await call("GET", "/sweeps", by=theirs))[0] == 403
    monkeypatch.setattr("handlers.api.callers.ABSENT_TTL", -1)
    assert (await call("GET", "/sweeps", by=theirs))[0] == 200


async def test_channel_is_asked_about_once_and_kept_while_slack_is_down(call, slack, typed, monkeypatch):
    asked, ask = [], AsyncWebClient.conversations_members

    async def counted(*args, **fields):
        asked.append(fields)
        return await ask(*args, **fields)

    monkeypatch.setattr(AsyncWebClient, "conversations_members", counted)
    monkeypatch.setattr("handlers.api.callers.PAGE", 2)
    answers = await asyncio.gather(*(call("GET", "/sweeps") for _ in range(6)))
    assert [status for status, _ in answers] == [200] * 6
    pages = len(slack.workspace.channels["C1"].members) / 2
    assert len(asked) == -(-pages // 1)
    slack.workspace.channels["C2"] = Channel("C2", "two", {"U2"})
    theirs = {"by": token_in(await typed("token", user_id="U2", channel_id="C2"))}
    for whose in (theirs, {}, theirs):
        assert (await call("GET", "/sweeps", **whose))[0] == 200
    assert [each["channel"] for each in asked if each["channel"] != "C1"] == ["C2"]
    assert len(asked) == -(-pages // 1) + 1
    slack.workspace.channels["C1"].members.clear()
    monkeypatch.setattr("handlers.api.callers.TTL", -1)
    monkeypatch.setattr(slack._api, "stumbles", {"conversations.members": ["internal_error"] * 9})
    assert (await call("GET", "/sweeps"))[0] == 200


@pytest.mark.parametrize("error", ["missing_scope", "ratelimited", "fetch_members_failed"])
async def test_token_works_while_slack_does_not_say_who_is_in_its_channel(call, slack, error):
    slack._api.stumbles["conversations.members"] = [error]
    slack.workspace.channels["C1"].members.clear()
    assert (await call("GET", "/sweeps"))[0] == 200


async def test_admin_revokes_the_tokens_of_another_person(call, typed, caplog):
    theirs = token_in(await typed("token", user_id=OWNER, user_name="Bo.Li"))
    assert (await typed("admin revoke @bo.li")).startswith("Only admins can do that")
    assert (await call("GET", "/sweeps", by=theirs))[0] == 200
    unknown = await typed("admin revoke @who", user_id=ADMIN)
    assert "No owner of a token is named `who`" in unknown
    assert f"Bo.Li ({OWNER})" in unknown
    with caplog.at_level("INFO", "sweepbot.audit"):
        assert await typed("admin revoke @bo.li", user_id=ADMIN) == "1 token of Bo.Li revoked."
    assert f"user={ADMIN}: revoke all tokens of 'bo.li' of the API: allowed" in caplog.text
    assert [(await call("GET", "/sweeps", by=each))[0] for each in (theirs, "")] == [401, 200]


@pytest.mark.parametrize("person", [OWNER, f"<@{OWNER}>", f"<@{OWNER}|bo>", "bo", "@Bo"])
async def test_admin_names_a_person_by_id_mention_or_name(typed, person):
    await typed("token", user_id=OWNER, user_name="bo")
    assert await typed(f"admin revoke {person}", user_id=ADMIN) == "1 token of bo revoked."
    assert await typed(f"admin revoke {OWNER}", user_id=ADMIN) == f"0 tokens of {OWNER} revoked."


async def test_name_in_capitals_can_look_like_an_id(typed):
    await typed("token", user_id=OWNER, user_name="uma")
    assert await typed("admin revoke @UMA", user_id=ADMIN) == "1 token of uma revoked."


async def test_two_people_of_one_name_are_told_apart(typed):
    for user in ("U1", "U2"):
        await typed("token", user_id=user)
    assert "ada (U1) and ada (U2)" in await typed("admin revoke ada", user_id=ADMIN)
