"""Reports of a rejected configuration, from several workers, in the admin channel."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from bot.config.live_policy import LivePolicy
from bot.core.work_item import ItemKind
from bot.operator.config_report import ConfigReport
from bot.slack.client import NotInChannelError
from bot.storage.work_queue import Queue
from bot.text.masking import Mask
from tests.bot.factories import CONFIG


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
