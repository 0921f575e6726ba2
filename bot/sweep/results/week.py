"""The page of a week, which a digest posts: ended sweeps, GPU-hours, cost, and the best improvements of
spaces. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from bot.core.record import Phase
from bot.core.space import Goal
from bot.platform.slack.blocks import section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code, quoted
from bot.sweep.results.history import PastSweep, past_sweep
from bot.sweep.results.models import SweepResults
from bot.sweep.results.ranking import ranked
from bot.text.number_format import hours, money
from bot.text.wording import counted, listed

SHOWN_IMPROVEMENTS = 5
OUTCOMES = {Phase.SUCCEEDED: "finished", Phase.FAILED: "failed", Phase.CANCELLED: "cancelled"}


@dataclass(frozen=True, kw_only=True)
class WeekSweep:
    """What a week's page needs of one ended sweep."""

    space: str
    ended: datetime
    phase: Phase
    owner: str  # Slack user ID
    gpu_hours: float
    cost: float
    complete: bool  # whether the GPU-hours of all its trials are known
    priced: bool  # whether the cost of these is
    past: PastSweep | None


@dataclass(frozen=True)
class _Improvement:
    space: str
    new: PastSweep
    old: PastSweep

    @property
    def ratio(self) -> float:
        change = abs(self.new.value - self.old.value)
        return change / abs(self.old.value) if self.old.value else change


def week_sweep(results: SweepResults) -> WeekSweep:
    known = [trial.gpu_hours for trial in results.trials if trial.gpu_hours is not None]
    return WeekSweep(
        space=results.space.name,
        ended=results.ended,
        phase=results.phase,
        owner=results.owner,
        gpu_hours=sum(known),
        cost=sum(trial.cost or 0.0 for trial in results.trials),
        complete=len(known) == len(results.trials) and not results.omitted,
        priced=all(trial.cost is not None for trial in results.trials if trial.gpu_hours),
        past=past_sweep(results),
    )


def week_page(
    monday: date, begin: datetime, end: datetime, sweeps: Iterable[WeekSweep], currency: str
) -> Message:
    """Build the page of the week from `begin` to `end`. `sweeps`: earlier ones, too, to compare with."""
    known = [each for each in sweeps if each.ended < end]
    before = [each for each in known if each.ended < begin]
    during = [each for each in known if each.ended >= begin]
    lines = [f"*Week of {monday:%Y-%m-%d}*: {_sums(during, currency)}"]
    found = sorted(_improvements(before, during), key=lambda each: (-each.ratio, each.space))
    lines += ["Largest improvements:"] if found else []
    lines += [_line(each) for each in found[:SHOWN_IMPROVEMENTS]]
    text = "\n".join(lines)
    return Message(text=text, blocks=(section(text),))


def _sums(sweeps: Sequence[WeekSweep], currency: str) -> str:
    if not sweeps:
        return "no sweeps ended."
    phases = Counter(OUTCOMES.get(each.phase, each.phase.value) for each in sweeps)
    outcomes = listed(f"{number} {outcome}" for outcome, number in phases.most_common())
    owners = len({each.owner for each in sweeps})
    people = f"{owners} {'person' if owners == 1 else 'people'}"
    partly = "" if all(each.complete for each in sweeps) else "at least "
    least = partly or ("" if all(each.priced for each in sweeps) else "at least ")
    used = f"{partly}{hours(sum(each.gpu_hours for each in sweeps))} GPU-hours"
    cost = sum(each.cost for each in sweeps)
    paid = f", {least}{money(cost, currency)}" if cost else ""
    return f"{counted(len(sweeps), 'sweep')} by {people} ended ({outcomes}); {used}{paid}."


def _improvements(before: Sequence[WeekSweep], during: Sequence[WeekSweep]) -> list[_Improvement]:
    """Compare the week's best with the best before, of each space and objective that has both."""
    old, new = _tops(before), _tops(during)
    return [
        _Improvement(space, top, past)
        for (space, objective), top in new.items()
        if (past := old.get((space, objective)))
        and (top.value > past.value if objective[2] is Goal.MAXIMIZE else top.value < past.value)
    ]


def _tops(sweeps: Sequence[WeekSweep]) -> dict[tuple[str, tuple[str, str, Goal, str]], PastSweep]:
    groups: dict[tuple[str, tuple[str, str, Goal, str]], list[PastSweep]] = {}
    for each in sweeps:
        if each.past:
            groups.setdefault((each.space, each.past.objective), []).append(each.past)
    return {key: ranked(key[1][2], group)[0] for key, group in groups.items()}


def _line(each: _Improvement) -> str:
    new, old = each.new, each.old
    percent = f" ({each.ratio:.1%})" if old.value else ""
    values = f"{old.value:.6g} → *{new.value:.6g}*{percent}"
    where = f"{code(new.objective[1])} of {code(each.space, 60)}"
    return f"• {where}: {values}, by *{quoted(new.owner, 80)}* in {code(new.name)}"
