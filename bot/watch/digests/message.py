"""Build the digest's one channel message: headline, sums, table, the most idle with their buttons, waiting
and free GPUs, definitions, and prices. Pure.

People appear by display name and are never mentioned, so a digest notifies no one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from bot.measure.gpus.command import ask_button, unhealthy
from bot.measure.gpus.models import NodeUse
from bot.measure.gpus.sums import Sums
from bot.platform.slack.blocks import Block, context, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, link, local_time, plain, quoted
from bot.text.number_format import hours, money, percent, signed
from bot.text.wording import counted, day_text, fitting, listed
from bot.watch.digests.chart import alt_text
from bot.watch.digests.figures import NOTABLE, Figures, MostIdle, Row
from k8s.nodes.gpus import is_whole

MAX_ROWS = 5  # of the table; the rest are summed up as "others"
MAX_SECTION = 2900  # characters; Slack takes 3,000
MAX_NAME = 60  # characters of a name that a user chose
WELL_MEASURED = 0.95  # share of a day; a lower one is in the headline
MAX_MISSED = 7  # days listed as without a digest
DEFINITIONS = (
    "Idle: full half-hours with no activity. Used: time weighted by utilization. Pauses: the rest of the "
    "measured time. Unknown: no metrics."
)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A sweep with trials that don't run yet."""

    sweep: str
    trials: int
    hours: float  # in its current phase


@dataclass(frozen=True, kw_only=True)
class DigestContext:
    """What a digest shows in addition to the day's figures."""

    currency: str = "$"
    has_prices: bool = False
    names: Mapping[str, str] = field(default_factory=dict)  # Slack user id -> display name
    links: Mapping[str, str] = field(default_factory=dict)  # sweep -> URL of its thread
    nodes: tuple[NodeUse, ...] | None = None  # None: no GPU data
    waiting: tuple[Waiting, ...] = ()
    missed: tuple[date, ...] = ()
    corrected: datetime | None = None  # when late metrics changed the figures
    reserved: str = ""  # one line about reservations, in mrkdwn
    unmeasured: tuple[str, ...] = ()  # clusters whose free GPUs are unknown


def headline(figures: Figures, now: DigestContext) -> str:
    """Return one plain-text sentence, as notifications show it."""
    team = f", {figures.schedule.team}" if figures.schedule.team else ""
    measured = f" ({percent(figures.coverage, 1)} measured)" if 0 < figures.coverage < WELL_MEASURED else ""
    day = f"{figures.day:%a}, {day_text(figures.day)}"
    return f"GPU digest, {day}{team}{measured}: {_finding(figures, now)}{_free_now(now)}"


def _finding(figures: Figures, now: DigestContext) -> str:
    total = figures.total
    if not figures.coverage:
        return "no data; GPU metrics were unavailable."
    if not total.allocated and figures.schedule.team:
        return "no GPUs allocated."
    if not total.allocated:
        return f"0 of {hours(figures.capacity)} GPU-hours allocated."
    if figures.quiet:
        used = percent(total.used, total.allocated)
        return f"{hours(total.allocated)} GPU-hours allocated, {used} used. Nothing to report."
    has_cost = total.idle and priced(total)
    cost = f", {cost_of(total.wasted, total, now)}{_rate(figures, now)}" if has_cost else ""
    if figures.underused > total.idle:
        more = f"; {hours(total.idle)} idle{cost}" if total.idle >= NOTABLE else ""
        paused = f"{hours(figures.underused)} of {hours(total.allocated)} allocated GPU-hours paused"
        return f"{paused} in jobs with less than {figures.low:.0%} use{more}."
    idle = f"{hours(total.idle)} of {hours(total.allocated)} allocated GPU-hours idle"
    return f"{idle} ({percent(total.idle, total.allocated)}){cost}."


def _rate(figures: Figures, now: DigestContext) -> str:
    """Return the range of prices of the GPUs that were idle."""
    prices = [price for ends in figures.idle_prices.values() for price in ends]
    return f" at {_range(prices, now)}/GPU-h" if prices else ""


def _range(prices: Collection[float], now: DigestContext) -> str:
    return "–".join(money(price, now.currency) for price in sorted({min(prices), max(prices)}))


def _free_now(now: DigestContext) -> str:
    if not now.nodes:
        return ""
    total = sum(node.allocatable for node in now.nodes)
    return f" {sum(node.free for node in now.nodes)} of {counted(total, 'GPU')} free now."


def priced(sums: Sums) -> bool:
    return bool(sums.cost) or not sums.unpriced


def cost_of(value: float, sums: Sums, now: DigestContext) -> str:
    """Return the cost; a lower bound if some models have no price."""
    return "at least " * bool(sums.unpriced) + money(value, now.currency)


def message(figures: Figures, now: DigestContext, chart: str = "") -> Message:
    """Build the message; `chart` is the Slack file id of the chart, empty without one."""
    first = headline(figures, now)
    if figures.quiet or not figures.coverage:
        return Message(text=" ".join([plain(first), *corrected(now), *_missed(now), *_reserved(now)]))
    blocks = [section(f"*{plain(first)}*"), context(_sums(figures))]
    blocks += [context(_clusters(figures))] if figures.clusters else []
    if chart:
        alt = alt_text(figures)[:2000]
        blocks.append({"type": "image", "slack_file": {"id": chart}, "alt_text": alt})
    if figures.rows:
        blocks.append(_table(figures, now))
    if figures.most_idle:
        blocks += _most_idle(figures, now)
    blocks += [section(_waiting_and_free(figures, now)), context(_footer(figures, now))]
    return Message(text=plain(first), blocks=tuple(blocks))


def _sums(figures: Figures) -> str:
    """Show the totals; capacity, free, and unhealthy are always of whole clusters."""
    total, capacity = figures.total, figures.capacity
    whole = [
        f"capacity {hours(capacity)} GPU-h",
        f"free {hours(figures.free)}",
        f"unhealthy {hours(figures.unhealthy)}",
    ]
    parts = [
        f"allocated {hours(total.allocated)} ({percent(total.allocated, capacity)})",
        f"used {hours(total.used)} ({percent(total.used, total.allocated)} of allocated)",
        f"pauses {hours(total.pauses)}",
        f"idle {hours(total.idle)}",
        f"unknown {hours(total.unknown)}",
        *([f"reserved, unused {hours(figures.unused)}"] if figures.reserved else []),
    ]
    if figures.schedule.team:
        parts.append(f"all teams: {', '.join(whole)}")
    else:
        parts = [whole[0], *parts, *whole[1:]]
    for name, part in (
        ("research environments", figures.environments),
        ("elastic replicas", figures.elastic),
    ):
        if part.allocated:
            used = percent(part.used, part.allocated)
            parts.append(f"{name} {hours(part.allocated)} ({used} used, {hours(part.idle)} idle)")
    return "  ·  ".join(parts)


def _clusters(figures: Figures) -> str:
    parts = [
        f"{hours(sums.allocated)} GPU-h allocated, {hours(sums.used)} used, {hours(sums.idle)} idle"
        if sums
        else "no data"
        for sums in figures.clusters.values()
    ]
    named = zip(figures.clusters, parts, strict=True)
    return "  ·  ".join(f"{code(name)}: {part}" for name, part in named)


def _table(figures: Figures, now: DigestContext) -> dict[str, Any]:
    """Underused GPU-hours have a column only on days with some: a phone shows few."""
    head = ["Person" if figures.schedule.team else "Team", "Used (GPU-h)", "Idle (GPU-h)", "Idle cost"]
    shown, rest = figures.rows[:MAX_ROWS], figures.rows[MAX_ROWS:]
    named = [(_named(row.name, figures, now), row) for row in shown]
    if rest:
        named.append((f"{len(rest)} others", _together(rest)))
    rows = [_cells(name, row, now) for name, row in named]
    if _has_underused(figures):
        head.append("Underused (GPU-h)")
        rows = [[*cells, hours(row.underused)] for cells, (_, row) in zip(rows, named, strict=True)]
    # Wrapped, so that a phone shows all columns: others scroll sideways there.
    settings = [
        {"align": "left" if not number else "right", "is_wrapped": True} for number in range(len(head))
    ]
    cells = [[{"type": "raw_text", "text": text} for text in row] for row in [head, *rows]]
    return {"type": "table", "rows": cells, "column_settings": settings}


def _has_underused(figures: Figures) -> bool:
    return figures.underused >= NOTABLE


def _cells(name: str, row: Row, now: DigestContext) -> list[str]:
    sums = row.sums
    change = "" if row.usual is None else f" ({signed(sums.idle - row.usual)})"
    return [
        name,
        f"{percent(sums.used, sums.allocated)} of {hours(sums.allocated)}",
        f"{hours(sums.idle)}{change}",
        cost_of(sums.wasted, sums, now) if priced(sums) else "no price",
    ]


def _together(rows: tuple[Row, ...]) -> Row:
    sums = Sums(
        **{key: sum(getattr(row.sums, key) for row in rows) for key in vars(Sums()) if key != "unpriced"},
        unpriced={model for row in rows for model in row.sums.unpriced},
    )
    usual = [row.usual for row in rows if row.usual is not None]
    underused = sum(row.underused for row in rows)
    return Row(name="", sums=sums, usual=sum(usual) if usual else None, underused=underused)


def _named(key: str, figures: Figures, now: DigestContext) -> str:
    return person(key, now) if figures.schedule.team else key or "no team"


def person(user: str, now: DigestContext) -> str:
    return (now.names.get(user) or user)[:MAX_NAME] if user else "unknown person"


def _most_idle(figures: Figures, now: DigestContext) -> list[Block]:
    """Give each pod whose owner can be asked a section of its own, with the button beside it."""
    underused = any(one.underused for one in figures.most_idle)
    texts, buttons = [[f"*Most idle{' or underused' * underused}*"]], dict[int, Block]()
    for number, one in enumerate(figures.most_idle):
        if number and (one.askable or len(texts) - 1 in buttons):
            texts.append([])
        if one.askable:
            buttons[len(texts) - 1] = ask_button([one.name])
        texts[-1].append(_most_idle_line(one, now))
    return [
        section("\n".join(fitting(lines, MAX_SECTION)), buttons.get(number))
        for number, lines in enumerate(texts)
    ]


def _most_idle_line(one: MostIdle, now: DigestContext) -> str:
    where = link(now.links[one.sweep], one.sweep) if one.sweep in now.links else code(one.name[:MAX_NAME])
    who = quoted(person(one.owner, now)) if one.owner else quoted(one.team or "owner unknown")
    cost = f", {cost_of(one.sums.wasted, one.sums, now)}" if priced(one.sums) else ""
    idle = f"{hours(one.sums.idle)} of {hours(one.sums.allocated)} GPU-h idle{cost}"
    low = f", {percent(one.sums.used, one.sums.measured)} used" if one.underused else ""
    return f"• {where} ({who}): {counted(one.gpus, 'GPU')}, {idle}{low}{_unused(one)}"


def _unused(one: MostIdle) -> str:
    """Show GPUs that were never used, so that the owner can request fewer."""
    if not one.partly:
        return ""
    unused, of, pods = one.partly
    return f", {unused} of {of} GPUs unused{f' in each of {pods} pods' if pods > 1 else ''}"


def _waiting_and_free(figures: Figures, now: DigestContext) -> str:
    lines = []
    if figures.waited >= NOTABLE:
        lines.append(f":hourglass_flowing_sand: Queued: {hours(figures.waited)} GPU-hours.{_queue(figures)}")
    for one in sorted(now.waiting, key=lambda each: -each.hours)[:MAX_ROWS]:
        where = link(now.links[one.sweep], one.sweep) if one.sweep in now.links else code(one.sweep)
        trials = f"{counted(one.trials, 'trial')}, {hours(one.hours)} h"
        lines.append(f":hourglass_flowing_sand: Waiting to start: {where}, {trials}")
    return "\n".join(
        fitting(
            [
                *(["*All teams*"] if figures.schedule.team else []),
                *(lines or ["No pods waited for GPUs."]),
                *_free_blocks(now),
                *_reserved(now),
            ],
            MAX_SECTION,
        )
    )


def _queue(figures: Figures) -> str:
    if not figures.waiting:
        return ""  # unknown in hours that an older version wrote
    longest = f", longest wait {hours(figures.longest)} h" if figures.longest else ""
    return f" Peak {counted(figures.waiting, 'pod')} ({counted(figures.wanted, 'GPU')}){longest}."


def _reserved(now: DigestContext) -> list[str]:
    return [now.reserved] if now.reserved else []


def _free_blocks(now: DigestContext) -> list[str]:
    if now.nodes is None:
        return ["Free GPUs now: unknown."]
    # A block of slices or shares hides no whole GPUs.
    blocks = [node for node in now.nodes if node.free and is_whole(node.model)] or now.nodes
    largest = max(blocks, key=lambda node: node.free, default=None)
    found = []
    if largest and largest.free:
        model = f" ({quoted(largest.model)})" if largest.model else ""
        found.append(
            f"Largest free block now: {counted(largest.free, 'GPU')} on {code(largest.node)}{model}."
        )
    else:
        found.append("No GPUs free now.")
    found += [f"Free GPUs in cluster {code(name)}: unknown." for name in now.unmeasured]
    return [*found, *unhealthy(now.nodes)]


def _footer(figures: Figures, now: DigestContext) -> str:
    schedule = figures.schedule
    begin, end = (each.astimezone(schedule.zone) for each in schedule.window(figures.day))
    unpriced = sorted(figures.total.unpriced)
    window = f"{day_text(begin)} {begin:%H:%M}–{day_text(end)} {end:%H:%M} {plain(schedule.timezone)}"
    compared = any(row.usual is not None for row in figures.rows)
    parts = [
        DEFINITIONS,
        f"Underused: pauses of jobs with less than {figures.low:.0%} use." * _has_underused(figures),
        "In parentheses: change from the 7-day average." if compared else "",
        f"{window}, {percent(figures.coverage, 1)} measured.",
        _prices(figures, now),
        f"No price for {quoted(listed(unpriced))}."
        if unpriced and (figures.total.cost or now.has_prices)
        else "",
        *corrected(now),
        *_missed(now),
        "Live: `/gpus`",
    ]
    return " ".join(part for part in parts if part)[:MAX_SECTION]


def _prices(figures: Figures, now: DigestContext) -> str:
    if not figures.prices:
        return ""
    each = [f"{quoted(model, MAX_NAME)} {_range(prices, now)}" for model, prices in figures.prices.items()]
    return f"Prices per GPU-hour: {listed(each)}."


def corrected(now: DigestContext) -> list[str]:
    return [f"Corrected {local_time(now.corrected)}: late metrics arrived."] if now.corrected else []


def _missed(now: DigestContext) -> list[str]:
    if not now.missed:
        return []
    days = [day_text(day) for day in now.missed[-MAX_MISSED:]]
    return [f"Missed {'digest' if len(days) == 1 else 'digests'}: {listed(days)}."]
