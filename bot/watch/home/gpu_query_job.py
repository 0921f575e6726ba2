"""Answer queued questions of `/gpus` from a worker: measure all clusters, with a line for each, send the bill
and its CSV file, queue a requested digest, redraw Home tabs.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from redis.asyncio import Redis
from slack_sdk.errors import SlackApiError

from bot.core.errors import UserError
from bot.core.plan import HOME_CLUSTER
from bot.measure.gpus.billing import bill, bill_file, by_cluster, month
from bot.measure.gpus.command import VIEWS, ParsedCommand, answer, parse_command, shown, summary
from bot.measure.gpus.hourly_store import HourlyStore
from bot.measure.gpus.models import HALF_HOUR, ClusterGpus, NoGpuDataError, Snapshot, Source
from bot.measure.gpus.snapshot_store import HOME_TAB, ITEM, GpuQuery, SnapshotStore, dump_query, load_query
from bot.measure.gpus.sums import Totals
from bot.measure.sources.remote_usage import Snapshots, snapshots_elsewhere
from bot.platform.clients import Clients
from bot.platform.clusters.connections import RemoteCluster
from bot.platform.commands.grammar import Table
from bot.platform.config.clusters import remote
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import code, direct, local_time, quoted
from bot.sweep.form.drafts import Drafts
from bot.text.wording import counted
from bot.watch.digests import post
from bot.watch.digests.latest import latest_digest
from bot.watch.digests.post import ReadSchedules, ReservedLine, schedule_for
from bot.watch.home.view import HomeLoader
from k8s.api.client import Manifests
from k8s.api.errors import ApiError, ClusterUnreachableError, UnreachableError
from k8s.nodes.devices import with_devices
from k8s.nodes.gpu_pods import GpuPod
from k8s.nodes.gpus import read_node
from k8s.nodes.listed import list_devices, list_gpu_pods
from k8s.retry import Retry

log = logging.getLogger(__name__)

DATA_TIMEOUT, RETRY = timedelta(seconds=15), Retry(base=2.0)  # while there is no GPU data
RESPONSE_URL_TTL = timedelta(minutes=30)


@dataclass
class GpuQueryJob:
    clients: Clients
    redis: Redis
    source: Source
    read_schedules: ReadSchedules
    reserved_line: ReservedLine  # one line about all reservations; "" if there are none
    table: Table  # of `/gpus`
    # Answered in text, while the CSV waits for Slack's rate limit.
    billed: set[GpuQuery] = field(default_factory=set)

    async def run(self, _: str) -> timedelta | None:
        stored, error, fresh = await self.clients.store.requests(str(ITEM)), "", None
        queries = [query for each in stored if (query := load_query(each))]
        if not queries or any(self._parse(each).view in VIEWS for each in queries):
            try:
                fresh = await self._measured()
            except NoGpuDataError as why:
                error = f"GPU metrics are unavailable: {quoted(self.clients.mask(str(why)))}"
        later = [each for each in queries if error and self.clients.now() - each.at < DATA_TIMEOUT]
        failures = [await self._settle(each, fresh, error) for each in queries if each not in later]
        for failure in filter(None, failures):
            raise failure
        return RETRY.delay() if later else None

    async def _settle(self, query: GpuQuery, fresh: Snapshot | None, error: str) -> Exception | None:
        """Answer one query, and return what failed, which is retried until the response_url expires."""
        try:
            if self.clients.now() - query.at < RESPONSE_URL_TTL:
                await self._answer(query, fresh, error)
        except Exception as failure:  # noqa: BLE001 - must not keep others from their answers
            return failure
        await self.clients.store.remove_requests(str(ITEM), [dump_query(query)])
        return None

    def _parse(self, query: GpuQuery) -> ParsedCommand:
        if query.text == HOME_TAB:
            return ParsedCommand(view="free")
        try:
            return parse_command(query.text, self.clients.config, self.table)
        except UserError:  # the team has been removed from the configuration since
            return ParsedCommand(view="free")

    async def _measured(self) -> Snapshot:
        measure, clients = self.source.snapshot(HALF_HOUR), self.clients
        if remote(clients.config.clusters):
            fresh, others = await asyncio.gather(measure, gpus_elsewhere(clients))
        else:
            fresh, others = await measure, ()
        fresh = replace(fresh, reserved=await self.reserved_line(), others=others)
        await SnapshotStore(self.redis).save(fresh)
        return fresh

    async def _answer(self, query: GpuQuery, fresh: Snapshot | None, error: str) -> None:
        parsed = self._parse(query)
        try:
            if query.text == HOME_TAB:
                await self._show_home(query.user, error)
            elif parsed.view == "bill":
                await self._bill(parsed, query)
            elif parsed.later and parsed.later.answer:
                await self._reply(query, await self._answer_of_workspace(parsed.later.answer, parsed, query))
            elif parsed.view == "digest":
                await self._digest(query)
            elif error or fresh is None:
                await self._reply(query, error)
            else:
                parts = await self._parts(parsed.view, fresh, query.user)
                await self._reply(query, shown(parts, parsed.view, fresh, query.user))
        except (NotInChannelError, MessageRejectedError, SlackApiError) as refusal:
            log.warning("can't answer /gpus: %s", refusal)

    async def _parts(self, view: str, fresh: Snapshot, user: str) -> list[str]:
        """Return the parts of the answer, about all clusters where the configuration has some."""
        clients = self.clients
        if view == "free" or not remote(clients.config.clusters):
            return [answer(view, fresh, user)]
        others = await snapshots_elsewhere(clients.config, self.redis, clients.now)
        return answer_of_all(view, fresh, others, user)

    async def _show_home(self, user: str, error: str) -> None:
        clients = self.clients
        loader = HomeLoader(
            store=clients.store,
            drafts=Drafts(self.redis),
            last_digest=partial(latest_digest, self.redis),
            config=clients.config,
        )
        latest = await SnapshotStore(self.redis).latest()
        await clients.slack.publish_home(user, await loader.view(user, latest, error))

    async def _bill(self, parsed: ParsedCommand, query: GpuQuery) -> None:
        config, now = self.clients.config, self.clients.now()
        by_name = await self._totals(*month(parsed, now))
        totals = Totals.all(by_name.values()) if len(by_name) > 1 else by_name[HOME_CLUSTER]
        if query not in self.billed:
            place = config.environments.namespace if config.environments else ""
            figures = (parsed, totals, config.prices, config.currency, now, place)
            text = await asyncio.to_thread(bill, *figures)
            if len(by_name) > 1 and totals.groups:
                text += f"\n{by_cluster(parsed, by_name, config.prices, config.currency)}"
            text += "\nFull table sent by direct message." if totals.groups else ""
            await self._reply(query, text)
            self.billed.add(query)
        if totals.groups:
            name = f"gpus-{month(parsed, now)[0]:%Y-%m}.csv"
            table = await asyncio.to_thread(bill_file, parsed, by_name, config.prices)
            await self.clients.slack.send_file(query.user, "GPU bill", File(name=name, content=table))
        self.billed.discard(query)

    async def _answer_of_workspace(
        self, answer: Callable[..., Awaitable[str]], parsed: ParsedCommand, query: GpuQuery
    ) -> str:
        who = {"user": query.user, "channel": query.channel, "asked_at": query.at}
        return self.clients.mask(await answer(parsed.view, parsed.values, **who, clients=self.clients))

    async def _totals(self, start: datetime, end: datetime) -> dict[str, Totals]:
        """Return the sums of the main cluster and each other one, by name; of a removed one if it has any."""
        names = [HOME_CLUSTER, *(each.name for each in remote(self.clients.config.clusters))]
        every = dict.fromkeys([*names, *await HourlyStore(self.redis).clusters(start)])
        found = {name: await HourlyStore(self.redis).at(name).totals(start, end) for name in every}
        return {name: each for name, each in found.items() if name in names or each.groups}

    async def _digest(self, query: GpuQuery) -> None:
        """Queue yesterday's digest for the channel, unless it is there already."""
        day = schedule_for(await self.read_schedules(), query.channel).day(self.clients.now())
        latest = await latest_digest(self.redis, query.channel)
        if latest and latest.day == day:
            await self._reply(query, f"Already posted: {latest.linked}")
        else:
            await self.clients.queue.add(post.item(query.channel, day))

    async def _reply(self, query: GpuQuery, message: Message | str) -> None:
        place = "" if direct(query.channel) else query.channel
        await self.clients.slack.post_ephemeral(query.user, message, query.response_url, place, query.thread)


async def gpus_elsewhere(clients: Clients) -> tuple[ClusterGpus, ...]:
    """Read nodes and pods of each cluster, at the same time. Raises nothing."""
    return tuple(await asyncio.gather(*map(_measured, clients.clusters.all(clients.config))))


async def _measured(cluster: RemoteCluster) -> ClusterGpus:
    name = cluster.config.name
    try:
        listed, devices = await cluster.api.list("Node", ""), await list_devices(cluster.api)
        nodes, pods = with_devices(listed, devices), await list_gpu_pods(cluster.api, devices)
    except ClusterUnreachableError as failure:
        return ClusterGpus(cluster=name, failure=_unseen(failure.seen))
    except (ApiError, UnreachableError) as error:
        denied = isinstance(error, ApiError) and error.status == 403
        why = "no permission to list nodes and pods" if denied else "its API server returns errors"
        return ClusterGpus(cluster=name, failure=why)
    free, total = await asyncio.to_thread(free_and_total, nodes, pods)
    return ClusterGpus(cluster=name, free=free, total=total)


def _unseen(seen: datetime | None) -> str:
    return f"hasn't answered since {local_time(seen)}" if seen else "doesn't answer"


def free_and_total(nodes: Manifests, pods: Iterable[GpuPod]) -> tuple[int, int]:
    """Return the free and the allocatable GPUs of the nodes that are ready and not cordoned."""
    used = Counter[str]()
    for pod in pods:
        used[pod.node] += pod.gpus
    found = [node for node in map(read_node, nodes) if node and node.ready and not node.cordoned]
    free = sum(max(0, node.allocatable - used[node.node]) for node in found)
    return free, sum(node.allocatable for node in found)


def answer_of_all(view: str, home: Snapshot, others: Snapshots, user: str) -> list[str]:
    """Return the answer about all clusters together, then a line for each."""
    parts = [home, *filter(None, others.values())]
    nodes = tuple(node for each in parts for node in each.nodes)
    pods = tuple(pod for each in parts for pod in each.pods)
    text = answer(view, replace(home, nodes=nodes, pods=pods), user)
    lines = _lines(view, {HOME_CLUSTER: home, **others}, user)
    return [text, "\n".join(["*By cluster*", *lines])]


def _lines(view: str, snapshots: Snapshots, user: str) -> Iterator[str]:
    for name, found in snapshots.items():
        if found is None:
            yield f"• {code(name)}: no GPU data"
            continue
        pods = [pod for pod in found.pods if view != "mine" or pod.owner == user]
        free, total = sum(node.free for node in found.nodes), sum(node.allocatable for node in found.nodes)
        of_all = "" if view == "mine" else f"{free} of {counted(total, 'GPU')} free, "
        yield f"• {code(name)}: {of_all}{summary(pods, found.at)}"
