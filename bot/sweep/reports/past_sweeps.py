"""Answer `/sweep compare`, `/sweep history`, and the API from the stored results of ended sweeps and from
git, and refuse sweeps without results (texts: `results/comparison.py`, `history.py` there; picture:
`charts/comparison.py`).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from bot.core.errors import UserError
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.repos.git_commands import GitUnavailableError
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import code
from bot.sweep.charts.comparison import alt_text, png
from bot.sweep.clients import SweepClients
from bot.sweep.model.texts import linked
from bot.sweep.reports.curves import Picture
from bot.sweep.reports.end_results import stored_results
from bot.sweep.results.comparison import Commits, comparable, comparison
from bot.sweep.results.history import history, past_sweep
from bot.sweep.results.history import message as history_message
from bot.sweep.results.models import SweepResults


async def compare(ids: Sequence[str], clients: SweepClients) -> tuple[Message, Picture | None]:
    """Return the comparison, and a picture if the objectives are the same. Raises UserError."""
    link = partial(linked, sweeps=await clients.store.listed())
    sweeps, message = await comparison_of(ids, clients, link)
    if not comparable(sweeps) or not all(each.space.names_best for each in sweeps):
        return message, None
    text = f"Best {code(sweeps[0].space.metric)} so far of {', '.join(f'`{each}`' for each in ids)}"
    return message, Picture(text=link(text), alt=alt_text(sweeps), png=await png(sweeps))


async def comparison_of(
    ids: Sequence[str], clients: SweepClients, link: Callable[[str], str]
) -> tuple[list[SweepResults], Message]:
    """Return the sweeps' results, and the message; `link` links the sweeps in it. Raises UserError."""
    sweeps = [await ended_results(each, clients) for each in ids]
    commits = [await _commits(old, new, clients) for old, new in pairwise(sweeps)]
    return sweeps, comparison(sweeps, commits, link)


async def ended_results(sweep_id: str, clients: SweepClients) -> SweepResults:
    """Return what was stored at the sweep's end. Raises UserError if there is nothing."""
    record = await clients.store.get(sweep_id)
    if record and not record.phase.final:
        raise UserError(f"`{sweep_id}` hasn't ended. Compare it once it has.")
    results = await stored_results(sweep_id, clients)
    if results is None or (record and record.request_id != results.request_id):
        raise UserError(f"`{sweep_id}` has no stored results. Find sweeps with `/sweep list`.")
    return results


async def _commits(old: SweepResults, new: SweepResults, clients: SweepClients) -> Commits:
    if old.repo_url != new.repo_url or old.commit == new.commit:
        return Commits()
    try:
        return Commits(await clients.git.between(old.repo_url, old.commit, new.commit))
    except (UserError, GitUnavailableError) as error:
        return Commits(error=clients.mask(str(error)))


async def answer_history(space: str, clients: SweepClients) -> None:
    """Answer all waiting `/sweep history` with one read, and a call of Slack for each link.

    Raises ApiError and UnreachableError.
    """
    key = str(WorkItem(ItemKind.HISTORY, space))
    commands = await clients.store.commands(key)
    if not commands:
        return
    found = [past_sweep(each) async for each in clients.kept_results.of_space(space)]
    past = [each for each in found if each]
    chosen = await asyncio.to_thread(history, past)
    threads = [each for each in chosen.shown.values() if each.thread] if chosen else []
    urls = await asyncio.gather(*(clients.slack.permalink(each.channel, each.thread) for each in threads))
    links = {each.name: url for each, url in zip(threads, urls, strict=True)}
    for command in commands:
        await clients.answer(command, key, history_message(space, chosen, links))
