"""Write the text and table of `/sweep history`: the best results of one space by week, who found them, and
with which commit. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.core.space import Goal
from bot.platform.slack.blocks import Block, context, section
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import SHORT_COMMIT, code, commit_text, link, quoted
from bot.sweep.results.models import SweepResults
from bot.sweep.results.ranking import best, ranked
from bot.sweep.results.table import MAX_CELL_SIZE, fitting, row
from bot.text.wording import counted

SHOWN_WEEKS, SWEEP_COLUMN = 26, 3


@dataclass(frozen=True, kw_only=True)
class PastSweep:
    """An ended sweep in the history of a space."""

    name: str  # the sweep's
    channel: str
    thread: str  # ts of its message; "" if there was none
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
        channel=results.channel,
        thread=results.thread,
        value=top.value,
        ended=results.ended,
        owner=results.owner_name or results.owner,
        commit=results.commit,
        subject=results.subject,
        objective=(results.repo_url, space.metric, space.goal, space.strategies[space.metric]),
        trials=len(results.trials) + results.omitted,
    )


@dataclass(frozen=True, kw_only=True)
class History:
    """What is shown. Values are only compared within one objective: that of the latest sweep."""

    top: PastSweep
    weeks: Sequence[PastSweep]  # the best sweep of each week that has one, the latest first
    compared: int  # sweeps
    others: int  # sweeps with another objective

    @property
    def shown(self) -> dict[str, PastSweep]:
        return {each.name: each for each in (self.top, *self.weeks)}


def history(sweeps: Iterable[PastSweep]) -> History | None:
    """Choose what to show; None if there is nothing."""
    found = sorted(sweeps, key=lambda each: (each.ended, each.name))
    if not found:
        return None
    objective = found[-1].objective
    same = [each for each in found if each.objective == objective]
    weeks = _weeks(objective[2], same)[:SHOWN_WEEKS]
    top = ranked(objective[2], same)[0]
    return History(top=top, weeks=weeks, compared=len(same), others=len(found) - len(same))


def message(space: str, found: History | None, links: Mapping[str, str]) -> Message:
    """Build the message. `links`: URLs of the sweeps' threads, by name."""
    if found is None:
        return Message(text=f"No ended sweep of space {code(space)} has a result.")
    top, (_, metric, goal, _) = found.top, found.top.objective
    head = (
        f"Best {code(metric)} of space {code(space)} in {counted(found.compared, 'sweep')}: "
        f"*{top.value:.6g}* ({goal}), by *{quoted(top.owner, 80)}* in {_name(top, links)} on "
        f"{top.ended:%Y-%m-%d}, commit {commit_text(top.commit, top.subject)}."
    )
    others = found.others
    note = f"Not counted: {counted(others, 'sweep')} with another objective or repository."
    blocks: tuple[Block, ...] = (section(head), {"type": "table", "rows": _rows(found, links)})
    lines = [f"{each.ended:%Y-%m-%d}: {each.value:.6g} ({_name(each, links)})" for each in found.weeks]
    return Message(
        text="\n".join([head, *lines, *([note] if others else [])]),
        blocks=(*blocks, *([context(note)] if others else [])),
    )


def _name(sweep: PastSweep, links: Mapping[str, str]) -> str:
    url = links.get(sweep.name)
    return f"*{link(url, sweep.name)}*" if url else code(sweep.name)


def _weeks(goal: Goal, sweeps: Sequence[PastSweep]) -> list[PastSweep]:
    by_week: dict[datetime, list[PastSweep]] = {}
    for each in sweeps:
        by_week.setdefault(_monday(each.ended), []).append(each)
    return [ranked(goal, by_week[week])[0] for week in sorted(by_week, reverse=True)]


def _monday(at: datetime) -> datetime:
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def _rows(found: History, links: Mapping[str, str]) -> list[list[Block]]:
    rows = [row(["week of", "best", "overall", "sweep", "by", "commit"])]
    for each in found.weeks:
        commit = f"{each.commit[:SHORT_COMMIT]} {each.subject}"[:MAX_CELL_SIZE]
        mark = "best" if each.name == found.top.name else ""
        texts = [f"{_monday(each.ended):%Y-%m-%d}", f"{each.value:.6g}", mark, each.name, each.owner, commit]
        cells = row(texts)
        if url := links.get(each.name):
            link_to = {"type": "link", "url": url, "text": each.name}
            line = {"type": "rich_text_section", "elements": [link_to]}
            cells[SWEEP_COLUMN] = {"type": "rich_text", "elements": [line]}
        rows.append(cells)
    return fitting(rows)
