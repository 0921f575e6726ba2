"""Decide the number of replicas: down at once, up one by one after GPUs were free for some time. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.config.elastic import ElasticDeployment
from bot.elastic.supply import Supply

FREE_FOR = timedelta(minutes=5)  # uninterrupted, before the first step up
STEP_INTERVAL = timedelta(minutes=1)  # between two steps up
AFTER_DOWN = timedelta(minutes=10)  # loading a model takes minutes


@dataclass(frozen=True, kw_only=True)
class Times:
    free_since: datetime | None = None  # one more replica fits; None: none does
    raised_at: datetime | None = None
    lowered_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    replicas: int  # the target
    free_since: datetime | None = None
    raise_at: datetime | None = None  # when the next step up follows, if the GPUs stay free


def decide(
    config: ElasticDeployment,
    replicas: int,
    supply: Supply,
    times: Times,
    now: datetime,
) -> Decision:
    """Return the next number of replicas, which can be the current one.

    Without pressure it is `running + free - reserve`. While other pods wait for the GPUs of replicas, it is
    what survives: the scheduler chooses the victims, and lowering the number keeps it from replacing them.
    While a replica has no node yet, there are no more.
    """
    if replicas < config.min:
        return Decision(replicas=config.min)
    if (most := _most(config, replicas, supply)) < replicas:
        return Decision(replicas=most)
    wanted = min(config.max, supply.running + supply.free - config.reserve)
    if supply.pressure or wanted <= replicas:
        return Decision(replicas=replicas)
    since = times.free_since or now
    pauses = ((since, FREE_FOR), (times.raised_at, STEP_INTERVAL), (times.lowered_at, AFTER_DOWN))
    raise_at = max(begin + pause for begin, pause in pauses if begin)
    if supply.running < replicas:
        return Decision(replicas=replicas, free_since=since)
    return Decision(replicas=replicas + (now >= raise_at), free_since=since, raise_at=raise_at)


def _most(config: ElasticDeployment, replicas: int, supply: Supply) -> int:
    """Return the most replicas that can stay. Pods that terminate count as gone: a rollout replaces them."""
    most = supply.running + supply.coming - config.reserve
    if supply.pressure:
        most = min(replicas, supply.running - len(supply.victims))
    return max(config.min, min(config.max, most))
