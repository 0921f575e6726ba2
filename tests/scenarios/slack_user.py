"""Ada in Slack with a bot: Bolt's real dispatch, and work items run by the test."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

from slack_sdk.web.async_client import AsyncWebClient

from bot.core.errors import UserError
from bot.core.work_item import ItemKind
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import NodeUse, NoGpuDataError, Snapshot
from bot.platform.config.live_policy import LivePolicy
from bot.platform.repos.git import Tip
from bot.platform.repos.git_commands import GitUnavailableError
from bot.platform.slack.client import Slack
from bot.platform.storage.free_capacity import CapacityStore
from bot.sweep.channels.store import SetupWriter
from bot.sweep.clients import SweepClients
from bot.sweep.form.review import show_review
from bot.watch.home.gpu_query_job import GpuQueryJob
from bot.workspace_table import GPUS, add_handlers, lines
from handlers.app import build
from handlers.socket_mode import Socket
from local.kubernetes.apiserver import store as kubernetes
from local.slack import serve
from tests.bot.factories import COMMIT, CONFIG, FILES, NOW, SETTINGS
from tests.handlers.factories import a_context
from tests.scenarios.fakes import DirectCluster

ADA = "U01ADALOVEL"
SPACE = """\
# How fast it may learn, token=0a1B2c3D4e5F6g7H
command: python train.py
objective: {metric: loss, goal: minimize}
algorithm: grid
trials: {parallel: 2}
parameters:
  width: [a, b, c]
"""


class Repository:
    """`away`: the git host doesn't respond."""

    def __init__(self):
        self.spaces = {"lr": SPACE, "wide": SPACE.replace("[a, b, c]", "{min: 1, max: 0}")}
        self.heads, self.away, self.tip = ["dev", "main"], False, COMMIT

    async def branches(self, url):
        if self.away:
            raise GitUnavailableError(f"{url} didn't respond within 60 s")
        return self.heads

    async def resolve(self, url, branch):
        if branch not in await self.branches(url):
            raise UserError(f"branch={branch} is not in {url}. Did you mean main?")
        return Tip(f"refs/heads/{branch}", self.tip)

    async def names(self, url, commit, folder):
        return [f"{name}.yaml" for name in self.spaces] if folder else list(FILES)

    async def prefetch(self, url, commit, paths):
        pass

    async def read(self, url, commit, path, most=0):
        return self.spaces.get(path.removeprefix("sweeps/").removesuffix(".yaml"), FILES.get(path))

    async def subject(self, url, commit):
        return "Try a wider net"


class Meter:
    """What is measured of the GPUs: eight, of which `held` are allocated."""

    def __init__(self, now):
        self.now, self.held, self.trouble = now, 2, ""

    async def snapshot(self, window):
        if self.trouble:
            raise NoGpuDataError(self.trouble)
        node = NodeUse(node="n1", model="A100", physical=8, allocatable=8, allocated=self.held)
        return Snapshot(at=self.now(), nodes=(node,), pods=())


async def no_digests():
    return ()


class SlackUser:
    """Ada's Slack, the bot's handlers, and a worker whose items are run by the test."""

    def __init__(self, slack, redis, config):
        self.slack, self.git, self.meter, self.now = slack, Repository(), Meter(lambda: self.now), NOW
        web = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        self.context = a_context(redis, config=config, now=lambda: self.now)
        self.app = build(web, self.context, add_handlers)
        self.policy = LivePolicy(config)
        self.clients = SweepClients(
            registry=None,
            results=None,
            usage=HourlyStore(redis),
            capacity=CapacityStore(redis),
            pictures=None,
            live=None,
            cluster=DirectCluster(kubernetes.Store()),
            store=self.context.store,
            queue=self.context.queue,
            git=self.git,
            slack=Slack(web),
            settings=SETTINGS,
            config=config,
            now=lambda: self.now,
        )
        self.clients.cluster.store.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sweeps"}}
        )
        self.setups = SetupWriter(self.clients, redis, self.policy)
        self.job_handlers = {
            ItemKind.SETUP: self.setups.run,
            ItemKind.PREVIEW: partial(
                show_review,
                clients=self.clients,
                drafts=self.context.drafts,
                known=self.context.snapshots,
            ),
            ItemKind.GPU_QUESTIONS: GpuQueryJob(
                self.clients,
                redis,
                self.meter,
                no_digests,
                partial(lines, self.clients),
                GPUS,
            ).run,
            ItemKind.GIT_NAMES: partial(self.context.catalog.refresh, git=self.git),
        }

    async def runs(self, wait=0.05):
        """All that the queue has, sweeps aside; their ids are returned."""
        sweeps = []
        while lease := await self.context.queue.get(wait=wait):
            if lease.item.kind == ItemKind.SWEEP:
                sweeps.append(lease.item.key)
            elif job := self.job_handlers.get(lease.item.kind):
                await job(lease.item.key)
            await self.context.queue.done(lease)
        return sweeps

    async def offered(self, menu, typed=""):
        """The options of a menu while a worker runs."""
        working = asyncio.create_task(self.runs(wait=0.3))
        found = await self.slack.options("ada", menu, typed)
        await working
        return found

    async def choose(self, menu, value):
        option = {"text": {"type": "plain_text", "text": value}, "value": value}
        assert await self.slack.enter("ada", menu, option) is None

    def modal(self):
        [view] = self.slack.modals("ada")
        return view

    def shows(self):
        return "\n".join(
            block["text"]["text"]
            if "text" in block
            else "\n".join(each["text"] for each in block.get("fields", []))
            for block in self.modal()["blocks"]
        )


@asynccontextmanager
async def a_slack_user(redis, config=CONFIG):
    slack = await serve()
    ada = SlackUser(slack, redis, config)
    socket = Socket(ada.app, slack.app_token)
    await socket.open()
    yield ada
    await socket.finish()
    await slack.close()
