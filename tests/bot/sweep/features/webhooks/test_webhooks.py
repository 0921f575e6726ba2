"""Events of sweeps reach a receiver over real HTTP: signed, in order, and again until it accepts them."""

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from aiohttp import web

from bot.core.commands import Action
from bot.core.errors import FailedCallError, RetryAfterError, UserError
from bot.core.record import Phase
from bot.core.work_item import WorkItem
from bot.operate.commands import Operator
from bot.platform.config.policy import parse_config
from bot.platform.config.webhooks import Webhook
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import MAX_STARTS, Lease, Queue
from bot.sweep.features.webhooks import FEATURE, decide, deliver
from bot.sweep.features.webhooks.decide import WebhooksState
from bot.sweep.launch.plan import plan
from bot.text.masking import Mask
from bot.worker import Worker
from tests.bot.factories import CONFIG, NOW, ORDER, REQUEST, SETTINGS, a_sweep
from tests.cases import cases
from tests.scenarios.moments import sample
from tests.scenarios.sweep_in_memory import SPACE, Clock, SimulatedSweep, WorkerCrash

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
ITEM = WorkItem(deliver.ITEM, "alerts")
ENDED = a_sweep(Phase.SUCCEEDED, WebhooksState(hooks=("alerts",)), reason="all trials done", version=7)


@pytest.fixture(autouse=True)
def _secret(monkeypatch):
    monkeypatch.setenv("WEBHOOK_ALERTS_SECRET", SECRET)


class Receiver:
    """Checks signatures. Answers with the next of `answers`, then with 204; `got`: ids and bodies."""

    def __init__(self, *answers):
        self.answers, self.got, self.accepted = list(answers), [], []
        self.headers = {"Location": "/elsewhere"}

    async def answer(self, request):
        body, headers = await request.read(), request.headers
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        self.got.append((headers["webhook-id"], json.loads(body)))
        status = self.answers.pop(0) if self.answers else 204
        if status == "closes":
            request.transport.close()
            return web.Response()
        if status in {200, 204}:
            self.accepted.append(self.got[-1])
        return web.Response(status=status, headers=self.headers)

    @property
    def types(self):
        """What was accepted, each id once."""
        return [body["type"] for body in dict(self.accepted).values()]


@pytest.fixture
def receiver(toy):
    async def started(*answers, **changes):
        made = Receiver(*answers)
        hook = Webhook(name="alerts", url=f"http://{await toy(made.answer)}/sweeps?team=1", **changes)
        return made, replace(CONFIG, webhooks=(hook,))

    return started


@pytest.fixture
def clients(redis):
    """Of a worker, with a clock that tests set."""
    made = SimpleNamespace(
        store=Store(redis), queue=Queue(redis), config=CONFIG, time=NOW, mask=Mask(["hunter2x"])
    )
    made.now = lambda: made.time
    return made


def handler(clients):
    async def handle(lease):
        return await deliver.run(lease, clients)

    return handle


async def stored(clients, record=ENDED):
    record = decide.ended(record, None, None)
    await FEATURE.posters[record.outbox[-1].kind](record, record.outbox[-1], clients)


async def run(clients, failures=0):
    return await deliver.run(Lease(ITEM, "token", failures=failures), clients)


def test_signature_is_that_of_the_specifications_example():
    at = datetime.fromtimestamp(1614265330, UTC)
    key = Webhook(name="alerts", url="https://x.example").key(
        {"WEBHOOK_ALERTS_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    )
    headers = deliver._headers("msg_p5jXN8AQM9LWM0D4loKWxJek", '{"test": 2432232314}', at, key)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_event_is_sent_through_the_proxy(clients, receiver, monkeypatch):
    made, config = await receiver()
    [hook] = config.webhooks
    monkeypatch.setenv("HTTP_PROXY", hook.url.partition("/sweeps")[0])
    clients.config = replace(config, webhooks=(replace(hook, url="http://hooks.example/sweeps"),))
    await stored(clients)
    assert await run(clients) is None
    assert len(made.got) == 1


async def test_receiver_that_fails_twice_gets_the_event_a_third_time(
    clients, receiver, redis, wait_until, caplog
):
    got, clients.config = await receiver(503, "closes", 200)
    await stored(clients, replace(ENDED, cause="CUDA error, password=hunter2x"))
    stop, worker = asyncio.Event(), Worker(clients.queue, 1, {deliver.ITEM: handler(clients)})
    working = asyncio.create_task(worker.run(stop))

    async def failed():
        clients.store.listed = lambda: asyncio.sleep(0, [])
        lines = await Operator(clients, redis).run("ps")
        return next((line for line in lines if "failed" in line), "")

    assert "webhook: alerts" in await wait_until(failed, "ps shows the failing webhook")

    async def accepted():
        await clients.queue.hurry()
        return got.accepted

    [(message_id, body)] = await wait_until(accepted, "the receiver accepts the event")
    stop.set()
    await working
    assert {each for each, _ in got.got} == {message_id}
    assert (len(got.got), body["type"], body["timestamp"]) == (3, "sweep.ended", NOW.isoformat())
    data = body["data"]
    assert (data["id"], data["state"], data["owner"]) == ("lr-brave-otter", "succeeded", "ada")
    assert "hunter2x" not in data["cause"]
    assert "commands" not in data
    assert await clients.store.requests(str(ITEM)) == []
    failures = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [bool(each.exc_info) for each in failures] == [False, False]
    assert "/sweeps" not in caplog.text
    assert SECRET not in caplog.text


async def test_rejected_event_does_not_hold_back_the_next_one(clients, receiver):
    got, clients.config = await receiver(302)
    for version in (1, 2):
        await stored(clients, replace(ENDED, version=version))
    with pytest.raises(FailedCallError, match="status 302"):
        await run(clients)
    assert (len(got.got), len(got.accepted)) == (2, 1), "the redirect isn't followed"
    await run(clients)
    assert len(got.accepted) == 2


async def test_webhook_gives_up_after_a_day_and_the_next_event_starts_it_again(clients, receiver, caplog):
    got, clients.config = await receiver(*[500] * (MAX_STARTS + 1))
    await stored(clients)
    clients.time = NOW + deliver.KEEP
    worker = Worker(clients.queue, 1, {deliver.ITEM: handler(clients)})
    for _ in range(MAX_STARTS + 1):
        await clients.queue.hurry()
        await worker._take(await clients.queue.get(wait=0))
    assert "500" in (await clients.queue.quarantined())[str(ITEM)].why
    assert "dropped 1 undelivered event" in caplog.text
    assert not any(each.exc_info for each in caplog.records)
    await stored(clients, replace(ENDED, version=8))
    assert await clients.queue.quarantined() == {}
    got.answers.clear()
    await worker._take(await clients.queue.get(wait=0))
    assert got.types == ["sweep.ended"]


async def test_receiver_that_is_gone_gets_nothing_until_an_admin_releases_it(clients, receiver):
    got, clients.config = await receiver(*[410] * (MAX_STARTS + 1))
    await stored(clients)
    worker = Worker(clients.queue, 1, {deliver.ITEM: handler(clients)})
    while str(ITEM) not in await clients.queue.quarantined():
        await clients.queue.hurry()
        await worker._take(await clients.queue.get(wait=0))
    calls = len(got.got)
    assert "answers with status 410 (gone)" in (await clients.queue.quarantined())[str(ITEM)].why
    await stored(clients, replace(ENDED, version=8))
    while lease := await clients.queue.get(wait=0):
        await worker._take(lease)
    assert len(got.got) == calls
    assert len(await clients.store.requests(str(ITEM))) == 2
    clients.time += deliver.KEEP
    await stored(clients, replace(ENDED, version=9))
    assert len(await clients.store.requests(str(ITEM))) == 1
    got.answers.clear()
    assert await clients.queue.retry(ITEM)
    await worker._take(await clients.queue.get(wait=0))
    assert len(got.accepted) == 1
    assert calls <= MAX_STARTS


async def test_webhook_whose_receiver_is_gone_starts_again_with_another_url(clients, receiver):
    _, clients.config = await receiver(*[410] * (MAX_STARTS + 1))
    await stored(clients)
    worker = Worker(clients.queue, 1, {deliver.ITEM: handler(clients)})
    while str(ITEM) not in await clients.queue.quarantined():
        await clients.queue.hurry()
        await worker._take(await clients.queue.get(wait=0))
    other, clients.config = await receiver()
    await stored(clients, replace(ENDED, version=8))
    await worker._take(await clients.queue.get(wait=0))
    assert (len(other.accepted), await clients.store.requests(str(ITEM))) == (2, [])


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("999999", deliver.MAX_WAIT),
        ((NOW + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 90),
        ("Sat, 21 Nov 2015 07:28:00 GMT", None),
        ("soon", None),
        ("Sat, 21 Nov 99999999999 07:28:00 GMT", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_receiver_that_asks_to_wait_is_called_again_after_that(
    clients, receiver, redis, status, header, seconds
):
    got, clients.config = await receiver(status)
    got.headers = {"Retry-After": header}
    await stored(clients)
    with pytest.raises(RetryAfterError if seconds else FailedCallError, match=str(status)) as error:
        await run(clients)
    assert getattr(error.value, "seconds", None) == (seconds and min(seconds, deliver.LOOK_AGAIN))
    if seconds:
        await stored(clients, replace(ENDED, version=8))  # which queues the item at once
        with pytest.raises(RetryAfterError) as waiting:
            await run(clients)
        assert min(seconds - 60, deliver.LOOK_AGAIN) <= waiting.value.seconds <= seconds
        assert len(got.got) == 1
        [held] = await redis.keys("*:held:*")
        assert seconds - 60 < await redis.ttl(held) <= seconds
        await redis.delete(held)  # as it is by then
    await run(clients)
    assert len(got.accepted) == (2 if seconds else 1)


async def test_webhook_with_another_url_does_not_wait_for_what_the_former_asked(clients, receiver):
    got, clients.config = await receiver(503)
    got.headers = {"Retry-After": "3600"}
    await stored(clients)
    with pytest.raises(RetryAfterError):
        await run(clients)
    other, clients.config = await receiver()
    await run(clients)
    assert (len(got.got), other.types) == (1, ["sweep.ended"])


async def test_receiver_that_asks_to_wait_for_more_than_a_day_is_given_up_without_more_calls(
    clients, receiver
):
    got, clients.config = await receiver(*[503] * (MAX_STARTS + 1))
    got.headers = {"Retry-After": "3600"}
    await stored(clients)
    clients.time = NOW + deliver.KEEP
    worker = Worker(clients.queue, 1, {deliver.ITEM: handler(clients)})
    while str(ITEM) not in await clients.queue.quarantined():
        await clients.queue.hurry()
        await worker._take(await clients.queue.get(wait=0))
    assert len(got.got) == 1


async def test_event_stored_again_after_its_delivery_is_not_sent_again(clients, receiver):
    got, clients.config = await receiver()
    await stored(clients)
    await run(clients)
    clients.time += timedelta(seconds=9)
    await stored(clients)
    await run(clients)
    assert len(got.got) == 1


async def test_receiver_that_rejects_all_events_gets_each_once_and_then_some_until_it_accepts_all(
    clients, receiver
):
    got, clients.config = await receiver(*[401] * 1000)
    for version in range(30):
        await stored(clients, replace(ENDED, version=version))
    for failures in range(4):
        with pytest.raises(FailedCallError, match="status 401"):
            await run(clients, failures=failures)
    assert len(got.got) == 30 + 3 * deliver.MAX_REJECTED
    assert len({each for each, _ in got.got[30:]}) == 30, "in each run, others"
    await stored(clients, replace(ENDED, version=31))
    got.answers.clear()
    await run(clients, failures=4)
    assert (len(got.types), await clients.store.requests(str(ITEM))) == (31, [])


async def test_receiver_that_rejects_slowly_is_not_called_without_a_pause(clients, receiver, monkeypatch):
    got, clients.config = await receiver(*[404] * 1000)
    for version in range(3):
        await stored(clients, replace(ENDED, version=version))
    monkeypatch.setattr(deliver, "monotonic", itertools.count(0, deliver.RUN_SECONDS * 2 / 3).__next__)
    for _ in range(2):
        assert await run(clients) == timedelta(0)
    with pytest.raises(FailedCallError):
        await run(clients)
    assert len({each for each, _ in got.got}) == len(got.got) == 3
    got.answers.clear()
    assert [await run(clients) for _ in range(4)] == [timedelta(0)] * 3 + [None], "slow, too"


async def test_worker_without_a_new_webhook_leaves_its_events_to_others(clients, receiver):
    got, known = await receiver()
    clients.config = CONFIG
    await stored(clients)
    assert await run(clients) == deliver.UNKNOWN_RETRY
    clients.config = known
    await run(clients)
    assert got.types == ["sweep.ended"]


async def test_webhook_that_was_removed_drops_its_events_after_a_day(clients):
    await stored(clients)
    clients.time += deliver.KEEP
    assert await run(clients) is None
    assert await clients.store.requests(str(ITEM)) == []


async def test_webhook_gets_only_the_events_that_it_names(clients, receiver):
    _, clients.config = await receiver(events=("sweep.started",))
    await stored(clients)
    assert await clients.store.requests(str(ITEM)) == []


class Reported(SimulatedSweep):
    """A sweep with a webhook, which has its turn after each reconcile."""

    def __init__(self, redis, clock, config, **scenario):
        super().__init__(redis, clock, **scenario)
        self.clients.config = replace(self.clients.config, webhooks=config.webhooks)

    async def round(self, *args, **kwargs):
        await super().round(*args, **kwargs)
        if await self.redis.zscore("life:queue:ready", str(ITEM)) is None:
            return
        try:
            await deliver.run(Lease(ITEM, "token", failures=0), self.clients)
        except (WorkerCrash, FailedCallError):
            return
        await self.redis.zrem("life:queue:ready", str(ITEM))


STARTED, HEALTHY, FAILED, END = FEATURE.posters
GATED = {"sweep": {"request": replace(REQUEST, gate=True)}}


@pytest.mark.parametrize(
    ("scenario", "types"),
    [
        pytest.param({}, [STARTED, HEALTHY, END], id="succeeds"),
        pytest.param(GATED, [STARTED, HEALTHY, END], marks=pytest.mark.features("gate"), id="gated"),
        pytest.param(
            {"crash": "unseen", "acts": {Action.RETRY: Phase.HELD}} | GATED,
            [STARTED, FAILED, FAILED],
            marks=pytest.mark.features("gate", "health"),
            id="held, and tried again",
        ),
        pytest.param(
            {
                "space": SPACE.replace("[a, b, c]", "[a, b, c, d, e]"),
                "acts": {Action.EXTEND: Phase.SUCCEEDED},
            },
            [STARTED, HEALTHY, END, END],
            marks=pytest.mark.features("extension"),
            id="extended",
        ),
        pytest.param({"bad_build": "build-", "image": False}, [STARTED, END], id="bad build"),
        pytest.param({"space": "objective: {}"}, [], id="refused"),
    ],
)
async def test_sweep_reports_its_start_its_first_trial_and_its_end(redis, receiver, scenario, types):
    got, config = await receiver(503)
    life = await Reported(redis, Clock(None), config, **{"image": True, **scenario}).run()
    assert got.types == types
    if END in types:
        last = dict(got.accepted)[got.accepted[-1][0]]["data"]
        assert last["state"] == life.last.phase.name.lower()


async def test_crash_at_any_call_loses_no_event(redis, receiver, monkeypatch):
    send = deliver._send

    async def sent(*args):
        await send(*args)
        clock.tick()

    monkeypatch.setattr(deliver, "_send", sent)

    async def calls_of_life(dies_at):
        nonlocal clock
        clock = Clock(dies_at)
        got, config = await receiver(503)
        life = await Reported(redis, clock, config, image=True).run()
        assert got.types == [STARTED, HEALTHY, END], f"died at call {dies_at}"
        assert (life.last.phase, life.last.outbox) == (Phase.SUCCEEDED, ())
        return clock.calls

    clock = None
    for dies_at in sample(range(1, await calls_of_life(None)), every=50):
        await calls_of_life(dies_at)


def test_start_is_reported_once_the_sweep_has_its_thread_and_waits_for_no_approval():
    waits = a_sweep(Phase.OPENING, WebhooksState(hooks=("alerts",)), holds=("approval",))
    starts = replace(waits, thread="1.1", holds=())
    records = (waits, replace(waits, thread="1.1"), replace(starts, thread=None), starts)
    found = [decide.follow(each, None, NOW).outbox for each in records]
    assert [tuple(each.kind for each in events) for events in found] == [(), (), (), (STARTED,)]


def test_sweep_without_a_webhook_of_its_channel_and_team_reports_nothing():
    hooks = (
        Webhook(name="other-channel", url="https://x.example", channels=("C9",)),
        Webhook(name="other-team", url="https://x.example", teams=("vision",)),
    )
    record = decide.planned(a_sweep(Phase.OPENING), replace(CONFIG, webhooks=hooks))
    assert record.of(WebhooksState).hooks == ()
    record = decide.follow(replace(record, thread="1.1"), None, NOW)
    assert decide.ended(record, None, None).outbox == ()
    record = a_sweep(Phase.OPENING, plan=plan(replace(ORDER, team="vision"), SETTINGS))
    record = decide.planned(record, replace(CONFIG, webhooks=hooks))
    assert record.of(WebhooksState).hooks == ("other-team",)


@cases(
    ("text", "problem"),
    [
        ("{a: {url: 'https://user:secret@x.org/'}}", "without a user"),
        ("{a: {url: 'file:///etc/passwd'}}", "http or https URL"),
        ("{a: {url: 'https://hooks..example.com/'}}", "http or https URL"),
        ("{a: https://x.org/secret@}", "must be a mapping"),
        ("{a: {url: https://x.org, events: [sweep.end]}}", "sweep.ended"),
        ("{a: {url: https://x.org, teams: [vision]}}", "must be a name under `teams`"),
        ("{A: {url: https://x.org}}", "lowercase"),
        ("{a: {}}", "missing key: url"),
    ],
)
def test_wrong_webhook_is_an_error_with_its_line_and_without_the_url(text, problem):
    with pytest.raises(UserError, match=problem) as error:
        parse_config(f"repositories: {{a: {{url: https://x.org/a}}}}\nwebhooks: {text}\n", "c.yaml")
    assert str(error.value).startswith("c.yaml:2: ")
    assert "secret@" not in str(error.value)


@pytest.mark.parametrize(
    "secret", ["", "hunter2", SECRET.removeprefix("whsec_"), "whsec_c2hvcnQ=", "whsec_%"]
)
def test_wrong_secret_is_an_error_that_does_not_quote_it(secret):
    hook = Webhook(name="gpu-alerts", url="https://x.example")
    with pytest.raises(UserError, match=r"WEBHOOK_GPU_ALERTS_SECRET must be whsec_ and 24 to 64") as error:
        hook.key({"WEBHOOK_GPU_ALERTS_SECRET": secret})
    assert not secret or secret not in str(error.value)
