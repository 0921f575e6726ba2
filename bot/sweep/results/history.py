"""The best results of one space over the weeks, who found them, and with which commit. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.core.space import Goal
from bot.platform.slack.blocks import Block, context, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import SHORT_COMMIT, code, commit_text, quoted
from bot.sweep.results.models import SweepResults
from bot.sweep.results.ranking import best, ranked
from bot.sweep.results.table import MAX_CELL_SIZE, row
from bot.text.wording import counted

SHOWN_WEEKS = 26


@dataclass(frozen=True, kw_only=True)
class PastSweep:
    """An ended sweep in the history of a space."""

    name: str  # the sweep's
    value: float  # of its best trial
    ended: datetime
    owner: str  # name in Slack, or user ID
    commit: str
    subject: str
    objective: tuple[str, str, Goal, str]  # repository, metric, goal, and the value that counts
    trials: int


def past_sweep(results: SweepResults) -> PastSweep | None:
    """Return the sweep for a history; None for seeds, and without a finite objective."""
    space = results.space
    top = best(space.goal, results.trials, results.best)
    if not space.names_best or top is None or top.value is None:
        return None
    return PastSweep(
        name=results.sweep,
        value=top.value,
        ended=results.ended,
        owner=results.owner_name or results.owner,
        commit=results.commit,
        subject=results.subject,
        objective=(results.repo_url, space.metric, space.goal, space.strategies[space.metric]),
        trials=len(results.trials) + results.omitted,
    )


def history(space: str, sweeps: Iterable[PastSweep]) -> Message:
    """Build the message: the best sweep of each week, the latest week first.

    Values are only compared within one objective: that of the latest sweep.
    """
    found = sorted(sweeps, key=lambda each: (each.ended, each.name))
    if not found:
        return Message(text=f"No ended sweep of space {code(space)} has a result.")
    objective = found[-1].objective
    same = [each for each in found if each.objective == objective]
    goal, weeks = objective[2], _weeks(objective[2], same)
    shown, top = weeks[:SHOWN_WEEKS], ranked(goal, same)[0]
    ran = counted(len(same), "sweep")
    head = (
        f"Best {code(objective[1])} of space {code(space)} in {ran}: *{top.value:.6g}* ({goal}), by "
        f"*{quoted(top.owner, 80)}* in {code(top.name)} on {top.ended:%Y-%m-%d}, commit "
        f"{commit_text(top.commit, top.subject)}."
    )
    others = len(found) - len(same)
    note = f"Not counted: {counted(others, 'sweep')} with another objective or repository."
    blocks: tuple[Block, ...] = (section(head), {"type": "table", "rows": _rows(shown, top)})
    lines = [f"{each.ended:%Y-%m-%d}: {each.value:.6g} ({code(each.name)})" for each in shown]
    return Message(
        text="\n".join([head, *lines, *([note] if others else [])]),
        blocks=(*blocks, *([context(note)] if others else [])),
    )


def _weeks(goal: Goal, sweeps: Sequence[PastSweep]) -> list[PastSweep]:
    """Return the best sweep of each week that has one, the latest first."""
    by_week: dict[datetime, list[PastSweep]] = {}
    for each in sweeps:
        by_week.setdefault(_monday(each.ended), []).append(each)
    return [ranked(goal, by_week[week])[0] for week in sorted(by_week, reverse=True)]


def _monday(at: datetime) -> datetime:
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def _rows(weeks: Sequence[PastSweep], top: PastSweep) -> list[list[Block]]:
    rows = [row(["week of", "best", "overall", "sweep", "by", "commit"])]
    for each in weeks:
        commit = f"{each.commit[:SHORT_COMMIT]} {each.subject}"[:MAX_CELL_SIZE]
        mark = "best" if each.name == top.name else ""
        cells = [f"{_monday(each.ended):%Y-%m-%d}", f"{each.value:.6g}", mark, each.name, each.owner, commit]
        rows.append(row(cells))
    return rows
