"""Elastic replicas: Deployments whose replicas follow free GPUs, and release them for other pods at once.

The scheduler's preemption returns GPUs even while Sweepbot is down; this room adds growth and a reserve.
"""

from bot.workspaces.elastic.reporter import ElasticController
from bot.workspaces.room import Room

ROOM = Room(tasks=lambda clients, redis: (ElasticController(redis, clients).run(),))
