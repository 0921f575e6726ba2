"""A configuration file is replaced as Kubernetes does it: a new directory, and a symlink swapped."""

import logging
import os

import pytest

from bot.config.live_policy import LivePolicy
from bot.core.errors import UserError
from bot.core.metrics import REGISTRY

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
    assert "SWEEPBOT_CONFIG" in policy.error


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
