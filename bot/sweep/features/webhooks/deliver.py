"""Deliver events to webhooks: signed as https://www.standardwebhooks.com has it, at least once, retried for a
day, with Retry-After and status 410.

An event is stored in the step that queues its webhook's work item, before it leaves the outbox, and is
removed once the receiver has accepted it. A webhook has one item: its events go in their order, and a
receiver that is down costs one call per retry. One that asks to wait gets nothing until then, new events
included. One that rejects some events, or for a while all of them, gets every new one once, and few of the
earlier ones in each run. The queue retries after 1 s, 2 s, 4 s ... 5 min.
Once an event has failed for a day, the item is quarantined, which `ps` and the doctor show, and events as old
are dropped; the next event of a sweep, or `/sweep release`, starts it again, also for the later ones.
After a few answers 410 in a row, the item is quarantined, and only `/sweep release` or another URL starts it
again.
"""

import base64
import hashlib
import hmac
import json
import logging
import os
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic

import aiohttp

from bot import __version__
from bot.core.errors import FailedCallError, PermanentError, RetryAfterError, UserError
from bot.core.events import Event
from bot.core.record import SweepRecord
from bot.core.work_item import WorkItem
from bot.platform.config.webhooks import Webhook
from bot.platform.storage.work_queue import Lease, text
from bot.sweep.clients import SweepClients
from bot.sweep.features.webhooks.decide import WebhooksState
from bot.sweep.model.api_sweep import shown

log = logging.getLogger(__name__)

ITEM = "webhook"  # kind of the work item; its key is the webhook's name
TIMEOUT = aiohttp.ClientTimeout(total=15)  # seconds of one request
RUN_SECONDS = 60.0  # then other items have their turn
REJECTED = "rejected "  # before a stored event that was: others go first
MAX_REJECTED = 10  # events that are rejected again in one run
KEEP = timedelta(days=1)  # how long an event is retried
MAX_WAIT = 3600.0  # seconds, whatever Retry-After says
LOOK_AGAIN = 300.0  # seconds of a wait after which the webhook can have another URL
GONE = "status 410 (gone)"  # in the reason of a webhook's quarantine
GONE_SECONDS = 90 * 86400.0  # how long that counts for the URL
UNKNOWN_RETRY = timedelta(minutes=1)  # of a webhook that this worker's configuration doesn't have


class RejectedError(FailedCallError):
    """The receiver rejects this event; others can be accepted."""


class BusyError(FailedCallError):
    """The receiver asks to wait for so many seconds."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class GoneError(PermanentError, FailedCallError):
    """The receiver wants no more events, as the specification says of 410."""


class GivenUpError(PermanentError, FailedCallError):
    """An event could not be delivered for a day."""


async def store(sweep: SweepRecord, event: Event, clients: SweepClients) -> None:
    """Store the event for each webhook of the sweep. Raises RedisError.

    A worker that died here stores it again: it has the same id, and a webhook gets an id once a day. One
    that this worker doesn't know is new, or was removed: `run` decides.
    """
    message_id = hashlib.sha256(f"{sweep.request_id} {event.kind} {event.text}".encode()).hexdigest()[:32]
    data = shown(sweep, clients.mask).model_dump(mode="json", exclude={"commands"})
    body = json.dumps({"type": event.kind, "timestamp": clients.now().isoformat(), "data": data})
    known = {each.name: each for each in clients.config.webhooks}
    hooks = sweep.of(WebhooksState).hooks
    quarantined = await clients.queue.quarantined() if hooks else {}
    for name in hooks:
        hook = known.get(name)
        if hook and hook.events and event.kind not in hook.events:
            continue
        item, once = WorkItem(ITEM, name), f"{ITEM}/{name}/{message_id}"
        await clients.store.add_request(str(item), f"{message_id} {body}", once=once, queue=clients.queue)
        if (why := quarantined.get(str(item))) is None:
            continue
        if GONE in why.why and (hook is None or await clients.store.held(_held(hook, "gone"))):
            await _drop_old(item, await _stored(item, clients), clients)
        else:
            await clients.queue.retry(item)


async def run(lease: Lease, clients: SweepClients) -> timedelta | None:
    """Send a webhook's events: the handler of its work item. Raises RedisError and FailedCallError.

    After a day of failures that is GivenUpError, and the quarantined item drops what is as old. So does a
    worker without this webhook, which leaves the rest: others can have read a newer configuration.
    """
    waiting = await _stored(lease.item, clients)
    hook = next((each for each in clients.config.webhooks if each.name == lease.item.key), None)
    if hook is None or lease.quarantined:
        left = await _drop_old(lease.item, waiting, clients)
        return UNKNOWN_RETRY if left and not lease.quarantined else None
    try:
        if wait := await clients.store.held(_held(hook)):  # a new event, or the end of an outage, woke it
            raise BusyError("the receiver asked to wait", wait)
        return await _send_all(hook, waiting, lease.failures, clients)
    except FailedCallError as error:
        if isinstance(error, BusyError):
            await clients.store.hold(_held(hook), error.seconds)
        if isinstance(error, GoneError):
            await clients.store.hold(_held(hook, "gone"), GONE_SECONDS)
        if _old(waiting, clients):
            raise GivenUpError(str(error)) from None
        if isinstance(error, BusyError):
            raise RetryAfterError(str(error), min(error.seconds, LOOK_AGAIN)) from None
        raise


def _held(hook: Webhook, why: str = "waits") -> str:
    """Name what holds back the webhook's events, but not those to another URL."""
    return f"{ITEM}/{hook.name} {why} {hashlib.sha256(hook.url.encode()).hexdigest()[:16]}"


async def _stored(item: WorkItem, clients: SweepClients) -> list[str]:
    return [text(each) for each in await clients.store.requests(str(item))]


def _old(waiting: list[str], clients: SweepClients) -> list[str]:
    bodies = {each: each.removeprefix(REJECTED).partition(" ")[2] for each in waiting}
    times = {each: datetime.fromisoformat(json.loads(body)["timestamp"]) for each, body in bodies.items()}
    return [each for each in waiting if clients.now() - times[each] >= KEEP]


async def _drop_old(item: WorkItem, waiting: list[str], clients: SweepClients) -> bool:
    """Return whether others are left."""
    if old := _old(waiting, clients):
        log.warning("%s: dropped %d undelivered events", item, len(old))
        await clients.store.remove_requests(str(item), old)
    return len(old) < len(waiting)


async def _send_all(
    hook: Webhook, waiting: list[str], failures: int, clients: SweepClients
) -> timedelta | None:
    """Send new events in their order, then rejected ones: after each failed run from another one on."""
    item, until = str(WorkItem(ITEM, hook.name)), monotonic() + RUN_SECONDS
    new, again = (
        [each for each in waiting if each.startswith(REJECTED) is rejected] for rejected in (False, True)
    )
    first = failures * MAX_REJECTED % max(len(again), 1)
    rejections: list[RejectedError] = []
    async with aiohttp.ClientSession(timeout=TIMEOUT, trust_env=True) as session:
        for each in new:
            if monotonic() > until:
                return timedelta(0)
            try:
                await _send(hook, each, session, clients.now())
            except RejectedError as error:
                rejections.append(error)
                await clients.store.add_request(item, f"{REJECTED}{each}")
            await clients.store.remove_requests(item, [each])
        most = len(rejections) + MAX_REJECTED
        for each in (*again[first:], *again[:first]):
            if len(rejections) == most or monotonic() > until:
                break
            try:
                await _send(hook, each.removeprefix(REJECTED), session, clients.now())
            except RejectedError as error:
                rejections.append(error)
            else:
                await clients.store.remove_requests(item, [each])
    if rejections:
        raise rejections[0]
    return timedelta(0) if monotonic() > until else None


async def _send(hook: Webhook, request: str, session: aiohttp.ClientSession, now: datetime) -> None:
    """Send one event. Raises FailedCallError, whose text has nothing of the URL: that can be a secret."""
    message_id, _, body = request.partition(" ")
    try:
        headers = _headers(message_id, body, now, hook.key(os.environ))
        call = session.post(hook.url, data=body.encode(), headers=headers, allow_redirects=False)
        async with call as answer:
            status, wait = answer.status, answer.headers.get("Retry-After", "")
    except UserError as error:
        raise FailedCallError(str(error)) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:  # UnicodeError: a wrong host
        why = getattr(error, "strerror", "") or type(error).__name__
        raise FailedCallError(f"the receiver can't be reached: {why}") from None
    if 200 <= status < 300:
        return
    why = f"the receiver answers with status {status}"
    if status == 410:
        raise GoneError(f"the receiver answers with {GONE}")
    if status < 500 and status != 429:
        raise RejectedError(why)
    if seconds := _seconds(wait, now):
        raise BusyError(why, seconds)
    raise FailedCallError(why)


def _seconds(retry_after: str, now: datetime) -> float:
    """Return how long Retry-After, seconds or a date, asks to wait, up to MAX_WAIT; 0 if it says nothing."""
    try:
        if retry_after.isdecimal():
            return min(float(retry_after), MAX_WAIT)
        wait = (parsedate_to_datetime(retry_after) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):  # no date, or one without a time zone
        return 0.0
    return min(max(0.0, wait), MAX_WAIT)


def _headers(message_id: str, body: str, now: datetime, key: bytes) -> dict[str, str]:
    sent_at = str(int(now.timestamp()))
    signature = hmac.digest(key, f"{message_id}.{sent_at}.{body}".encode(), "sha256")
    return {
        "Content-Type": "application/json",
        "User-Agent": f"sweepbot/{__version__}",
        "webhook-id": message_id,
        "webhook-timestamp": sent_at,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }
