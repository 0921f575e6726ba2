"""A configuration file is replaced as Kubernetes does it: a new directory, and a symlink swapped."""

import logging
import os
import tracemalloc
from types import SimpleNamespace

import pytest

from bot.core.errors import UserError
from bot.core.metrics import REGISTRY
from bot.platform.config import live_policy
from bot.platform.config.live_policy import LivePolicy
from bot.platform.storage.work_queue import Queue
from bot.sweep.channels.models import ChannelSetup, Setup
from bot.sweep.channels.store import SetupReader, SetupWriter
from tests.bot.factories import SETTINGS

FIRST = "repositories: {digits: {url: https://git.example/digits.git}}\n"
SECOND = f"{FIRST}admins: [U0AAAAAAA]\n"
BROKEN = f"{FIRST}admins: 5\n"


class Volume:
    """A ConfigMap's volume, written like a kubelet: `config.yaml` is a link into `..data`."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        self.write(FIRST)
        (folder / "config.yaml").symlink_to("..data/config.yaml")

    def write(self, text):
        self.count += 1
        version = self.folder / f"..{self.count}"
        version.mkdir()
        (version / "config.yaml").write_text(text)
        (self.folder / "..new").symlink_to(version.name)
        os.replace(self.folder / "..new", self.folder / "..data")  # noqa: PTH105


@pytest.fixture
def volume(tmp_path):
    return Volume(tmp_path)


@pytest.fixture
def policy(volume):
    return LivePolicy.read(volume.folder / "config.yaml")


async def refreshed(policy):
    for _ in range(2):
        await policy.refresh()


def valid():
    return REGISTRY.get_sample_value("sweepbot_config_last_reload_successful")


async def test_live_policy_takes_a_changed_file_after_two_equal_reads(policy, volume):
    volume.write(SECOND)
    await policy.refresh()
    assert policy.config.admins == ()
    await policy.refresh()
    assert policy.config.admins == ("U0AAAAAAA",)
    assert valid() == 1


async def test_all_of_a_process_use_the_config_that_the_log_says_is_in_effect(policy, volume, redis, caplog):
    """Also before the worker and the handlers read the settings of channels again."""
    clients = SimpleNamespace(settings=SETTINGS, config=policy.config, cluster=None)
    users = clients, SetupReader(redis, Queue(redis), policy)
    writer, seen = SetupWriter(clients, redis, policy), []
    writer.setup = Setup(channels={"C1": ChannelSetup(repo="digits")})

    class Log(logging.Handler):
        def emit(self, record):
            seen.append((record.getMessage()[-12:], [each.config.admins for each in users]))

    caplog.set_level(logging.INFO, live_policy.__name__)
    live_policy.log.addHandler(handler := Log())
    try:
        volume.write(SECOND)
        await refreshed(policy)
        volume.write(BROKEN)
        await refreshed(policy)
    finally:
        live_policy.log.removeHandler(handler)
    taken = [("U0AAAAAAA",)] * 2
    assert [each for _, each in seen] == [taken, taken]
    assert seen[0][0] == "is in effect"
    assert clients.config.channel_repos == {"C1": "digits"}


async def test_live_policy_with_a_broken_file_keeps_the_config_and_logs_once(policy, volume, caplog):
    volume.write(SECOND)
    await refreshed(policy)
    volume.write(BROKEN)
    for _ in range(3):
        await refreshed(policy)
    assert policy.config.admins == ("U0AAAAAAA",)
    assert "admins" in policy.error
    assert valid() == 0
    [line] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "the previous one stays" in line.getMessage()
    volume.write(FIRST)
    await refreshed(policy)
    assert (policy.config.admins, policy.error, valid()) == ((), "", 1)


async def test_live_policy_returns_to_the_file_in_effect(policy, volume):
    volume.write(BROKEN)
    await refreshed(policy)
    volume.write(FIRST)
    await refreshed(policy)
    assert (policy.error, valid()) == ("", 1)


@pytest.mark.parametrize("break_", ["missing", "binary"])
async def test_live_policy_without_a_readable_file_keeps_the_config(policy, volume, break_):
    if break_ == "missing":
        (volume.folder / "..data").unlink()
    else:
        (volume.folder / "..1" / "config.yaml").write_bytes(b"\xff\xfe\x00")
    await refreshed(policy)
    assert policy.config.repositories[0].name == "digits"
    assert "The configuration file" in policy.error


async def test_live_policy_reads_no_more_of_a_huge_file_than_its_limit(policy, volume):
    """All 200 MB were read, and hashed on the event loop."""
    with (volume.folder / "..1" / "config.yaml").open("r+b") as file:
        file.truncate(200 * 2**20)
    tracemalloc.start()
    await refreshed(policy)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "config.yaml: too long (the limit is 64,000 characters)" in policy.error
    assert peak < 2 * 2**20


async def test_live_policy_rejects_what_a_check_rejects(policy, volume):
    def check(config):
        if config.admins:
            raise UserError("GIT_USERNAME_X isn't set.")

    policy.require(check)
    volume.write(SECOND)
    await refreshed(policy)
    assert (policy.config.admins, policy.error) == ((), "GIT_USERNAME_X isn't set.")


def test_live_policy_with_a_broken_file_does_not_start(volume):
    volume.write(BROKEN)
    with pytest.raises(UserError):
        LivePolicy.read(volume.folder / "config.yaml")
