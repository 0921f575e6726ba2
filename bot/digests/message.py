"""What a digest says to its channel, in one message. Pure.

Nobody is mentioned: people are named as they call themselves, and their phones stay silent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from bot.core.numbers import hours, money, percent, signed
from bot.core.wording import counted, fitting, listed
from bot.digests.chart import alt_text
from bot.digests.figures import WORTH, Figures, MostIdle, Row
from bot.gpus.models import NodeUse
from bot.gpus.sums import Sums
from bot.slack.blocks import context, section
from bot.slack.message import Message
from bot.slack.mrkdwn import code, link, plain, quoted

ROWS = 5  # of the table, then "others"
LONGEST = 2900  # characters of a section; Slack takes 3,000
NAME = 60  # characters of a name that somebody chose
WHOLE = 0.95  # of a day measured; below, its headline tells
DAYS = 7  # days that are told to have got no digest
DEFINITIONS = (
    "Idle: whole half hours without work. Used: each moment by the share a GPU was busy. "
    "Unknown: nobody measured."
)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A sweep with trials that no node has room for."""

    sweep: str
    trials: int
    hours: float  # so long in this phase


@dataclass(frozen=True, kw_only=True)
class DigestContext:
    """What the hours don't tell."""

    currency: str = "$"
    names: Mapping[str, str] = field(default_factory=dict)  # of people, by id
    links: Mapping[str, str] = field(default_factory=dict)  # to threads, by sweep
    nodes: tuple[NodeUse, ...] | None = None  # None: nobody can say
    waiting: tuple[Waiting, ...] = ()
    missed: tuple[date, ...] = ()
    today: date | None = None  # whose prices they are


def headline(figures: Figures, now: DigestContext) -> str:
    """Plain text, as notifications show it."""
    total, day = figures.total, f"{figures.day:%a} {figures.day.day} {figures.day:%b}"
    of = f" of {figures.about.team}" if figures.about.team else ""
    of += f" ({percent(figures.coverage, 1)} measured)" if 0 < figures.coverage < WHOLE else ""
    if not figures.coverage:
        return f"GPU day {day}{of}: unknown, nobody measured it.{_free_now(now)}"
    if not total.allocated and figures.about.team:
        return f"GPU day {day}{of}: no GPU was held.{_free_now(now)}"
    if not total.allocated and figures.quiet:
        return f"GPU day {day}{of}: nobody held any of {hours(figures.capacity)} GPU-hours.{_free_now(now)}"
    if figures.quiet:
        busy = f"{hours(total.allocated)} GPU-hours held, {percent(total.used, total.allocated)} used"
        return f"GPU day {day}{of}: {busy}, nothing to report.{_free_now(now)}"
    idle = f"{hours(total.idle)} of {hours(total.allocated)} allocated GPU-hours idle"
    told = total.idle and priced(total)
    cost = f", {cost_of(total.wasted, total, now)}{_rate(figures, now)}" if told else ""
    return f"GPU day {day}{of}: {idle} ({percent(total.idle, total.allocated)}){cost}.{_free_now(now)}"


def _rate(figures: Figures, now: DigestContext) -> str:
    """What an hour of the GPUs costs that were idle, from the cheapest to the dearest."""
    prices = {figures.prices[use.model] for use in figures.uses if use.idle and use.model in figures.prices}
    ends = sorted({min(prices), max(prices)}) if prices else []
    return f" at {' to '.join(money(price, now.currency) for price in ends)}" if ends else ""


def _free_now(now: DigestContext) -> str:
    if now.nodes is None:
        return ""
    there = sum(node.allocatable for node in now.nodes)
    return f" {sum(node.free for node in now.nodes)} of {counted(there, 'GPU')} free now."


def priced(sums: Sums) -> bool:
    return bool(sums.cost) or not sums.unpriced


def cost_of(value: float, sums: Sums, now: DigestContext) -> str:
    """A floor, where some models have no price."""
    return "at least " * bool(sums.unpriced) + money(value, now.currency)


def message(figures: Figures, now: DigestContext, chart: str = "") -> Message:
    """`chart`: the id of its picture, which Slack has."""
    first = headline(figures, now)
    if figures.quiet or not figures.coverage:
        return Message(text=" ".join([plain(first), *_missed(now)]))
    blocks = [section(f"*{plain(first)}*"), context(_sums(figures))]
    if chart:
        alt = alt_text(figures)[:2000]
        blocks.append({"type": "image", "slack_file": {"id": chart}, "alt_text": alt})
    if figures.rows:
        blocks.append(_table(figures, now))
    if figures.most_idle:
        blocks.append(section(_worst(figures, now)))
    blocks += [section(_meanwhile(figures, now)), context(_footer(figures, now))]
    return Message(text=plain(first), blocks=tuple(blocks))


def _sums(figures: Figures) -> str:
    """Parts of the whole cluster; those of one team are its own."""
    total, capacity = figures.total, figures.capacity
    parts = [
        f"capacity {hours(capacity)} GPU-h",
        f"allocated {hours(total.allocated)} ({percent(total.allocated, capacity)})",
        f"used {hours(total.used)} ({percent(total.used, total.allocated)} of allocated)",
        f"idle {hours(total.idle)}",
        f"unknown {hours(total.unknown)}",
        f"free {hours(figures.free)}",
        f"unhealthy {hours(figures.unhealthy)}",
    ]
    return "  ·  ".join(parts)


def _table(figures: Figures, now: DigestContext) -> dict[str, Any]:
    head = ["Person" if figures.about.team else "Team", "Allocated", "Used", "Idle", "Idle cost", "vs 7 days"]
    shown, rest = figures.rows[:ROWS], figures.rows[ROWS:]
    rows = [_cells(_named(row.name, figures, now), row, now) for row in shown]
    if rest:
        rows.append(_cells(f"{len(rest)} others", _together(rest), now))
    settings = [{"align": "left"}] + [{"align": "right"}] * (len(head) - 1)
    cells = [[{"type": "raw_text", "text": text} for text in row] for row in [head, *rows]]
    return {"type": "table", "rows": cells, "column_settings": settings}


def _cells(name: str, row: Row, now: DigestContext) -> list[str]:
    sums = row.sums
    return [
        name,
        hours(sums.allocated),
        percent(sums.used, sums.allocated),
        hours(sums.idle),
        cost_of(sums.wasted, sums, now) if priced(sums) else "no price",
        "–" if row.usual is None else signed(sums.idle - row.usual),
    ]


def _together(rows: tuple[Row, ...]) -> Row:
    sums = Sums(
        **{key: sum(getattr(row.sums, key) for row in rows) for key in vars(Sums()) if key != "unpriced"},
        unpriced={model for row in rows for model in row.sums.unpriced},
    )
    usual = [row.usual for row in rows if row.usual is not None]
    return Row(name="", sums=sums, usual=sum(usual) if usual else None)


def _named(key: str, figures: Figures, now: DigestContext) -> str:
    return person(key, now) if figures.about.team else key or "no team"


def person(user: str, now: DigestContext) -> str:
    return (now.names.get(user) or user)[:NAME] if user else "unknown person"


def _worst(figures: Figures, now: DigestContext) -> str:
    return "\n".join(fitting(["*Most idle*", *(_offender(one, now) for one in figures.most_idle)], LONGEST))


def _offender(one: MostIdle, now: DigestContext) -> str:
    where = link(now.links[one.sweep], one.sweep) if one.sweep in now.links else code(one.name[:NAME])
    who = quoted(person(one.owner, now)) if one.owner else quoted(one.team or "owner unknown")
    cost = f", {cost_of(one.sums.wasted, one.sums, now)}" if priced(one.sums) else ""
    idle = f"{hours(one.sums.idle)} of {hours(one.sums.allocated)} GPU-h idle"
    return f"• {where} ({who}): {counted(one.gpus, 'GPU')}, {idle}{cost}{_unused(one)}"


def _unused(one: MostIdle) -> str:
    """Who leaves some of a pod's GPUs alone may ask for fewer."""
    if not one.partly:
        return ""
    unused, of, pods = one.partly
    return f", {unused} of {of} GPUs unused{f' in each of {pods} pods' if pods > 1 else ''}"


def _meanwhile(figures: Figures, now: DigestContext) -> str:
    lines = []
    if figures.waited >= WORTH:
        much = f"{hours(figures.waited)} GPU-hours{_queue(figures)}"
        lines.append(f":hourglass: Meanwhile pods waited for {much}.")
    for one in sorted(now.waiting, key=lambda each: -each.hours)[:ROWS]:
        where = link(now.links[one.sweep], one.sweep) if one.sweep in now.links else code(one.sweep)
        lines.append(
            f":hourglass: Waiting now: {where}, {counted(one.trials, 'trial')}, for {hours(one.hours)} h"
        )
    lines += _blocks(now)
    return "\n".join(fitting(lines or ["Nothing waited for GPUs."], LONGEST))


def _queue(figures: Figures) -> str:
    if not figures.waiting:
        return ""  # an older version's hours don't say
    pods = f"at most {counted(figures.waiting, 'pod')} for {counted(figures.wanted, 'GPU')} at a time"
    return f": {pods}{f', the longest for {hours(figures.longest)} h' if figures.longest else ''}"


def _blocks(now: DigestContext) -> list[str]:
    if now.nodes is None:
        return ["What is free now is not known."]
    largest = max(now.nodes, key=lambda node: node.free, default=None)
    found = []
    if largest and largest.free:
        model = f" ({quoted(largest.model)})" if largest.model else ""
        found.append(
            f"Largest free block now: {counted(largest.free, 'GPU')} on {code(largest.node)}{model}."
        )
    else:
        found.append("No GPU is free now.")
    lost = [f"{node.lost} on {node.node}" for node in now.nodes if node.lost]
    shut = [node.node for node in now.nodes if node.cordoned or not node.ready]
    found += [f":warning: GPUs lost: {plain(listed(lost))}."] if lost else []
    return found + ([f":warning: Nobody is let onto {plain(listed(shut))}."] if shut else [])


def _footer(figures: Figures, now: DigestContext) -> str:
    about = figures.about
    begin, end = (each.astimezone(about.zone) for each in about.window(figures.day))
    unpriced = sorted(figures.total.unpriced)
    window = f"{begin:%d %b %H:%M} to {end:%d %b %H:%M} {plain(about.timezone)}"
    parts = [
        DEFINITIONS,
        f"{window}, {percent(figures.coverage, 1)} of it covered.",
        _prices(figures, now),
        f"No price for {quoted(listed(unpriced))}." if unpriced and figures.total.cost else "",
        *_missed(now),
        "`/gpus` tells the present.",
    ]
    return " ".join(part for part in parts if part)[:LONGEST]


def _prices(figures: Figures, now: DigestContext) -> str:
    if not figures.prices:
        return ""
    of = f" of {now.today.day} {now.today:%b}" if now.today else ""
    each = [f"{quoted(model, NAME)} {money(price, now.currency)}" for model, price in figures.prices.items()]
    return f"Prices{of} for an hour of one GPU: {listed(each)}."


def _missed(now: DigestContext) -> list[str]:
    if not now.missed:
        return []
    days = listed([f"{day:%d %b}" for day in now.missed[-DAYS:]])
    return [f"No digest could be posted about {days}."]
