"""/gpus from the handler to the answer."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis
from slack_sdk.web.async_client import AsyncWebClient

from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import ClusterGpus, Gpu, NodeUse, NoGpuDataError, PodUse, Snapshot
from bot.measure.gpus.snapshot_store import ITEM, SnapshotStore, load_query
from bot.platform.config.clusters import TrialCluster
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.slack.client import SlackBusyError
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import local_time
from bot.platform.storage.sweeps import Store
from bot.platform.storage.work_queue import Queue
from bot.text.masking import Mask
from bot.watch.digests.post import item
from bot.watch.home.gpu_query_job import GpuQueryJob
from bot.workspace_table import GPUS
from handlers.any_wording import reply_to
from handlers.slash_gpus import answer_gpus
from tests.bot.factories import ADMIN, CONFIG, NOW, OWNER, SETTINGS, no_reservations
from tests.bot.measure.gpus.factories import lazy
from tests.handlers.factories import a_context

pytestmark = pytest.mark.usefixtures("kept_hours")

NODE = NodeUse(node="n1", model="NVIDIA H100", physical=8, allocatable=8, allocated=2)
POD = PodUse(namespace="sweeps", pod="a", node="n1", owner=OWNER, allocated=2)


class FakeSource:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now, self.trouble, self.pods = now, "", (POD,)

    async def snapshot(self, window: timedelta) -> Snapshot:
        if self.trouble:
            raise NoGpuDataError(self.trouble)
        return Snapshot(at=self.now(), nodes=(NODE,), pods=self.pods)


class FakeSlack:
    def __init__(self) -> None:
        self.replies: list[tuple[str, str, str]] = []
        self.files: list[str] = []
        self.busy = 0  # with so many files to come

    async def post_ephemeral(self, user: str, text: str, response_url: str, *_: str) -> None:
        self.replies.append((user, text, response_url))

    async def send_file(self, user: str, text: str, file: File) -> None:
        self.busy -= 1
        if self.busy >= 0:
            raise SlackBusyError(30)
        self.files.append(file.name)


class Place:
    def __init__(self, redis: Redis) -> None:
        self.redis, self.now, self.source, self.slack = redis, NOW, FakeSource(lambda: self.now), FakeSlack()
        self.context = a_context(redis, now=lambda: self.now)
        clients: Any = type(
            "Outside", (), {"slack": self.slack, "queue": Queue(redis), "store": Store(redis)}
        )()
        clients.settings, clients.config, clients.mask = SETTINGS, CONFIG, Mask()
        clients.now = lambda: self.now
        self.job = GpuQueryJob(clients, redis, self.source, self.digest_schedules, no_reservations, GPUS)  # type: ignore[arg-type]

    async def digest_schedules(self) -> tuple[DigestSchedule, ...]:
        return ()

    async def types(self, text: str, user: str = OWNER, **more: str) -> str:
        return str(await self.reply(text, user, **more))

    async def reply(self, text: str, user: str = OWNER, **more: str) -> str | Message:
        command = {"text": text, "user_id": user, "channel_id": "C1", "response_url": "https://hooks/1"}
        command |= {"trigger_id": "t1"} | more
        self.context.spoken["/gpus"] = self.context.gpus, answer_gpus
        return await reply_to(self.context, command | {"command": "/gpus"}, AsyncWebClient())

    async def queued(self) -> list[str]:
        found = []
        while lease := await self.context.queue.get(wait=0):
            await self.context.queue.done(lease)
            found.append(lease.item)
        return found


@pytest.fixture
def here(redis: Redis) -> Place:
    return Place(redis)


async def test_gpus_measures_first_and_then_uses_the_snapshot(here: Place) -> None:
    assert (await here.types("free")).startswith("Loading GPU data…")
    assert await here.queued() == [ITEM]
    await here.job.run(ITEM.key)
    measured = "*6 of 8 GPUs free*\n• NVIDIA H100: 6 of 8 free, largest block 6 on `n1`"
    assert here.slack.replies == [(OWNER, f"{measured}\nMeasured {local_time(NOW)}.", "https://hooks/1")]
    here.now += timedelta(seconds=50)
    assert await here.types("") == f"{measured}\nMeasured {local_time(NOW)}."
    assert await here.queued() == []


async def test_gpus_shows_an_old_snapshot_at_once_and_measures_again(here: Place) -> None:
    await SnapshotStore(here.redis).save(Snapshot(at=NOW - timedelta(minutes=30), nodes=(NODE,), pods=(POD,)))
    message = await here.types("mine")
    assert message.startswith("*You have 2 GPUs.*")
    assert message.endswith(f"Measured {local_time(NOW - timedelta(minutes=30))}.\nRefreshing…")
    assert await here.queued() == [ITEM]
    await here.job.run(ITEM.key)
    await here.job.run(ITEM.key)
    assert [text.rpartition("\n")[2] for _, text, _ in here.slack.replies] == [f"Measured {local_time(NOW)}."]


async def test_gpus_now_has_a_button_to_ask_the_owner_of_an_idle_pod(here: Place) -> None:
    gpus = (Gpu(device="g1", peak=0.0, mean=0.0),)
    idle = replace(POD, owner=ADMIN, started=NOW - timedelta(hours=2), gpus=gpus, allocated=1)
    here.source.pods = (idle,)
    await here.types("now")
    await here.job.run(ITEM.key)
    [(_, message, _)] = here.slack.replies
    for each in (message, await here.reply("now")):
        assert isinstance(each, Message)
        assert each.blocks[-1]["elements"][0]["value"] == "sweeps/a"


async def test_gpus_that_cannot_be_measured_is_answered_later(here: Place) -> None:
    here.source.trouble = "no samples"
    await here.types("free")
    assert await here.job.run(ITEM.key)
    assert here.slack.replies == []
    here.now += timedelta(seconds=20)
    assert await here.job.run(ITEM.key) is None
    assert here.slack.replies[0][1] == "GPU metrics are unavailable: no samples"


async def test_command_of_an_admin_that_slack_delivers_twice_is_one_request(here: Place) -> None:
    for event in ("Ev1", "Ev1", "Ev2"):
        here.now += timedelta(seconds=5)
        assert (await here.types("digest", ADMIN, request_id=event)).startswith("Posting yesterday's digest")
    assert len(await here.context.store.requests(str(ITEM))) == 2
    assert len(here.context.unconfirmed._open) == 2


async def test_bill_has_a_file(here: Place) -> None:
    day = NOW.replace(hour=0)
    for hour in lazy(day, NOW):
        await HourlyStore(here.redis).save(hour.columns.rows(), hour.capacity)
    assert (await here.types("bill")).startswith("Calculating the bill…")
    await here.job.run(ITEM.key)
    assert here.slack.replies[0][1].startswith(
        "*November 2026*: 84 GPU-h allocated, 33.6 used (43%), 6 unknown"
    )
    assert here.slack.replies[0][1].endswith("\nFull table sent by direct message.")
    assert here.slack.files == ["gpus-2026-11.csv"]


async def test_bill_of_several_clusters_has_each_and_the_sum(here: Place) -> None:
    here.job.clients.config = replace(CONFIG, clusters=(TrialCluster(name="west", kubeconfig="/west"),))
    for name in ("main", "west"):
        for hour in lazy(NOW - timedelta(hours=2 if name == "west" else 12), NOW):
            await HourlyStore(here.redis, name).save(hour.columns.rows(), hour.capacity)
    await here.types("bill")
    await here.job.run(ITEM.key)
    text = here.slack.replies[0][1]
    assert text.startswith("*November 2026*: 98 GPU-h allocated")
    assert "*By cluster*\n• `main`: 84 GPU-h allocated" in text
    assert "\n• `west`: 14 GPU-h allocated" in text


async def test_bill_has_the_hours_of_a_cluster_that_was_removed_this_month(here: Place) -> None:
    for name, hours in (("main", 12), ("west", 2), ("east", 24 * 25)):
        begin = NOW - timedelta(hours=hours)
        for hour in lazy(begin, begin + timedelta(hours=2)):
            await HourlyStore(here.redis, name).save(hour.columns.rows(), hour.capacity)
    await here.types("bill")
    await here.job.run(ITEM.key)
    text = here.slack.replies[0][1]
    assert text.startswith("*November 2026*: 28 GPU-h allocated")
    assert "\n• `west`: 14 GPU-h allocated" in text
    assert "east" not in text


async def test_pods_and_nodes_of_several_clusters_are_measured_for_each_answer(here: Place) -> None:
    config = replace(CONFIG, clusters=(TrialCluster(name="west", kubeconfig="/west"),))
    here.context = a_context(here.redis, now=lambda: here.now, config=config)
    west = (ClusterGpus(cluster="west", free=5, total=8),)
    await SnapshotStore(here.redis).save(Snapshot(at=NOW, nodes=(NODE,), pods=(POD,), others=west))
    assert (await here.types("")).startswith("*11 of 16 GPUs free in all clusters*")
    assert await here.queued() == []
    here.job.clients.config = config
    here.job.clients.clusters = type("None", (), {"all": lambda *_: ()})()
    assert (await here.types("nodes")).startswith("Loading GPU data…")
    await here.job.run(ITEM.key)
    assert here.slack.replies[-1][1].endswith("\n• `west`: no GPU data")


async def test_bill_file_that_waits_repeats_no_message(here: Place) -> None:
    for hour in lazy(NOW - timedelta(hours=2), NOW):
        await HourlyStore(here.redis).save(hour.columns.rows(), hour.capacity)
    await here.types("bill")
    here.slack.busy = 2
    for _ in range(2):
        with pytest.raises(SlackBusyError):
            await here.job.run(ITEM.key)
    await here.job.run(ITEM.key)
    assert (len(here.slack.replies), len(here.slack.files)) == (1, 1)
    await here.types("bill")
    await here.job.run(ITEM.key)
    assert (len(here.slack.replies), len(here.slack.files)) == (2, 2)


async def test_digest_is_for_admins(here: Place) -> None:
    assert (await here.types("digest")).startswith("Only admins can do that")
    assert await here.queued() == []
    assert (await here.types("digest", ADMIN)).startswith("Posting yesterday's digest here.")
    await here.queued()
    await here.job.run(ITEM.key)
    assert await here.queued() == [item("C1", NOW.date() - timedelta(days=1))]


async def test_digest_requested_with_other_queries_hides_no_reply(here: Place) -> None:
    await here.types("digest", ADMIN)
    await here.types("free")
    await here.job.run(ITEM.key)
    assert [user for user, _, _ in here.slack.replies] == [OWNER]
    assert item("C1", NOW.date() - timedelta(days=1)) in await here.queued()
    assert await here.context.store.requests(str(ITEM)) == []


async def test_failing_reply_blocks_no_other_and_is_retried_for_half_an_hour(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise KeyError("digest")

    monkeypatch.setattr(here.job, "_digest", fails)
    await here.types("digest", ADMIN)
    await here.types("free")
    with pytest.raises(KeyError):
        await here.job.run(ITEM.key)
    assert [user for user, _, _ in here.slack.replies] == [OWNER]
    assert [load_query(each).text for each in await here.context.store.requests(str(ITEM))] == ["digest"]
    here.now += timedelta(minutes=31)
    await here.job.run(ITEM.key)
    assert await here.context.store.requests(str(ITEM)) == []


async def test_unknown_option_gets_a_suggestion(here: Place) -> None:
    unknown = await here.types("<!channel> nods")
    assert unknown.startswith("Unknown command `&lt;!channel&gt;`.")
    assert "free, mine, team, nodes, now, bill, digest" in unknown
    assert (await here.types("nods")).startswith("Loading GPU data")
