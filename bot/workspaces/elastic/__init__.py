"""Elastic replicas: Deployments whose replicas follow free GPUs or CPUs, and release them for others at once.

The scheduler's preemption returns them even while Sweepbot is down; this room adds growth and a reserve.
"""

from bot.workspaces.elastic.reporter import control
from bot.workspaces.room import Room

ROOM = Room(tasks=lambda clients, redis: (control(redis, clients),))
