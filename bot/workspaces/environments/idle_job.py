"""Measure running environments every few minutes: warn about idle ones and, where configured, stop them.

A stop follows only a warning that Slack has accepted, and an uninterrupted series of measurements up to this
one. If this bot was away, the series begins again.

sweepbot:environments:quiet   hash: environment -> since when it has been idle; expires after a day
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address

import aiohttp
from redis.asyncio import Redis

from bot.core.errors import RetryAfterError
from bot.core.stored_format import cached, late_adapter
from bot.core.work_item import WorkItem
from bot.measure.gpus.models import HALF_HOUR, NoGpuDataError, PodUse, Source
from bot.platform.clients import Clients
from bot.platform.pod_health.cluster_events import list_if_allowed
from bot.platform.slack.client import UNSENT, MessageRejectedError, NotInChannelError
from bot.workspaces.environments import cluster
from bot.workspaces.environments.idle import (
    TICK,
    Activity,
    Quiet,
    ServerUse,
    Step,
    code_server_use,
    cores,
    decide,
    gpu_peak,
    jupyter_use,
    observe,
    unwarned,
    warned,
)
from bot.workspaces.environments.message import idle_warning
from bot.workspaces.environments.record import Environment, Wanted
from bot.workspaces.environments.spec import login, spec_of
from k8s.api.errors import ApiError, SweepbotError
from k8s.environments import JUPYTER, EnvironmentSpec
from k8s.objects import ENVIRONMENT_LABEL, OURS, Manifest

log = logging.getLogger(__name__)

ITEM = WorkItem("environment-idle", "now")
QUIET_KEY = "sweepbot:environments:quiet"
TTL = timedelta(days=1)
CALL_TIMEOUT = aiohttp.ClientTimeout(total=5)
PARALLEL = 16  # servers asked at once; one that doesn't answer takes 10 seconds
MAX_LOGGED = 300  # characters: a server can write its own reason
MAX_ANSWER = 256 * 1024  # bytes

_QUIET = late_adapter(Quiet)


@dataclass(frozen=True)
class IdleJob:
    clients: Clients
    redis: Redis
    source: Source

    async def run(self, _: str) -> timedelta | None:
        """Measure once. Return when to measure again."""
        config = self.clients.config.environments
        if config is None or not config.idle.hours:
            return TICK  # a changed configuration can turn it on
        running = [each for each in await cluster.load_all(self.clients) if _is_running(each)]
        if running:
            pods = await self._pods()
            gpus, cpu = await self._gpus(), await self._cpu(config.namespace)
            limit = asyncio.Semaphore(PARALLEL)
            servers = await asyncio.gather(*(self._server(each, pods, limit) for each in running))
            failure: Exception | None = None
            for each, server in zip(running, servers, strict=True):
                try:
                    await self._judge(each, self._activity(each, server, gpus, cpu))
                except UNSENT as error:  # others can have to be stopped
                    failure = error
            if failure:
                raise failure
        return TICK

    async def _judge(self, environment: Environment, activity: Activity) -> None:
        name, config = environment.record.name, cluster.configured(self.clients.config)
        quiet = observe(await self._load(name), environment.uid, environment.record.starts, activity)
        await self._store(name, quiet)
        step = decide(environment.record, quiet, config.idle)
        if step is not Step.NONE:
            log.info("idle environment %s: %s (%s)", name, step, activity)
            await self._take(environment, step, quiet, activity)

    async def _take(self, environment: Environment, step: Step, quiet: Quiet, activity: Activity) -> None:
        record, settings = environment.record, cluster.configured(self.clients.config).idle
        if step is Step.WARN:
            after = warned(record, quiet, settings, activity.described(record.gpus))
            try:
                await self.clients.slack.reply(record.channel, record.ts, idle_warning(after))
            except (NotInChannelError, MessageRejectedError) as error:
                return log.warning("can't warn about idle environment %s: %s", record.name, error)
        elif step is Step.STOP:
            after = unwarned(record).stop(quiet.at, reason="idle, and not used or kept after the warning")
        else:
            after = unwarned(record)
        try:
            await cluster.save(environment, after, self.clients)
        except RetryAfterError as error:  # the next measurement decides again
            return log.info("%s", error)
        return await self.clients.queue.add(cluster.item(record.name))

    def _activity(
        self,
        environment: Environment,
        server: ServerUse | None,
        gpus: Mapping[str, PodUse],
        cpu: Mapping[str, float | None],
    ) -> Activity:
        record = environment.record
        return Activity(
            at=self.clients.now(),
            gpu=gpu_peak(gpus.get(f"env-{record.name}-0"), record.gpus),
            server=server,
            cpu=cpu.get(f"env-{record.name}-0"),
        )

    async def _pods(self) -> dict[str, Manifest]:
        namespace = cluster.configured(self.clients.config).namespace
        found = await self.clients.cluster.list("Pod", namespace, labels=OURS)
        return {each["metadata"].get("labels", {}).get(ENVIRONMENT_LABEL, ""): each for each in found}

    async def _gpus(self) -> dict[str, PodUse]:
        namespace = cluster.configured(self.clients.config).namespace
        try:
            pods = await self.source.pods(HALF_HOUR)
        except NoGpuDataError as why:
            log.info("GPU use of environments is unknown: %s", why)
            return {}
        return {each.pod: each for each in pods if each.namespace == namespace}

    async def _cpu(self, namespace: str) -> dict[str, float | None]:
        """Return the cores of each pod; none without metrics-server, or while it is down."""
        try:
            found = await list_if_allowed("PodMetrics", namespace, self.clients)
        except ApiError as error:
            if error.status != 503:
                raise
            return {}
        return {each["metadata"]["name"]: cores(each) for each in found}

    async def _server(
        self, environment: Environment, pods: Mapping[str, Manifest], limit: asyncio.Semaphore
    ) -> ServerUse | None:
        """Return what its server reports; None without a pod."""
        pod = pods.get(environment.record.name)
        if pod is None:
            return None
        async with limit:
            return await self.server_use(environment, pod)

    async def server_use(self, environment: Environment, pod: Manifest) -> ServerUse | None:
        """Ask the server in the pod. Its answer is the user's: it is limited, and checked."""
        try:
            spec = spec_of(environment.record, self.clients.config)
            host = ip_address(pod.get("status", {}).get("podIP", ""))
            base = f"http://{f'[{host}]' if host.version == 6 else host}:{spec.server.port}{spec.path}"
            return await self._ask(environment, spec, base)
        except (SweepbotError, ValueError, OSError, aiohttp.ClientError) as error:
            # Not its repr, which has the request's headers and the server's.
            why = f"{type(error).__name__} {error}"[:MAX_LOGGED]
            log.info("use of environment %s is unknown: %s", environment.record.name, why)
            return None

    async def _ask(self, environment: Environment, spec: EnvironmentSpec, base: str) -> ServerUse | None:
        if spec.server is not JUPYTER:
            return code_server_use(await _get(f"{base}healthz"))
        key = self.clients.settings.slack_bot_token.get_secret_value()
        token = login(key, environment.uid, environment.record.starts)
        status = await _get(f"{base}api/status", token)
        return jupyter_use(status, await _get(f"{base}api/kernels?no_track_activity=1", token))

    async def _load(self, name: str) -> Quiet | None:
        return cached(_QUIET, await self.redis.hget(QUIET_KEY, name))

    async def _store(self, name: str, quiet: Quiet) -> None:
        async with self.redis.pipeline(transaction=True) as steps:
            steps.hset(QUIET_KEY, name, _QUIET.dump_json(quiet).decode())
            steps.expire(QUIET_KEY, TTL)
            await steps.execute()


async def _get(url: str, token: str = "") -> str:
    """Raises aiohttp.ClientError, OSError (TimeoutError), or ValueError for a long answer."""
    headers = {"Authorization": f"token {token}"} if token else {}
    async with (
        aiohttp.ClientSession(timeout=CALL_TIMEOUT, raise_for_status=True) as session,
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        body = b""
        while part := await response.content.read(MAX_ANSWER + 1 - len(body)):
            body += part  # one read returns what has arrived so far
        if len(body) > MAX_ANSWER:
            raise ValueError("the answer is too long")
        return body.decode()


def _is_running(environment: Environment) -> bool:
    """Return whether to measure it. Services aren't: one that waits for requests is in use."""
    record = environment.record
    return record.service is None and record.wanted is Wanted.RUNNING and record.ready_at is not None
