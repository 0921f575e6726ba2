"""Days of GPU use for the tests of digests."""

from datetime import date

from bot.measure.gpus.models import NodeUse
from bot.platform.config.digest_times import DigestSchedule
from bot.platform.config.teams import Price
from bot.watch.digests.figures import Figures, figures
from bot.watch.digests.post import WEEK
from tests.bot.measure.gpus.factories import lazy, totals

BERLIN = DigestSchedule(channel="C1", timezone="Europe/Berlin")
DAY = date(2026, 11, 20)
PRICES = (Price(model="NVIDIA H100", hourly=2.5),)
NODES = (
    NodeUse(node="n1", model="NVIDIA H100 80GB HBM3", physical=8, allocatable=7, allocated=5),
    NodeUse(node="n2", physical=8, allocatable=8, allocated=2),
)


def of(schedule: DigestSchedule = BERLIN, day: date = DAY, *, prices: tuple[Price, ...] = PRICES) -> Figures:
    begin, end = schedule.window(day)
    return figures(schedule, day, lazy(begin, end), totals(lazy(begin - WEEK, begin)), prices)
