"""20 sweeps of 30 trials end at once in one channel: nothing is lost under Slack's rate limits.

The controllers of the cluster and Katib, the reconciles, the worker, and Slack's limits are real. The clocks
of the limits, Slack's and ours, run FASTER than a real one.
"""

import asyncio
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.core.record import Phase
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.config.limits import Limits
from bot.platform.slack.client import Slack
from bot.platform.slack.rate_limit import EDITS, POSTS, Rate, RateLimiter
from bot.platform.storage.work_queue import Lease, Queue
from bot.sweep.reports.trial_runs_job import TrialRunsJob
from bot.sweep.sweeps import reconciler
from bot.sweep.sweeps.reconciler import reconcile
from bot.worker import Worker, keyed
from local.slack import serve
from tests.bot.factories import a_sweep
from tests.scenarios.slack_session import ADA, CHANNEL
from tests.scenarios.sweep_in_memory import Clock, SimulatedSweep

SWEEPS, TRIALS, BAD, FASTER = 20, 30, 6, 5
SPACE = f"""
command: python train.py
objective: {{metric: loss, goal: minimize}}
algorithm: grid
trials: {{max: {TRIALS}, parallel: {TRIALS}, max_failed: {TRIALS}}}
parameters:
  width: [{", ".join(f"w{n:02}" for n in range(TRIALS))}]
"""
IDS = [f"lr-{chr(97 + n)}-otter" for n in range(SWEEPS)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Ticking:
    """Slack's clock: at first, nothing is delayed."""

    def __init__(self):
        self.now, self.since = 0.0, None

    def __call__(self):
        if self.since is not None:
            return self.now + FASTER * (time.monotonic() - self.since)
        self.now += 60
        return self.now


class Rush(SimulatedSweep):
    over = False

    def _ends(self, labels):
        return self.over

    def _end(self, pod, labels):
        values = self.kubernetes.get("Trial", "sweeps", labels["katib.kubeflow.org/trial"])["spec"]
        self.scenario["crash"] = int(values["parameterAssignments"][0]["value"][1:]) < BAD
        super()._end(pod, labels)

    def _width(self, namespace, trial):
        values = self.kubernetes.get("Trial", namespace, trial)["spec"]["parameterAssignments"]
        return f"0.{values[0]['value'][1:]}"

    async def all_round(self):
        """Reconcile each sweep, then advance the time for all."""
        for sweep in IDS:
            lease = Lease(WorkItem.sweep(sweep), sweep, failures=0, key=f"life:lease:{sweep}")
            await self.redis.set(lease.key, sweep)
            await reconcile(lease, self.clients)
            await self.redis.delete(lease.key)
        await self.settle()
        await self._time_passes()
        await self.settle()

    async def records(self):
        return [await self.store.get(sweep) for sweep in IDS]


async def test_end_of_20_sweeps_of_30_trials_in_one_channel_loses_nothing(redis, monkeypatch):
    clock = Ticking()
    for name, rate in {"POSTS": POSTS, "EDITS": EDITS}.items():
        monkeypatch.setattr(f"bot.platform.slack.client.{name}", Rate(rate.gap / FASTER, rate.burst))
    slack = await serve(clock=clock)
    web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    rush = Rush(redis, Clock(None), image=True, space=SPACE)
    try:
        async with rush.started():
            await running(rush, web)
            before = len(slack.messages(CHANNEL))
            clock.since = time.monotonic()
            await the_end(rush, web)
            assert len(slack.messages(CHANNEL)) == before + 2 * SWEEPS  # a failed first trial and the end
            for sweep in await rush.records():
                assert_reported(slack, sweep)
    finally:
        await slack.close()


async def running(rush, web):
    config = replace(rush.clients.config, limits=Limits(parallel=TRIALS))
    rush.clients = replace(rush.clients, slack=Slack(web), config=config)
    for sweep in IDS:
        first = a_sweep(request_id=f"trigger-{sweep}", requester=ADA)
        await rush.store.create(first, [sweep], first.request_id)
    for _ in range(40):
        await rush.all_round()
        if all(s.phase is Phase.RUNNING and s.progress.running == TRIALS for s in await rush.records()):
            return
    raise AssertionError([(s.phase, s.reason, s.progress.running) for s in await rush.records()])


async def the_end(rush, web):
    rush.over = True
    await rush._time_passes()
    await rush.settle()
    queue, slack = Queue(rush.redis, prefix="life:queue"), Slack(web, RateLimiter(redis=rush.redis))
    rush.clients = replace(rush.clients, slack=slack, queue=queue, store=rush.store, now=now)
    stop = asyncio.Event()
    handlers = {
        ItemKind.SWEEP: partial(reconciler.handle, clients=rush.clients),
        ItemKind.TRIAL_RUNS: keyed(TrialRunsJob(rush.clients, rush.run_writer).run),
    }
    working = asyncio.create_task(Worker(queue, 8, handlers).run(stop))
    try:
        async with asyncio.timeout(500):  # a minute where nothing else runs
            while not all([await quiet(sweep) for sweep in await rush.records()]):
                for sweep in IDS:
                    await queue.add(WorkItem.sweep(sweep))  # as the watch would
                await asyncio.sleep(0.5)
    finally:
        stop.set()
        await working


async def quiet(sweep):
    return sweep.phase.final and not sweep.outbox and sweep.shown.phase is sweep.phase


def assert_reported(slack, sweep):
    assert sweep.phase is Phase.SUCCEEDED
    [parent, *thread] = slack.messages(CHANNEL, sweep.thread)
    assert f"{TRIALS} of {TRIALS} trials · {BAD} failed" in parent["blocks"][0]["text"]["text"]
    texts = [message["text"] for message in thread]
    ends = [text for text in texts if f" · Finished: {TRIALS} trials done ({BAD} failed)." in text]
    assert len(ends) == 1, texts
    assert "*0.06*" in ends[0]
    failures = sum(bool(re.match(r":warning: (<@\w+> )?Trial", text)) for text in texts)
    more = sum(int(number) for number in re.findall(r"(\d+) more trials? failed", "\n".join(texts)))
    assert failures + more == BAD


def now():
    return datetime.now(UTC)
