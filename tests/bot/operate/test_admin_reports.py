"""Reports in the admin channel: a rejected configuration, from several workers, and an unusable cluster."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import ClientConnectionError
from slack_sdk.errors import SlackApiError

from bot.core.work_item import ItemKind
from bot.operate.admin_reports import ClusterReport, ConfigReport
from bot.platform.clusters.connections import Clusters
from bot.platform.config.clusters import TrialCluster
from bot.platform.config.live_policy import LivePolicy
from bot.platform.slack.client import NotInChannelError, SlackBusyError
from bot.platform.storage.work_queue import Queue
from bot.text.masking import Mask
from k8s.api.errors import ClusterUnreachableError
from k8s.api.remote import RemoteClient
from tests.bot.factories import CONFIG, NOW


class AdminChannel:
    def __init__(self):
        self.posts, self.refuses = [], False

    async def post(self, channel, message):
        if self.refuses:
            raise NotInChannelError(channel)
        self.posts.append((channel, message.text))


class Git:
    def use_logins(self, logins):
        self.logins = logins


class Worker:
    def __init__(self, redis, channel):
        self.policy = LivePolicy(CONFIG)
        self.clients = SimpleNamespace(
            config=replace(CONFIG, admin_channel="C1"),
            mask=Mask(["hunter2secret"]),
            queue=Queue(redis),
            slack=channel,
            git=Git(),
        )
        self.report = ConfigReport(self.policy, self.clients, redis)

    async def sees(self, version, error):
        self.policy.version, self.policy.error = version, error
        await self.report.check()
        while lease := await self.clients.queue.get(wait=0):
            assert lease.item.kind == ItemKind.CONFIG
            await self.report.run(lease.item.key)
            await self.clients.queue.done(lease)


@pytest.fixture
def channel():
    return AdminChannel()


@pytest.fixture
def workers(redis, channel):
    return Worker(redis, channel), Worker(redis, channel)


async def test_config_report_posts_once_per_version_and_once_when_mended(workers, channel):
    one, two = workers
    await one.sees("v1", "")
    for worker in (one, two, one):
        await worker.sees("v2", 'config.yaml:3: admins: must be a list; got "hunter2secret" <!channel>.')
    [(where, text)] = channel.posts
    assert where == "C1"
    assert text.startswith(":warning: *config.yaml has errors.*")
    assert "hunter2secret" not in text
    assert "<!channel>" not in text
    for worker in (one, two):
        await worker.sees("v3", "")
    await two.sees("v2", "late: the kubelet of this worker is slow")
    assert [text.partition(" ")[0] for _, text in channel.posts] == [":warning:", ":white_check_mark:"]


async def test_config_report_says_after_days_that_the_file_is_valid_again(workers, channel, redis):
    await workers[0].sees("v2", "broken")
    for key in [each async for each in redis.scan_iter() if await redis.ttl(each) > 0]:
        await redis.delete(key)
    await workers[0].sees("v3", "")
    assert [text.partition(" ")[0] for _, text in channel.posts] == [":warning:", ":white_check_mark:"]


async def test_config_report_in_a_closed_channel_is_not_repeated(workers, channel):
    channel.refuses = True
    await workers[0].sees("v2", "broken")
    channel.refuses = False
    await workers[1].sees("v2", "broken")
    assert channel.posts == []


async def test_config_report_of_a_valid_file_renews_credentials(workers, channel, no_litter):
    await workers[0].sees("v1", "")
    assert workers[0].clients.git.logins == {}
    assert channel.posts == []


REJECTED = ClusterUnreachableError(
    "west", "the API server rejects the credentials (401)", fix="Put a valid token into its kubeconfig."
)
CONFIGURED = replace(
    CONFIG, clusters=(TrialCluster(name="west", kubeconfig="/west"),), admin_channel="CADMINS"
)


class Channel:
    def __init__(self) -> None:
        self.posted, self.error, self.tried = [], None, 0

    async def post(self, channel, message):
        self.tried += 1
        if self.error:
            raise self.error
        self.posted.append((channel, message.text))


@pytest.fixture
def west():
    async def known(uid: str) -> str:
        return uid

    return RemoteClient("west", "/west", "", known)


@pytest.fixture
def report(redis, west):
    clusters, slack = Clusters(lambda _: west), Channel()
    clients = SimpleNamespace(clusters=clusters, slack=slack, config=CONFIGURED, mask=lambda text: text)
    made = ClusterReport(clients, redis)
    made.posted, made.slack = slack.posted, slack
    return made


async def test_rejected_token_is_reported_once_and_its_end_once(report, west):
    west.failure = REJECTED
    for _ in range(4):
        await report.check()
    text = (
        ":warning: Cluster `west` can't be used, so its sweeps wait: the API server rejects the credentials "
        "(401). *Fix:* Put a valid token into its kubeconfig."
    )
    assert report.posted == [("CADMINS", text)]
    west.failure, west.seen = None, NOW
    for _ in range(2):
        await report.check()
    assert [text for _, text in report.posted[1:]] == [":white_check_mark: Cluster `west` answers again."]


async def test_cluster_that_only_does_not_answer_is_not_reported(report, west):
    west.failure = ClusterUnreachableError("west", "no route to host")
    for _ in range(3):
        await report.check()
    assert report.posted == []


@pytest.mark.parametrize("error", [SlackBusyError(1.0), SlackApiError("down", {}), ClientConnectionError()])
async def test_reports_that_slack_does_not_accept_now_are_repeated(
    report, west, error, monkeypatch, wait_until
):
    """Another error would end the worker."""
    monkeypatch.setattr("bot.operate.admin_reports.CLUSTER_INTERVAL", 0.01)
    following = asyncio.create_task(report.follow())
    for number, failure, seen in ((1, REJECTED, None), (2, None, NOW)):
        report.slack.error, report.slack.tried = error, 0
        west.failure, west.seen = failure, seen
        await wait_until(lambda: report.slack.tried > 1 or following.done(), "it is tried again")
        report.slack.error = None
        await wait_until(lambda n=number: len(report.posted) == n or following.done(), "it is posted")
    assert not following.done()
    following.cancel()
