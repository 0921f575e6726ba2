"""Research environments (`/env`): start, open, keep, stop, and delete them, and report what they wait for.

An environment is a StatefulSet with its record in an annotation, so losing Redis or a worker loses nothing.
"""

from collections.abc import Mapping

from redis.asyncio import Redis

from bot.measure.gpus.models import Source
from bot.platform.clients import Clients
from bot.workspaces.environments import cluster, idle_job, requests
from bot.workspaces.environments.reconciler import EnvironmentInformer, EnvironmentReconciler
from bot.workspaces.environments.request_job import RequestJob
from bot.workspaces.room import Job, Room
from bot.workspaces.services.snippet import Snippet

SERVICE = """\
The YAML of `/env service start` ([services](environments.md#services)). Sizes are those of each replica.
"""


def _jobs(clients: Clients, redis: Redis, source: Source) -> Mapping[str, Job]:
    return {
        cluster.KIND: EnvironmentReconciler(clients).run,
        idle_job.ITEM.kind: idle_job.IdleJob(clients, redis, source).run,
        requests.ITEM.kind: RequestJob(clients).run,
    }


ROOM = Room(
    jobs=_jobs,
    tasks=lambda clients, _: (EnvironmentInformer(clients).run(),),
    starts=(idle_job.ITEM,),
    formats={"Service": (SERVICE, Snippet)},
)
