"""Build the bill (`/gpus bill`), as text and as CSV: a month's GPU-hours and their cost by team, person,
sweep, and cluster. Pure.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta

from bot.measure.gpus.command import MAX_ANSWER, ParsedCommand
from bot.measure.gpus.models import HOUR, MAX_UNMEASURED
from bot.measure.gpus.sums import ELASTIC, RESERVED, Sums, Totals, UsageSum, grouped, ordered, summed
from bot.platform.config.teams import Price
from bot.platform.slack.mrkdwn import code, mention, quoted
from bot.text.number_format import as_csv, hours, money, percent
from bot.text.wording import fitting, listed

ENVIRONMENTS = "Environments"  # in place of a sweep; no sweep has this name
PURPOSES = {
    ENVIRONMENTS: "research environments",
    ELASTIC: "elastic replicas",
    RESERVED: "reserved, unused",
    "": "not from a sweep",
}
MAX_LINES = 10  # of each part; the CSV has all


def month(parsed: ParsedCommand, now: datetime) -> tuple[datetime, datetime]:
    """Return the start of the month and of the next one, UTC."""
    this = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if parsed.month == "last":
        begin = (this - timedelta(days=1)).replace(day=1)
    elif parsed.month.isdecimal():  # the last month with this number
        begin = this.replace(month=int(parsed.month))
        begin = begin if begin <= this else begin.replace(year=this.year - 1)
    elif parsed.month:
        begin = datetime.strptime(parsed.month, "%Y-%m").replace(tzinfo=UTC)
    else:
        begin = this
    return begin, (begin + timedelta(days=32)).replace(day=1)


def bill(
    parsed: ParsedCommand,
    totals: Totals,
    prices: tuple[Price, ...],
    currency: str,
    now: datetime,
    environments: str = "",
) -> str:
    """Return the bill in mrkdwn; `totals` are of the month's stored hours.

    Args:
        environments: the namespace of research environments, which have their own line; "" if there is none.
    """

    def purpose(use: UsageSum) -> str:
        return ENVIRONMENTS if environments and use.namespace == environments else use.sweep

    uses, (begin, end) = _uses(parsed, totals), month(parsed, now)
    team = f", {parsed.team}" if parsed.team else ""
    if not uses:
        return f"No GPU-hours recorded for {begin:%B %Y}{team}. Usage is kept for 40 days."
    lines = []
    for title, key, named in (
        ("By team", lambda use: use.team, lambda name: quoted(name) or "no team"),
        ("By person", lambda use: RESERVED if use.sweep == RESERVED else use.owner, _person),
        ("By sweep", purpose, _purpose),
    ):
        if not (parsed.team and title == "By team"):
            lines += _part(title, grouped(uses, prices, key), named, currency)
    sums = summed(uses, prices)
    total = _line(f"*{begin:%B %Y}{team}*", sums, currency).removeprefix("• ")
    expected = round((min(end, now) - begin) / HOUR)  # of a month with uses, so it has begun
    share = percent(min(totals.coverage, expected), expected)
    so_far = " so far" if now < end else ""
    unpriced = f" No price for {quoted(listed(sorted(sums.unpriced)))}." if prices and sums.unpriced else ""
    last = f"_Measured: {share} of the month{so_far}. Months in UTC._{unpriced}"
    return "\n".join([*fitting([total, *lines], MAX_ANSWER - len(last)), last])


def by_cluster(
    parsed: ParsedCommand, totals: Mapping[str, Totals], prices: tuple[Price, ...], currency: str
) -> str:
    """Return a part with one line per cluster that has GPU-hours. `totals`: by cluster."""
    sums = {name: summed(uses, prices) for name, each in totals.items() if (uses := _uses(parsed, each))}
    return "\n".join(_part("By cluster", ordered(sums), code, currency))


def _person(name: str) -> str:
    return PURPOSES[RESERVED] if name == RESERVED else mention(name) if name else "unknown"


def _purpose(name: str) -> str:
    return PURPOSES.get(name) or code(name)


def _part(title: str, groups: Mapping[str, Sums], named: Callable[[str], str], currency: str) -> list[str]:
    lines = [_line(named(name), sums, currency) for name, sums in groups.items()]
    more = [f"… and {len(lines) - MAX_LINES} more in the CSV"] if len(lines) > MAX_LINES else []
    return [f"*{title}*", *lines[:MAX_LINES], *more]


def _line(name: str, sums: Sums, currency: str) -> str:
    cost = f", {'at least ' * bool(sums.unpriced)}{money(sums.cost, currency)}" if sums.cost else ""
    unknown = f", {hours(sums.unknown)} unknown" if sums.unknown > MAX_UNMEASURED * sums.allocated else ""
    used = f", {hours(sums.used)} used ({percent(sums.used, sums.measured)})" if sums.measured else ""
    return f"• {name}: {hours(sums.allocated)} GPU-h allocated{used}{unknown}{cost}"


def _uses(parsed: ParsedCommand, totals: Totals) -> tuple[UsageSum, ...]:
    return tuple(use for use in totals.uses if parsed.team in ("", use.team))


KEYS, FIGURES = ("team", "owner", "sweep", "namespace", "model"), ("allocated", "used", "idle", "unknown")


def bill_file(parsed: ParsedCommand, totals: Mapping[str, Totals], prices: tuple[Price, ...]) -> str:
    """Return CSV with one row per cluster, team, person, sweep, namespace, and model.

    Args:
        totals: by cluster. If there is only one, the file has no column for it.
    """
    head = [*KEYS, *FIGURES, "cost"]
    if len(totals) == 1:
        [home] = totals.values()
        return as_csv([head, *_rows(_uses(parsed, home), prices)])
    rows = [[name, *row] for name, each in totals.items() for row in _rows(_uses(parsed, each), prices)]
    return as_csv([["cluster", *head], *rows])


def _rows(uses: Collection[UsageSum], prices: tuple[Price, ...]) -> list[list[str | float]]:
    groups = grouped(uses, prices, lambda use: "\0".join(getattr(use, key) for key in KEYS))
    return [
        [
            *name.split("\0"),
            *(float(getattr(sums, figure)) for figure in FIGURES),
            "" if sums.unpriced else float(sums.cost),
        ]
        for name, sums in groups.items()
    ]
