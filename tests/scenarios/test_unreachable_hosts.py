"""A registry or git server that can't be reached is named in the sweep's messages until it is back."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from aiohttp import ClientConnectorDNSError

from bot.core.record import Phase
from bot.platform.registry.auth import RegistryError
from bot.platform.registry.client import Registry, UnknownHostError
from bot.platform.repos.git_commands import GitUnavailableError
from bot.sweep.answers.messages import status
from tests.bot.factories import NOW, OWNER, REQUEST
from tests.scenarios.sweep_in_memory import SPACE, SWEEP, Clock, SimulatedSweep

GHOST = "image: ghost.example/x:1\n"
RETRIES = "Sweepbot retries for 2 min, then refuses the sweep."


@pytest.fixture
async def simulation(redis):
    async with SimulatedSweep(redis, Clock(None), endless=True).started() as simulation:
        config = simulation.clients.config
        simulation.clients.config = replace(config, images=(*config.images, "ghost.example/"))
        yield simulation


@pytest.fixture
def without_dns(monkeypatch):
    """No host name resolves, without a real resolver."""

    async def unresolved(self, repository, tag):
        raise UnknownHostError(f"the registry {self._host} can't be reached: its host name doesn't resolve")

    monkeypatch.setattr(Registry, "digest", unresolved)
    return monkeypatch


async def attempts(simulation, count, first=0):
    for failures in range(first, first + count):
        await simulation.round(failures)


def main_text(message):
    return "\n".join(each["text"]["text"] for each in message.blocks if each["type"] == "section")


async def test_image_on_an_unknown_host_is_reported_once_and_the_sweep_goes_on(simulation, without_dns):
    simulation.git.space = SPACE + GHOST
    await attempts(simulation, 4)
    [(user, text)] = simulation.slack.ephemeral_messages
    why = (
        f"The registry ghost.example can't be reached: its host name doesn't resolve. {RETRIES} "
        "*Fix:* Check the host name in `image: ghost.example/x:1`."
    )
    assert (user, text) == (OWNER, f":warning: `{SWEEP}` is waiting. {why}")
    assert why in status(await simulation.record())

    async def found(*_):
        return f"sha256:{'a' * 64}"

    without_dns.setattr(Registry, "digest", found)
    await attempts(simulation, 3)
    assert (await simulation.record()).phase not in {Phase.RECEIVED, Phase.REFUSED}
    assert len(simulation.slack.ephemeral_messages) == 1
    assert all("can't be reached" not in main_text(each) for each in simulation.slack.parents)
    assert "can't be reached" not in status(simulation.last)


async def test_git_server_that_is_down_is_reported_by_the_second_attempt(simulation):
    async def down(*_):
        raise GitUnavailableError("https://git.example/lab: Could not resolve host: git.example")

    simulation.git.resolve = down
    await attempts(simulation, 2)
    [(_, reported)] = simulation.slack.ephemeral_messages
    why = "The git server can't be reached: https://git.example/lab: Could not resolve host: git.example."
    assert reported == f":warning: `{SWEEP}` is waiting. {why} {RETRIES}"
    assert f"{why} {RETRIES}" in status(await simulation.record())


async def test_git_that_fails_once_after_an_outage_or_a_wait_refuses_no_sweep(simulation):
    """The two minutes count from the first of failures in a row, not from the command."""

    async def down(*_):
        raise GitUnavailableError("https://git.example/lab: Could not resolve host: git.example")

    resolve = simulation.git.resolve
    for minutes in (3, 8):  # no worker ran; an older sweep was planned first
        simulation.clients.now = lambda minutes=minutes: NOW + timedelta(minutes=minutes)
        simulation.git.resolve = down
        await attempts(simulation, 1)
        assert (await simulation.record()).phase is Phase.RECEIVED
        simulation.git.resolve = resolve
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bot.sweep.sweeps.observe._observe_older", nothing)
            await attempts(simulation, 1)
    await attempts(simulation, 1)
    assert (await simulation.record()).phase not in {Phase.RECEIVED, Phase.REFUSED}


async def nothing(*_):
    return None


async def test_image_that_stays_on_an_unknown_host_is_refused_with_the_fix(simulation, without_dns):
    simulation.git.space = SPACE + GHOST
    await attempts(simulation, 1)
    simulation.clients.now = lambda: NOW + timedelta(minutes=3)
    await attempts(simulation, 1)
    record = await simulation.record()
    assert record.phase is Phase.REFUSED
    [(_, text)] = simulation.slack.ephemeral_messages
    assert "doesn't resolve. *Fix:* Check the host name in `image: ghost.example/x:1`." in text


async def test_image_of_an_option_is_named_as_it_was_typed(redis, without_dns):
    request = replace(REQUEST, image="ghost.example/x:1")
    simulation = SimulatedSweep(redis, Clock(None), sweep={"request": request})
    simulation.clients.config = replace(simulation.clients.config, images=("ghost.example/",))
    async with simulation.started():
        await attempts(simulation, 2)
    [(_, text)] = simulation.slack.ephemeral_messages
    assert text.endswith("*Fix:* Check the host name in `image=ghost.example/x:1`.")


async def test_registry_that_is_down_during_a_build_is_shown_until_it_is_back(simulation):
    async def down(*_):
        raise RegistryError("the registry registry:5000 can't be reached: no answer within 5 s")

    there, simulation.registry.digest = simulation.registry.digest, down
    await attempts(simulation, 4)
    simulation.clients.now = lambda: NOW + timedelta(minutes=1)
    await attempts(simulation, 2, first=4)
    why = "The registry registry:5000 can't be reached: no answer within 5 s. Sweepbot retries."
    [posted] = [text for text in simulation.slack.posted if why in text]
    assert posted == f":warning: `{SWEEP}` is waiting. {why}"
    assert f":warning: {why}" in main_text(simulation.slack.parents[-1])
    before = len(simulation.slack.parents)
    await attempts(simulation, 2, first=6)
    assert len(simulation.slack.parents) == before
    simulation.registry.digest = there
    simulation.clients.now = lambda: NOW + timedelta(minutes=5)
    await attempts(simulation, 2)
    assert any("Error resolved; the sweep continues." in text for text in simulation.slack.posted)
    simulation.clients.now = lambda: NOW + timedelta(minutes=6)  # the step was an edit just before
    await attempts(simulation, 1)
    assert why not in main_text(simulation.slack.parents[-1])


async def test_registry_with_an_unknown_host_name_raises_unknown_host(monkeypatch):
    async def unresolved(*_, **__):
        key = SimpleNamespace(host="ghost.example", port=443, ssl=True, is_ssl=True)
        raise ClientConnectorDNSError(key, OSError(-2, "Name or service not known"))

    registry = Registry("ghost.example")
    monkeypatch.setattr(registry._session, "request", unresolved)
    with pytest.raises(UnknownHostError, match=r"ghost\.example can't be reached: its host name doesn't"):
        await registry.digest("x", "1")
    await registry.close()
