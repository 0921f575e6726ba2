"""What the leader last saw of one elastic Deployment. Pure."""

from dataclasses import dataclass
from datetime import datetime

from bot.elastic.supply import Supply


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why Sweepbot doesn't scale the Deployment, and how to fix it."""

    text: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class ElasticView:
    replicas: int = 0  # as requested
    supply: Supply | None = None  # None: unknown, because the watch is interrupted
    raise_at: datetime | None = None  # when the next replica follows
    problem: Problem | None = None
