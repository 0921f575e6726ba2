"""Slack's calls over HTTP, from a client that signs as Slack does; and what strangers get."""

import asyncio
import json
import time
from urllib.parse import urlencode

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.exceptions import RedisError

from bot.core.errors import UserError
from bot.core.record import Phase
from bot.platform.runtime.probes import ProbeFailedError
from bot.sweep.form.view import REPO_MENU
from bot.sweep.model.texts import CANCEL
from handlers.http_server import MAX_BODY, SLACK_PATH, Http, served
from local.slack.workspace import TEAM
from tests.bot.factories import a_sweep
from tests.handlers.pages import no_refresh, page
from tests.handlers.signing import COMMAND, FORM, SECRET, call, signed


async def test_signed_command_starts_a_sweep(listening, context):
    status, text = await call(listening, COMMAND)
    [sweep] = await context.store.active()
    assert (status, f"Sweep `{sweep}` queued." in text) == (200, True)
    assert (await context.queue.get(wait=0)).item.key == sweep


async def test_signed_click_reaches_the_sweeps_mailbox(listening, context):
    sweep = a_sweep(Phase.RUNNING)
    await context.store.create(sweep, [sweep.id], sweep.request_id)
    payload = {
        "type": "block_actions",
        "user": {"id": "U1", "username": "ada", "team_id": TEAM["id"]},
        "team": {"id": TEAM["id"]},
        "channel": {"id": "C1"},
        "actions": [{"action_id": CANCEL, "block_id": "b", "type": "button", "value": sweep.id}],
    }
    status, _ = await call(listening, {"payload": json.dumps(payload)})
    assert (status, [command.user for command in await context.store.commands(sweep.id)]) == (200, ["U1"])


async def test_signed_menu_request_gets_its_options(listening):
    hidden = json.dumps({"channel": "C1", "inline": False, "options": {}})
    payload = {
        "type": "block_suggestion",
        "user": {"id": "U1", "team_id": TEAM["id"]},
        "team": {"id": TEAM["id"]},
        "container": {"type": "view", "view_id": "V1"},
        "block_id": "repo",
        "action_id": REPO_MENU,
        "value": "dig",
        "view": {"id": "V1", "type": "modal", "private_metadata": hidden, "state": {"values": {}}},
    }
    status, text = await call(listening, {"payload": json.dumps(payload)})
    assert (status, [each["value"] for each in json.loads(text)["options"]]) == (200, ["digits"])


async def test_url_verification_is_answered(listening):
    body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aBm2r"}).encode()
    headers = signed(body) | {"Content-Type": "application/json"}
    async with listening.post(SLACK_PATH, data=body, headers=headers) as answer:
        assert (answer.status, json.loads(await answer.text())) == (200, {"challenge": "3eZbrw1aBm2r"})


async def test_replayed_request_starts_nothing_twice(listening, context):
    body = urlencode(COMMAND).encode()
    headers = signed(body)
    answers = []
    for _ in range(3):
        async with listening.post(SLACK_PATH, data=body, headers=headers) as answer:
            answers.append(await answer.text())
    assert len(set(answers)) == 1
    assert len(await context.store.active()) == 1


FORGED = {
    "another secret": {"secret": "0" * 32},
    "no secret": {"secret": ""},
    "six minutes old": {"age": 360},
    "from the future": {"age": -360},
    "another version": {"version": "v1"},
}


@pytest.mark.parametrize("how", FORGED.values(), ids=FORGED)
async def test_forged_or_old_signature_is_rejected(listening, context, how):
    status, _ = await call(listening, COMMAND, **how)
    assert (status, await context.store.active()) == (401, set())


BODY = urlencode(COMMAND).encode()
ODD = {
    "nothing": (BODY, dict),
    "another body": (BODY + b"&x=1", lambda: signed(BODY)),
    "only a signature": (BODY, lambda: {"X-Slack-Signature": signed(BODY)["X-Slack-Signature"]}),
    "only a time": (BODY, lambda: {"X-Slack-Request-Timestamp": str(int(time.time()))}),
    "a time that is none": (BODY, lambda: {**signed(BODY), "X-Slack-Request-Timestamp": "now"}),
    "a time without end": (BODY, lambda: {**signed(BODY), "X-Slack-Request-Timestamp": "9" * 5000}),
    "broken JSON": (b"{", lambda: {"Content-Type": "application/json"}),
    "a broken payload": (b"payload={", dict),
    "no text": (b"\xff\xfe", lambda: signed(b"\xff\xfe")),
    "a signature beyond ASCII": (BODY, lambda: {**signed(BODY), "X-Slack-Signature": "v0=é"}),
    "a question about TLS": (BODY + b"&ssl_check=1", dict),
    "a handshake": (b'{"type": "url_verification"}', lambda: {"Content-Type": "application/json"}),
}


@pytest.mark.parametrize(("body", "headers"), ODD.values(), ids=ODD)
async def test_malformed_requests_start_and_break_nothing(listening, context, body, headers):
    async with listening.post(SLACK_PATH, data=body, headers={"Content-Type": FORM, **headers()}) as answer:
        assert answer.status == 401
    assert await context.store.active() == set()
    assert (await call(listening, COMMAND))[0] == 200


async def test_endless_request_is_rejected(listening):
    async def pieces():
        for _ in range(MAX_BODY // 65536 + 2):
            yield b"x" * 65536

    for data in (b"x" * (MAX_BODY + 1), pieces()):
        async with listening.post(SLACK_PATH, data=data, headers=signed(b"")) as answer:
            assert answer.status == 413


@pytest.mark.parametrize(
    ("method", "path"), [("GET", SLACK_PATH), ("POST", "/"), ("GET", "/slack"), ("GET", "/docs")]
)
async def test_other_paths_are_not_found(listening, method, path):
    async with listening.request(method, path) as answer:
        assert answer.status in {401, 404}


async def test_socket_mode_serves_no_slack_path(http):
    assert (await call(http.client, COMMAND))[0] == 404


async def test_readyz_reports_each_part_and_recovers(http, probes, wait_until):
    up = False

    async def redis():
        if not up:
            raise ProbeFailedError(f"no way to redis://:{SECRET}@redis")
        return "answers"

    probes.check("redis", redis, every=0.01)
    await wait_until(
        lambda: probes.ready()[1]["checks"]["redis"]["message"] != "not checked yet", "the request arrived"
    )
    status, message = await page(http, "/readyz")
    assert (status, message["ready"]) == (503, False)
    assert (
        message["checks"]["redis"].items() >= {"ok": False, "message": "no way to redis://***@redis"}.items()
    )
    up = True
    await wait_until(lambda: probes.ready()[0], "it is ready")
    status, message = await page(http, "/readyz")
    assert (status, message["ready"], message["checks"]["redis"]["message"]) == (200, True, "answers")


async def test_healthz_answers_while_all_else_fails(http, probes):
    async def broken():
        raise ProbeFailedError("down")

    probes.check("redis", broken)
    assert await page(http, "/healthz") == (200, {"healthy": True, "checks": {}})
    probes.vital("turns", broken)
    status, message = await page(http, "/healthz")
    assert (status, message["checks"]["turns"]["message"]) == (503, "down")


async def test_metrics_without_redis_are_those_of_the_process(probes):
    async def refresh():
        raise RedisError("away")

    async with (
        served(Http(probes, refresh), "127.0.0.1", 0) as port,
        aiohttp.request("GET", f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        families = {each.name for each in text_string_to_metric_families(await answer.text())}
        assert answer.headers["content-type"].startswith("text/plain")
    assert {"sweepbot_calls", "sweepbot_work_items", "process_resident_memory_bytes"} <= families


async def test_port_in_use_is_a_clear_error(http, probes):
    with pytest.raises(
        UserError, match=rf"^HTTP_HOST, HTTP_PORT: can't listen on 127.0.0.1 {http.port}: Address"
    ):
        async with served(Http(probes, no_refresh), "127.0.0.1", http.port):
            pass


@pytest.mark.parametrize("host", ["::", "127.0.0.1"])
async def test_server_listens_on_ipv4_and_ipv6(probes, host):
    async with (
        served(Http(probes, no_refresh), host, 0) as port,
        aiohttp.request("GET", f"http://127.0.0.1:{port}/healthz") as answer,
    ):
        assert answer.status == 200


async def test_command_that_starts_a_sweep_is_one_round_trip_to_redis(listening, context, trips):
    await call(listening, COMMAND)  # loads the script
    for _ in range(2):  # the second is a repeated request
        trips.clear()
        await call(listening, COMMAND | {"trigger_id": "trigger-2"})
        assert len(trips) == 1
    sweeps = await context.store.active()
    assert {(await context.queue.get(wait=0)).item.key for _ in range(2)} == sweeps
    assert (await context.drafts.last("U1")).channel == "C1"


async def test_command_on_a_sweep_is_two_round_trips_to_redis(listening, context, trips):
    await call(listening, COMMAND)
    [sweep] = await context.store.active()
    drain = COMMAND | {"text": f"drain {sweep}"}
    for number in range(2):  # load the scripts
        await call(listening, drain | {"trigger_id": f"drain-{number}"})
    trips.clear()
    await call(listening, drain)
    assert len(trips) == 2, "the list of sweeps; the command and its item"
    assert len(await context.store.commands(sweep)) == 3


async def test_metrics_requested_in_parallel_are_read_once(probes):
    started, go, reads = asyncio.Event(), asyncio.Event(), []

    async def refresh():
        reads.append(1)
        started.set()
        await go.wait()

    page = Http(probes, refresh)
    first = asyncio.create_task(page._metrics())
    await started.wait()
    others = [asyncio.create_task(page._metrics()) for _ in range(20)]
    first.cancel()  # its client has closed the connection
    await asyncio.sleep(0)
    go.set()
    answers = await asyncio.gather(*others)
    assert (len(reads), len(set(answers))) == (1, 1)
    await page._metrics()
    assert len(reads) == 2
