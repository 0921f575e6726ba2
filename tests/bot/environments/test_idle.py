"""Idle environments: what is measured, the warning, and the stop."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web

from bot.config.environments import EnvironmentIdle
from bot.environments.activity import Activity, ServerUse, Use, code_server_use, cores, gpu_peak, jupyter_use
from bot.environments.cluster import load
from bot.environments.idle import TICK
from bot.environments.idle_job import PARALLEL, QUIET_KEY, IdleJob
from bot.environments.record import Environment, EnvironmentRecord
from bot.environments.requests import Verb
from bot.gpus.models import Gpu, NoGpuDataError, PodUse
from bot.slack.client import NotInChannelError
from k8s.environments import JUPYTER as JUPYTER_SERVER
from tests.bot.environments.world import NAMESPACE, World
from tests.bot.factories import NOW, OWNER

RECORD = {"name": "lab", "owner": OWNER, "channel": "C1", "request_id": "1", "image": "jupyter", "size": "m"}
RECORD |= {"gpus": 0, "home": "lab", "home_size": "20Gi", "since": NOW}
LONG_AGO = ServerUse(busy=False, last=NOW - timedelta(hours=9))
IDLE = Activity(at=NOW, gpu=0.0, server=LONG_AGO, cpu=0.01)
STATUS = '{"last_activity": "2026-11-21T03:00:00.000000Z", "kernels": 1, "connections": 0}'


@pytest.mark.parametrize(
    ("change", "use"),
    [
        ({}, Use.IDLE),
        ({"gpu": 0.5}, Use.BUSY),
        ({"gpu": None}, Use.UNKNOWN),
        ({"cpu": 0.9}, Use.BUSY),
        ({"cpu": None}, Use.UNKNOWN),
        ({"server": None}, Use.UNKNOWN),
        ({"server": replace(LONG_AGO, busy=True)}, Use.BUSY),
        ({"server": replace(LONG_AGO, last=NOW - timedelta(minutes=1))}, Use.BUSY),
        ({"server": replace(LONG_AGO, last=NOW + timedelta(days=1))}, Use.BUSY),
    ],
)
def test_use_needs_gpu_server_and_cpu_together(change, use):
    assert replace(IDLE, **change).use is use


def test_gpu_peak_is_unknown_unless_all_gpus_have_samples():
    def pod(*peaks):
        gpus = tuple(Gpu(device=str(n), peak=peak) for n, peak in enumerate(peaks))
        return PodUse(namespace=NAMESPACE, pod="p", node="n", allocated=2, gpus=gpus)

    assert gpu_peak(pod(0.0, 0.7), 2) == 0.7
    assert gpu_peak(pod(0.0), 2) is gpu_peak(pod(0.0, None), 2) is gpu_peak(None, 2) is None
    assert gpu_peak(None, 0) == 0.0


@pytest.mark.parametrize(("text", "number"), [("250000000n", 0.25), ("12m", 0.012), ("2", 2.0), ("x", None)])
def test_cores_reads_quantities_of_metrics(text, number):
    assert cores(text) == number


@pytest.mark.parametrize(
    ("status", "kernels", "busy"),
    [
        (STATUS, "[]", False),
        (STATUS, '[{"execution_state": "busy"}, {"execution_state": "idle"}]', True),
        (STATUS, '{"message": "Forbidden"}', None),
        ("<html>", "[]", None),
        ('{"last_activity": 5}', "[]", None),
        ("[" * 100_000, "[]", None),
    ],
)
def test_jupyter_answer_of_another_form_is_unknown(status, kernels, busy):
    found = jupyter_use(status, kernels)
    assert (found.busy if found else None) is busy


def test_code_server_is_described_without_kernels():
    server = code_server_use('{"status": "alive", "lastHeartbeat": 1795359600000}')
    assert "kernel" not in replace(IDLE, server=server).described(1)
    assert "no kernel busy" in IDLE.described(1)


def test_code_server_without_a_browser_so_far_is_unknown():
    assert code_server_use('{"status": "expired", "lastHeartbeat": 0}') is None
    assert code_server_use('{"status": "alive", "lastHeartbeat": 1800000000000}').last.year == 2027
    assert code_server_use('{"lastHeartbeat": 1e400}') is None


class Source:
    def __init__(self):
        self.peak, self.away = 0.0, False

    async def pods(self, window):
        if self.away:
            raise NoGpuDataError("no exporter")
        gpu = Gpu(device="GPU-1", peak=self.peak)
        return (PodUse(namespace=NAMESPACE, pod="env-lab-0", node="n", allocated=1, gpus=(gpu,)),)


class Measured:
    """A running environment with one GPU, whose measurements the test sets."""

    def __init__(self, world, monkeypatch):
        self.world, self.source = world, Source()
        self.server, self.cpu = LONG_AGO, {"env-lab-0": 0.01}
        self.job = IdleJob(world.clients, world.redis, self.source)

        async def server(_self, environment, pod):
            return self.server

        async def cpu(_self, namespace):
            return self.cpu

        monkeypatch.setattr(IdleJob, "server_use", server)
        monkeypatch.setattr(IdleJob, "_cpu", cpu)

    async def wait(self, minutes, step=5):
        """Measure every few minutes."""
        for _ in range(minutes // step):
            self.world.now += timedelta(minutes=step) - timedelta(seconds=4)
            await self.job.run("now")
            await self.world.rounds(2)

    @property
    def warnings(self):
        return [each for each in self.world.slack.replies if "isn't in use" in each]


@pytest.fixture
async def stopping(redis, monkeypatch):
    async with World(redis, idle=EnvironmentIdle(hours=2, stop=True, notice_minutes=30)).started() as world:
        await world.ask(Verb.START, gpus=1)
        await world.ready()
        yield Measured(world, monkeypatch)


async def test_idle_environment_is_warned_about_with_what_was_measured_and_not_stopped_by_default(
    redis, monkeypatch
):
    async with World(redis).started() as world:
        await world.ask(Verb.START, gpus=1)
        await world.ready()
        here = Measured(world, monkeypatch)
        await here.wait(110)
        assert here.warnings == []
        await here.wait(20)
        (warning,) = here.warnings
        assert warning.startswith(f":zzz: <@{OWNER}> `lab` isn't in use. Idle since ")
        assert "GPU max 0% in 30 min, no kernel busy, last used" in warning
        assert "CPU 0.01 cores. Sweepbot doesn't stop it by itself." in warning
        assert world.slack.texts() == ["lab: Idle"]
        await here.wait(600, step=10)
        assert len(here.warnings) == 1
        assert world.pod() is not None


async def test_idle_environment_is_stopped_after_its_warning_and_its_home_is_kept(stopping):
    await stopping.wait(125)
    assert "Sweepbot stops it at" in stopping.warnings[0]
    await stopping.wait(20)
    assert stopping.world.slack.texts() == ["lab: Idle"]
    await stopping.wait(15)
    await stopping.world.end_pod()
    assert stopping.world.slack.texts() == ["lab: Stopped: idle, and not used or kept after the warning"]
    assert ("PersistentVolumeClaim", "home-lab") in stopping.world.objects()


@pytest.mark.parametrize("change", ["gpu", "server", "cpu", "gpu away", "server away", "cpu away"])
async def test_busy_or_unknown_environment_is_not_stopped(stopping, change):
    await stopping.wait(125)
    assert len(stopping.warnings) == 1
    match change:
        case "gpu":
            stopping.source.peak = 0.4
        case "server":
            stopping.server = replace(LONG_AGO, busy=True)
        case "cpu":
            stopping.cpu = {"env-lab-0": 1.0}
        case "gpu away":
            stopping.source.away = True
        case "server away":
            stopping.server = None
        case "cpu away":
            stopping.cpu = {}
    await stopping.wait(60)
    assert stopping.world.slack.texts() == ["lab: Running"]
    assert stopping.world.pod() is not None


async def test_kept_environment_is_not_stopped_until_the_time_is_over(stopping):
    await stopping.wait(125)
    await stopping.world.ask(Verb.KEEP, hours=24)
    await stopping.wait(600, step=10)
    assert stopping.world.slack.texts() == ["lab: Running"]
    assert len(stopping.warnings) == 1


async def test_environment_whose_warning_slack_rejected_is_not_stopped(stopping):
    stopping.world.slack.reply_error = NotInChannelError("C1")
    await stopping.wait(300)
    assert stopping.warnings == []
    assert stopping.world.slack.texts() == ["lab: Running"]


async def test_environment_is_not_stopped_right_after_the_bot_was_away(stopping):
    await stopping.wait(125)
    stopping.world.now += timedelta(hours=8)
    await stopping.wait(60)
    assert stopping.world.slack.texts() == ["lab: Running"]
    await stopping.wait(100)
    assert len(stopping.warnings) == 2


async def test_new_start_begins_again(stopping):
    await stopping.wait(100)
    await stopping.world.ask(Verb.STOP)
    await stopping.world.end_pod()
    await stopping.world.ask(Verb.START, request_id="again")
    await stopping.world.ready()
    await stopping.wait(60)
    assert stopping.warnings == []


async def test_losing_redis_begins_again(stopping):
    await stopping.wait(125)
    await stopping.world.redis.delete(QUIET_KEY)
    await stopping.wait(60)
    assert stopping.world.slack.texts() == ["lab: Running"]


async def test_server_in_the_pod_is_asked_with_its_login_and_its_answer_is_limited(redis, toy, monkeypatch):
    seen, answers = [], {"/api/status": STATUS, "/api/kernels": "[]"}

    async def answer(request):
        seen.append((request.path, request.headers.get("Authorization", "")[:6]))
        response = web.StreamResponse()
        await response.prepare(request)
        text = answers[request.path].encode()
        for part in (text[:1], text[1:]):  # what has arrived first is no whole answer
            await response.write(part)
            await asyncio.sleep(0.05)
        return response

    port = int((await toy(answer)).rpartition(":")[2])
    async with World(redis).started() as world:
        await world.ask(Verb.START)
        await world.ready()
        job = IdleJob(world.clients, redis, Source())
        environment = await load("lab", world.clients)
        server = replace(JUPYTER_SERVER, port=port)
        monkeypatch.setattr("bot.environments.spec.JUPYTER", server)
        monkeypatch.setattr("bot.environments.idle_job.JUPYTER", server)
        pod = {"status": {"podIP": "127.0.0.1"}}
        assert (await job.server_use(environment, pod)).busy is False
        assert seen == [("/api/status", "token "), ("/api/kernels", "token ")]
        answers["/api/status"] = "x" * 10**6
        assert await job.server_use(environment, pod) is None
        assert await job.server_use(environment, {"status": {"podIP": "evil.example"}}) is None


async def test_measurements_begin_once_a_changed_configuration_asks_for_them(redis):
    async with World(redis).started() as world:
        configured = world.clients.config
        world.clients.config = replace(configured, environments=None)
        assert await IdleJob(world.clients, redis, Source()).run("now") == TICK


async def test_servers_are_asked_at_the_same_time_up_to_a_limit(redis, monkeypatch):
    asked, peak, released = 0, 0, asyncio.Event()

    async def silent(_self, environment, pod):
        nonlocal asked, peak
        asked += 1
        peak = max(peak, asked)
        if asked == PARALLEL:
            released.set()
        await released.wait()
        await asyncio.sleep(0)
        asked -= 1

    async def everything(_clients):
        record = EnvironmentRecord(**RECORD, ready_at=NOW)
        names = [f"lab-{number}" for number in range(3 * PARALLEL)]
        return [
            Environment(record=replace(record, name=name), uid=name, version="1", replicas=1, manifest={})
            for name in names
        ]

    async def pods(_self):
        return {f"lab-{number}": {} for number in range(3 * PARALLEL)}

    monkeypatch.setattr(IdleJob, "server_use", silent)
    monkeypatch.setattr(IdleJob, "_pods", pods)
    monkeypatch.setattr("bot.environments.cluster.load_all", everything)
    async with World(redis).started() as world:
        await IdleJob(world.clients, redis, Source()).run("now")
        assert peak == PARALLEL
        assert await redis.hlen(QUIET_KEY) == 3 * PARALLEL
