"""What stands in a digest's thread: each person's day, who asks for too much, and a table of all. Pure."""

from bot.core.numbers import as_csv, hours, percent
from bot.core.wording import fitting
from bot.digests.figures import Figures, Row
from bot.digests.message import LONGEST, DigestContext, cost_of, person, priced
from bot.gpus.overrequest import GIB, Overasked
from bot.slack.mrkdwn import code, quoted

PEOPLE = 30  # of the thread; the file has all


def details(figures: Figures, now: DigestContext) -> str:
    """Each person's day, and who asks for far more CPU or RAM than they use."""
    rows = sorted(figures.people, key=lambda row: -row.sums.allocated)
    lines = ["*By person*", *(_line(row, now) for row in rows[:PEOPLE])]
    lines += [f"… and {len(rows) - PEOPLE} more in the file"] if len(rows) > PEOPLE else []
    over = [_over(one, now) for one in figures.overasked]
    lines += ["*More requested than used*", *over] if over else []
    return "\n".join(fitting(lines, LONGEST))


def _line(row: Row, now: DigestContext) -> str:
    sums = row.sums
    cost = f", {cost_of(sums.cost, sums, now)}" if priced(sums) else ""
    used = f"{percent(sums.used, sums.allocated)} used, {hours(sums.idle)} idle"
    return f"• {quoted(person(row.name, now))}: {hours(sums.allocated)} GPU-h, {used}{cost}"


def _over(one: Overasked, now: DigestContext) -> str:
    parts = [f"{one.cpu[0]:g} cores, {one.cpu[1]:.1f} used"] if one.cpu else []
    parts += [f"{one.ram[0] / GIB:.0f} GiB, at most {one.ram[1] / GIB:.1f} used"] if one.ram else []
    who = quoted(person(one.owner, now)) if one.owner else quoted(one.team or one.namespace)
    return f"• {who}, {code(one.name)}: {'; '.join(parts)}"


def table(figures: Figures, now: DigestContext) -> str:
    """The day's hours as CSV, with every pod."""
    head = "hour_utc,namespace,pod,node,model,owner,name,team,sweep,allocated,observed,used,idle,unknown"
    rows = [
        (
            f"{use.hour:%Y-%m-%dT%H:%MZ}",
            *(use.namespace, use.pod, use.node, use.model, use.owner, now.names.get(use.owner, "")),
            *(use.team, use.sweep, use.allocated, use.observed, use.used, use.idle, use.unknown),
        )
        for use in figures.uses
    ]
    return as_csv([head.split(","), *rows])
