"""What stands in a digest's thread: each person's day, who asks for too much, and a table of all. Pure."""

from bot.amounts import as_csv, hours, percent
from bot.digest import Figures, Row
from bot.digest_message import LONGEST, Present, cost_of, person, priced
from bot.hints import fitting
from bot.mrkdwn import code, quoted
from bot.usage import PodUse

PEOPLE = 30  # of the thread; the file has all
GIB = 2**30
LARGE_CPU, LARGE_RAM = 4.0, 32 * GIB  # requests below which nobody is told
LITTLE_CPU, LITTLE_RAM = 0.1, 0.35  # of the request


def details(figures: Figures, now: Present) -> str:
    """Each person's day, and who asks for far more CPU or RAM than they use."""
    rows = sorted(figures.people, key=lambda row: -row.sums.allocated)
    lines = ["*By person*", *(_line(row, now) for row in rows[:PEOPLE])]
    lines += [f"… and {len(rows) - PEOPLE} more in the file"] if len(rows) > PEOPLE else []
    over = [_over(pod, now) for pod in now.pods if too_much(pod)]
    lines += ["*More requested than used in the last hour*", *over] if over else []
    return "\n".join(fitting(lines, LONGEST))


def _line(row: Row, now: Present) -> str:
    sums = row.sums
    cost = f", {cost_of(sums.cost, sums, now)}" if priced(sums) else ""
    used = f"{percent(sums.used, sums.allocated)} used, {hours(sums.idle)} idle"
    return f"• {quoted(person(row.name, now))}: {hours(sums.allocated)} GPU-h, {used}{cost}"


def too_much(pod: PodUse) -> tuple[bool, bool] | None:
    """Whether it asks for far more CPU, and more RAM, than it used; None for neither."""
    cpu = pod.cpu_requested is not None and pod.cpu_requested >= LARGE_CPU and pod.cpu_mean is not None
    ram = pod.ram_requested is not None and pod.ram_requested >= LARGE_RAM and pod.ram_peak is not None
    found = (
        cpu and (pod.cpu_mean or 0) < LITTLE_CPU * (pod.cpu_requested or 0),
        ram and (pod.ram_peak or 0) < LITTLE_RAM * (pod.ram_requested or 0),
    )
    return found if any(found) else None


def _over(pod: PodUse, now: Present) -> str:
    cpu, ram = too_much(pod) or (False, False)
    parts = [f"{pod.cpu_requested:g} cores, {pod.cpu_mean:.1f} used"] if cpu else []
    parts += (
        [f"{(pod.ram_requested or 0) / GIB:.0f} GiB, at most {(pod.ram_peak or 0) / GIB:.1f} used"]
        if ram
        else []
    )
    who = quoted(person(pod.owner, now)) if pod.owner else quoted(pod.team or pod.namespace)
    return f"• {who}, {code(pod.pod)}: {'; '.join(parts)}"


def table(figures: Figures, now: Present) -> str:
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
