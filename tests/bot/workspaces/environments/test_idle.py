"""Idle environments: what is measured, the warning, and the stop."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError

from bot.measure.gpus.models import Gpu, NoGpuDataError, PodUse
from bot.platform.config.environments import EnvironmentIdle
from bot.platform.slack.client import NotInChannelError
from bot.workspaces.environments.cluster import load
from bot.workspaces.environments.idle import TICK
from bot.workspaces.environments.idle_job import PARALLEL, QUIET_KEY, IdleJob
from bot.workspaces.environments.record import Environment, EnvironmentRecord
from bot.workspaces.environments.requests import Verb
from k8s.api.errors import ApiError
from k8s.environments import JUPYTER as JUPYTER_SERVER
from tests.bot.factories import NOW, OWNER
from tests.bot.workspaces.environments.test_idle_decisions import LONG_AGO, RECORD, STATUS
from tests.bot.workspaces.environments.world import NAMESPACE, World


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
        self.server, self.cpu = LONG_AGO, {"env-lab-0": ("4m", "6000u")}  # of each container
        self.job = IdleJob(world.clients, world.redis, self.source)

        async def server(_self, environment, pod):
            return self.server

        async def metrics(_kind, _namespace, _clients):
            if self.cpu is None:
                raise ApiError(
                    503, "ServiceUnavailable", "the server is currently unable to handle the request"
                )
            used = {pod: [{"usage": {"cpu": each}} for each in values] for pod, values in self.cpu.items()}
            return [{"metadata": {"name": pod}, "containers": values} for pod, values in used.items()]

        monkeypatch.setattr(IdleJob, "server_use", server)
        monkeypatch.setattr("bot.workspaces.environments.idle_job.list_if_allowed", metrics)

    async def wait(self, minutes, step=5):
        """Measure every few minutes."""
        for _ in range(minutes // step):
            self.world.now += timedelta(minutes=step) - timedelta(seconds=4)
            await self.job.run("now")
            await self.world.rounds(2)

    @property
    def warnings(self):
        return [each for each in self.world.slack.replies if "is idle" in each]


@pytest.fixture
async def stopping(redis, monkeypatch):
    async with World(redis, idle=EnvironmentIdle(hours=2, stop=True, notice_minutes=30)).started() as world:
        await world.ask(Verb.START, gpus=1)
        await world.ready()
        yield Measured(world, monkeypatch)


async def test_idle_environment_gets_a_warning_with_measurements_and_is_not_stopped_by_default(
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
        assert warning.startswith(f":zzz: <@{OWNER}> `lab` is idle. Idle since ")
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


@pytest.mark.parametrize(
    "change", ["gpu", "server", "cpu", "gpu away", "server away", "cpu away", "cpu down", "cpu unknown"]
)
async def test_busy_or_unknown_environment_is_not_stopped(stopping, change):
    await stopping.wait(125)
    assert len(stopping.warnings) == 1
    match change:
        case "gpu":
            stopping.source.peak = 0.4
        case "server":
            stopping.server = replace(LONG_AGO, busy=True)
        case "cpu":
            stopping.cpu = {"env-lab-0": ("1", "0")}
        case "gpu away":
            stopping.source.away = True
        case "server away":
            stopping.server = None
        case "cpu away":
            stopping.cpu = {}
        case "cpu down":
            stopping.cpu = None
        case "cpu unknown":
            stopping.cpu = {"env-lab-0": ("4m", "")}
    await stopping.wait(60)
    assert stopping.world.slack.texts() == ["lab: Running"]
    assert stopping.world.pod() is not None


async def test_kept_environment_is_not_stopped_until_the_time_is_over(stopping):
    await stopping.wait(125)
    await stopping.world.ask(Verb.KEEP, hours=24)
    await stopping.wait(600, step=10)
    assert stopping.world.slack.texts() == ["lab: Running"]
    assert len(stopping.warnings) == 1


async def test_environment_whose_warning_slack_rejected_is_not_stopped(stopping, caplog):
    stopping.world.slack.reply_error = NotInChannelError("C1")
    await stopping.wait(300)
    assert stopping.warnings == []
    assert stopping.world.slack.texts() == ["lab: Running"]
    assert "can't warn about idle environment lab" in caplog.text


async def test_warning_that_slack_does_not_accept_now_delays_no_stop_of_another(stopping):
    await stopping.world.ask(Verb.START, name="second", request_id="second", gpus=0)
    await stopping.world.ready("second")
    stopping.cpu["env-second-0"] = ("4m", "6000u")
    await stopping.wait(125)
    assert len(stopping.warnings) == 2
    await stopping.world.ask(Verb.KEEP, hours=0)
    stopping.world.slack.reply_error = SlackApiError("down", {})
    for _ in range(7):
        with contextlib.suppress(SlackApiError):
            await stopping.wait(5)
    assert stopping.world.record("second").wanted == "stopped"


async def test_environment_is_not_stopped_right_after_the_bot_was_away(stopping):
    await stopping.wait(125)
    stopping.world.now += timedelta(hours=8)
    await stopping.wait(60)
    assert stopping.world.slack.texts() == ["lab: Running"]
    await stopping.wait(100)
    assert len(stopping.warnings) == 2


async def test_new_start_begins_again(stopping):
    await stopping.wait(100)
    await stopping.world.ask(Verb.KEEP, hours=24)
    await stopping.world.ask(Verb.STOP)
    await stopping.world.end_pod()
    await stopping.world.ask(Verb.START, request_id="again")
    await stopping.world.ready()
    await stopping.wait(60)
    assert (stopping.warnings, stopping.world.record().keep_until) == ([], None)


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
        monkeypatch.setattr("bot.workspaces.environments.spec.JUPYTER", server)
        monkeypatch.setattr("bot.workspaces.environments.idle_job.JUPYTER", server)
        pod = {"status": {"podIP": "127.0.0.1"}}
        assert (await job.server_use(environment, pod)).busy is False
        assert seen == [("/api/status", "token "), ("/api/kernels", "token ")]
        answers["/api/status"] = "x" * 10**6
        assert await job.server_use(environment, pod) is None
        assert await job.server_use(environment, {"status": {"podIP": "evil.example"}}) is None


@pytest.mark.parametrize(("ip", "host"), [("10.0.0.7", "10.0.0.7"), ("fd00::7", "[fd00::7]")])
async def test_server_is_asked_at_its_pods_address(redis, monkeypatch, ip, host):
    asked = []

    async def get(url, token=""):
        asked.append(url)
        answers = {"status": STATUS, "healthz": '{"lastHeartbeat": 1795359600000}'}
        return answers.get(url.rpartition("/")[2], "[]")

    monkeypatch.setattr("bot.workspaces.environments.idle_job._get", get)
    async with World(redis).started() as world:
        await world.ask(Verb.START)
        await world.ready()
        job, environment = IdleJob(world.clients, redis, Source()), await load("lab", world.clients)
        assert (await job.server_use(environment, {"status": {"podIP": ip}})).busy is False
        await world.ask(Verb.START, name="other", image="code", request_id="other")
        other = await load("other", world.clients)
        assert (await job.server_use(other, {"status": {"podIP": ip}})).busy is None
    assert [url.startswith(f"http://{host}:{JUPYTER_SERVER.port}/") for url in asked[:2]] == [True, True]
    assert asked[2:] == [f"http://{host}:8080/healthz"]


async def use_of(toy, answer, redis, monkeypatch):
    """Return what is measured of an environment whose server answers like this."""
    port = int((await toy(answer)).rpartition(":")[2])
    async with World(redis).started() as world:
        await world.ask(Verb.START)
        await world.ready()
        server = replace(JUPYTER_SERVER, port=port)
        monkeypatch.setattr("bot.workspaces.environments.spec.JUPYTER", server)
        monkeypatch.setattr("bot.workspaces.environments.idle_job.JUPYTER", server)
        job, environment = IdleJob(world.clients, redis, Source()), await load("lab", world.clients)
        return await job.server_use(environment, {"status": {"podIP": "127.0.0.1"}})


async def test_refused_request_is_logged_without_the_login_and_what_the_server_wrote(
    redis, toy, monkeypatch, caplog
):
    async def answer(request):
        return web.Response(status=403, headers={"X-Long": "x" * 4000, "X-Other": "written"})

    caplog.set_level("INFO")
    assert await use_of(toy, answer, redis, monkeypatch) is None
    [line] = [each for each in caplog.messages if "is unknown" in each]
    assert "403" in line
    assert not any(each in line for each in ("token", "xxx", "written"))


async def test_redirect_of_a_server_is_not_followed(redis, toy, monkeypatch):
    """The request has the environment's login, and the user decides what the server answers."""
    seen = []

    async def answer(request):
        seen.append(request.path)
        return web.Response(status=302, headers={"Location": "/stolen"}, text=STATUS)

    await use_of(toy, answer, redis, monkeypatch)
    assert seen == ["/api/status", "/api/kernels"]


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
    monkeypatch.setattr("bot.workspaces.environments.cluster.load_all", everything)
    async with World(redis).started() as world:
        await IdleJob(world.clients, redis, Source()).run("now")
        assert peak == PARALLEL
        assert await redis.hlen(QUIET_KEY) == 3 * PARALLEL
