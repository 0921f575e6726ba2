"""The GPU-hours of a digest's day in each cluster, where the configuration has several."""

from bot.config.clusters import remote
from bot.config.policy import Config
from bot.core.plan import HOME_CLUSTER
from bot.digests.figures import Figures
from bot.gpus.billing import by_cluster
from bot.gpus.command import ParsedCommand
from bot.gpus.hourly_store import HourlyStore
from bot.gpus.sums import Totals


async def cluster_lines(found: Figures, hours: HourlyStore, config: Config) -> str:
    """Return lines for the digest's thread; "" without other clusters. Raises RedisError."""
    if not (others := remote(config.clusters)):
        return ""
    totals = {HOME_CLUSTER: Totals.of(found.uses)}
    for each in others:
        totals[each.name] = await hours.at(each.name).totals(*found.schedule.window(found.day))
    asked = ParsedCommand(view="digest", team=found.schedule.team)
    return f"\n{by_cluster(asked, totals, config.prices, config.currency)}"
