"""Real processes: their start, probes, logs without secrets, and end."""

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from redis.asyncio import Redis

from bot.platform.config.settings import Settings
from local.kubernetes.apiserver.api import serve as serve_api
from local.kubernetes.apiserver.rbac import ADMIN
from local.kubernetes.apiserver.store import Store
from local.redis import redis as serve_redis
from local.slack import serve as serve_slack
from tests.handlers.signing import COMMAND, SECRET, call

pytestmark = pytest.mark.slow

PASSWORD = "hunter2-p@ss"
TOKEN = "cluster-token-1"
WAIT_SECONDS = 200  # seconds, on a busy machine


class Instance:
    """What a bot needs to start in these tests: a git host that responds when allowed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bots = folder, []
        self.git_may_answer, self.git_asked = asyncio.Event(), 0  # how often

    @asynccontextmanager
    async def open(self):
        async with AsyncExitStack() as stack:
            url = stack.enter_context(serve_redis())
            self.redis = await stack.enter_async_context(Redis.from_url(url))
            await self.redis.config_set("requirepass", PASSWORD)
            self.slack = await serve_slack()
            stack.push_async_callback(self.slack.close)
            store = Store()
            store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}})
            self.api = await serve_api(store)
            stack.push_async_callback(self.api.close)
            self.api.tokens[TOKEN] = ADMIN
            self.api.kubeconfig(self.folder / "kubeconfig", TOKEN)
            git = await stack.enter_async_context(await asyncio.start_server(self._git, "127.0.0.1", 0))
            self.env = self._environment(url, git.sockets[0].getsockname()[1])
            stack.push_async_callback(self._end)
            yield self

    def _environment(self, redis_url: str, git_port: int) -> dict[str, str]:
        config = self.folder / "config.yaml"
        config.write_text(f"repositories: {{digits: {{url: 'http://127.0.0.1:{git_port}/digits.git'}}}}\n")
        ours = {name.upper() for name in Settings.model_fields}
        return {name: value for name, value in os.environ.items() if name not in ours} | {
            "SLACK_BOT_TOKEN": self.slack.bot_token,
            "SLACK_APP_TOKEN": self.slack.app_token,
            "SLACK_SIGNING_SECRET": SECRET,
            "SLACK_API_URL": self.slack.api_url,
            "SWEEPBOT_CONFIG": str(config),
            "SWEEPBOT_DATA": str(self.folder / "data"),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "REDIS_URL": redis_url.replace("redis://", "redis://:hunter2-p%40ss@"),
            "IMAGE_REGISTRY": "127.0.0.1:9",
            "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORT": "0",
            "LOG_LEVEL": "DEBUG",
        }

    async def _git(self, reader, writer):
        self.git_asked += 1
        await self.git_may_answer.wait()
        writer.close()

    async def start(self, command: str, **env: str) -> "Bot":
        bot = Bot(self.folder / f"{command}-{len(self.bots)}.log")
        self.bots.append(bot)
        with bot.log.open("wb") as log:
            bot.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bot", command, env={**self.env, **env}, stderr=log, stdout=log
            )
        return bot

    async def type(self) -> str:
        """Start a sweep; its first reconcile lasts until git may respond."""
        return await self.slack.command("ada", "sweeps", "/sweep", "branch=main space=lr")

    async def _end(self) -> None:
        for bot in self.bots:
            if bot.process.returncode is None:
                bot.process.kill()
                await bot.process.wait()


class Bot:
    """One process, by its log and its pages."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def logged(self, words: str) -> int:
        """How many lines have these words."""
        return sum(words in line["message"] for line in self.lines())

    @property
    def url(self) -> str:
        """ "" while no server listens on the port."""
        found = [line["message"] for line in self.lines() if line["message"].startswith("serving /healthz")]
        return f"http://127.0.0.1:{found[0].split()[-1]}" if found else ""

    async def page(self, path: str) -> tuple[int, dict]:
        assert self.process.returncode is None, f"it has ended:\n{self.log.read_text()}"
        try:
            async with aiohttp.request("GET", f"{self.url}{path}") as answer:
                return answer.status, await answer.json()
        except (aiohttp.ClientError, ValueError):
            return 0, {"checks": {}}

    async def ready(self) -> bool:
        return (await self.page("/readyz"))[0] == 200

    async def broken(self) -> set[str]:
        """The names of the checks that fail."""
        _, page = await self.page("/readyz")
        return {name for name, check in page["checks"].items() if not check["ok"]}

    async def check(self, name: str) -> str:
        _, page = await self.page("/readyz")
        return page["checks"].get(name, {}).get("message", "")

    async def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@pytest.fixture
def wait_until(wait_until):
    return partial(wait_until, seconds=WAIT_SECONDS)


@pytest.fixture
async def instance(tmp_path):
    async with Instance(tmp_path).open() as instance:
        yield instance


async def test_probes_report_failures_and_recovery_and_log_lines_have_no_secrets(instance, wait_until):
    """With everything broken, and all that libraries log."""
    bot = await instance.start("all")
    await wait_until(bot.ready, "it is ready")
    _, page = await bot.page("/readyz")
    assert set(page["checks"]) == {"redis", "slack", "socket", "kubernetes", "watch", "worker"}
    await wait_until(lambda: watching(bot), "it watches")
    await instance.type()
    await wait_until(lambda: instance.git_asked, "a reconcile has started")
    instance.git_may_answer.set()
    await wait_until(lambda: any("sweep" in line for line in bot.lines()), "its reconcile has failed")

    server = (await instance.redis.info("server"))["process_id"]
    os.kill(server, signal.SIGSTOP)  # hangs, which is worse than a closed connection
    del instance.api.tokens[TOKEN]
    instance.slack.sockets.ticket = lambda: "refused"
    await instance.slack.sockets.drop()
    await wait_until(lambda: named(bot, "redis", "kubernetes", "socket"), "all three show")
    assert (await bot.page("/healthz"))[0] == 200, "a new process would not help"

    os.kill(server, signal.SIGCONT)
    instance.api.tokens[TOKEN] = ADMIN
    del instance.slack.sockets.ticket
    await wait_until(bot.ready, "it is ready again")

    complained = bot.logged("not ready: redis")
    await instance.slack.sockets.drop()
    del instance.api.tokens[TOKEN]
    await instance.redis.config_set("requirepass", "another")
    await instance.redis.client_kill_filter(_type="normal", skipme=True)
    await wait_until(lambda: bot.logged("not ready: redis") > complained, "it has complained of the password")
    assert bot.logged("not ready: kubernetes")
    assert await bot.end() == 0
    lines = bot.lines()
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    reply = bot.log.read_text()
    secrets = (instance.slack.bot_token, instance.slack.app_token, SECRET, PASSWORD, "hunter2-p%40ss", TOKEN)
    assert [secret for secret in secrets if secret in reply] == []


async def named(bot, *names):
    return set(names) <= await bot.broken()


async def test_item_that_cannot_finish_in_time_goes_to_another_worker(instance, wait_until):
    serving, first, second = [await instance.start(c, SHUTDOWN_GRACE="5") for c in ("serve", "work", "work")]
    for bot in (serving, first, second):
        await wait_until(bot.ready, "it is ready")
    async with reconciling(instance, wait_until, besides=second):
        assert (await first.end(), first.logged("to another worker") > 0) == (0, True)
        asked = instance.git_asked
    await wait_until(lambda: instance.git_asked > asked, "the other one has the item")
    assert not first.logged("can't release the lease")
    assert await serving.end() == 0


async def test_worker_finishes_its_item_while_the_resync_moves_on(instance, wait_until):
    serving, first = [await instance.start(c, SHUTDOWN_GRACE="60") for c in ("serve", "work")]
    holder = await wait_until(lambda: instance.redis.get("sweepbot:resync"), "the first one has the lease")
    await wait_until(serving.ready, "Slack is answered")
    second = await instance.start("work")
    await wait_until(second.ready, "a second one exists")
    await wait_until(lambda: watching(second), "the second one watches, too")
    assert await instance.redis.get("sweepbot:resync") == holder
    async with reconciling(instance, wait_until, besides=second):
        ending = asyncio.create_task(first.end())

    async def another() -> bool:
        return await instance.redis.get("sweepbot:resync") not in (None, holder)

    await wait_until(another, "the second one has the lease")
    assert not ending.done()
    instance.git_may_answer.set()
    lines = (line["message"] for line in first.lines())
    released = [each for each in lines if "to another worker" in each and "watch: " not in each]
    assert (await ending, released) == (0, [])


@asynccontextmanager
async def reconciling(instance, wait_until, *, besides):
    """A reconcile waits for git in the only worker that isn't stopped: `besides` is, meanwhile."""
    besides.process.send_signal(signal.SIGSTOP)
    asked = instance.git_asked
    await instance.type()
    await wait_until(lambda: instance.git_asked > asked, "its reconcile has started")
    yield
    besides.process.send_signal(signal.SIGCONT)


async def watching(bot):
    return (await bot.check("watch")).startswith("watching")


async def test_http_mode_serves_signed_requests_until_the_end(instance, wait_until):
    bot = await instance.start("serve", SLACK_MODE="http", SLACK_APP_TOKEN="", SHUTDOWN_GRACE="6")
    await wait_until(bot.ready, "it is ready")
    assert "socket" not in (await bot.page("/readyz"))[1]["checks"]
    async with aiohttp.ClientSession(bot.url) as client:
        status, text = await call(client, COMMAND)
        assert (status, "queued." in text) == (200, True)
        assert (await call(client, COMMAND, secret="0" * 32))[0] == 401
        bot.process.send_signal(signal.SIGTERM)
        await wait_until(lambda: named(bot, "process"), "load balancers are notified")
        assert await call(client, COMMAND) == (200, text)
    assert await bot.process.wait() == 0


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"SLACK_BOT_TOKEN": "xoxb-0-wrong"}, "SLACK_BOT_TOKEN: Slack answered invalid_auth."),
        ({"SLACK_APP_TOKEN": "xapp-0-wrong"}, "SLACK_APP_TOKEN: Slack answered invalid_auth."),
        ({"SLACK_APP_TOKEN": ""}, "SLACK_APP_TOKEN isn't set ("),
        (
            {"SLACK_API_URL": "http://127.0.0.1:9/api"},
            "Slack can't be reached: Cannot connect to host 127.0.0.1:9",
        ),
        ({"HTTP_HOST": "192.0.2.1"}, "HTTP_HOST, HTTP_PORT: can't listen on 192.0.2.1"),
        (
            {"REDIS_URL": ":hunter2-p@ss@redis"},
            "REDIS_URL is invalid: must be a URL such as redis://host:6379/0",
        ),
    ],
)
async def test_invalid_start_ends_with_one_sentence(instance, env, sentence):
    bot = await instance.start("serve", **env)
    assert await bot.process.wait() == 2
    assert sentence in bot.log.read_text()
    assert "wrong" not in bot.log.read_text()
    assert "hunter2" not in bot.log.read_text()


async def test_endless_thread_does_not_keep_the_process():
    code = "import threading, time, bot.app as s; threading.Thread(target=time.sleep, args=(600,)).start()"
    code += "; s._exit_after(0.1)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await asyncio.wait_for(process.wait(), 60) == 0
