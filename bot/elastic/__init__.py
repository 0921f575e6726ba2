"""Elastic replicas: Deployments whose replicas follow free GPUs, and release them for other pods at once.

The scheduler's preemption returns GPUs even while Sweepbot is down; this room adds growth and a reserve.
"""
