"""Build the thread of a digest: use by person, overrequested CPU and memory, and all hours as CSV. Pure."""

from collections.abc import Sequence

from bot.measure.gpus.overrequest import GIB, Overrequest
from bot.measure.gpus.sums import Sums
from bot.platform.slack.mrkdwn import code, quoted
from bot.text.number_format import as_csv, hours, percent
from bot.text.wording import fitting
from bot.watch.digests.figures import NOTABLE, Figures, Row
from bot.watch.digests.message import MAX_SECTION, DigestContext, corrected, cost_of, person, priced

MAX_PEOPLE = 30  # in the thread; the CSV has all
HEAD = (
    *("hour_utc", "namespace", "pod", "node", "model", "owner", "name", "team", "sweep"),
    *("allocated", "observed", "used", "idle", "unknown"),
)


def details(figures: Figures, now: DigestContext) -> str:
    """Return use by person, unused reservations by team, and who requests far more than they use."""
    rows = sorted(figures.people, key=lambda row: -row.sums.allocated)
    lines = [*corrected(now), "*By person*", *(_line(row, now) for row in rows[:MAX_PEOPLE])]
    lines += [f"… and {len(rows) - MAX_PEOPLE} more in the CSV"] if len(rows) > MAX_PEOPLE else []
    held = [_reserved(team, sums, now) for team, sums in figures.reserved.items()]
    lines += ["*Reserved, unused*", *held] if held else []
    over = [_overrequest(one, now) for one in figures.overrequests]
    lines += ["*Overrequested CPU and memory*", *over] if over else []
    return "\n".join(fitting(lines, MAX_SECTION))


def _line(row: Row, now: DigestContext) -> str:
    sums = row.sums
    cost = f", {cost_of(sums.cost, sums, now)}" if priced(sums) else ""
    used = f"{percent(sums.used, sums.allocated)} used, {hours(sums.idle)} idle"
    used += f", {hours(row.underused)} underused" if row.underused >= NOTABLE else ""
    return f"• {quoted(person(row.name, now))}: {hours(sums.allocated)} GPU-h, {used}{cost}"


def _reserved(team: str, sums: Sums, now: DigestContext) -> str:
    cost = f", {cost_of(sums.cost, sums, now)}" if priced(sums) else ""
    return f"• {quoted(team) or 'no team'}: {hours(sums.allocated)} GPU-h{cost}"


def _overrequest(one: Overrequest, now: DigestContext) -> str:
    parts = [f"{one.cpu[0]:g} cores requested, {one.cpu[1]:.1f} used"] if one.cpu else []
    parts += [f"{one.ram[0] / GIB:.0f} GiB requested, {one.ram[1] / GIB:.1f} peak"] if one.ram else []
    who = quoted(person(one.owner, now)) if one.owner else quoted(one.team or one.namespace)
    return f"• {who}, {code(one.name)}: {'; '.join(parts)}"


def table(figures: Figures, now: DigestContext) -> str:
    """Return every pod's hours as CSV, with a column for the cluster if there are several."""
    uses = figures.uses
    starts = {hour: f"{hour:%Y-%m-%dT%H:%MZ}" for hour in set(uses.hour)}
    columns: list[Sequence[object]] = [
        *([starts[hour] for hour in uses.hour], uses.namespace, uses.pod, uses.node, uses.model),
        *(uses.owner, [now.names.get(owner, "") for owner in uses.owner], uses.team, uses.sweep),
        *(uses.allocated, uses.observed, uses.used, uses.idle, uses.unknown),
    ]
    if figures.clusters:
        return as_csv([("cluster", *HEAD), *zip(uses.cluster, *columns, strict=True)])
    return as_csv([HEAD, *zip(*columns, strict=True)])
