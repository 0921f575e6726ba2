"""Post an ended sweep's results into its thread: the end with the table of the best trials, then the picture,
results.csv, and best.yaml, with the command in its head.
"""

import asyncio
from datetime import timedelta

from bot.core.errors import RetryAfterError
from bot.core.events import Event
from bot.core.record import SweepRecord
from bot.platform.slack.blocks import section
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import code
from bot.sweep.charts.drawing import Picture, PictureWaitError
from bot.sweep.clients import SweepClients
from bot.sweep.reports import bisect
from bot.sweep.reports.end_results import best_pictures, keep_results, posted_results
from bot.sweep.results.csv_file import csv_text
from bot.sweep.results.models import SweepResults
from bot.sweep.results.table import best_table
from bot.sweep.spaces.describe import BEST_SPACE, best_yaml
from bot.text.wording import counted

MISSING = "The picture couldn't be drawn."
RUNS_TIMEOUT = timedelta(minutes=1)  # since the end; then the files are posted without URLs and curves


async def post_end(sweep: SweepRecord, event: Event, clients: SweepClients) -> None:
    """Store the results, then post the end with the table of the best trials."""
    results = await keep_results(sweep, clients)
    if sweep.request.bisects:
        await clients.queue.add(bisect.item(sweep.id))
    table = best_table(results) if results else None
    parts = [part for part in (event.text, table and table.text) if part]
    above = (section(event.shown or event.text),) if event.text else ()  # an older Sweepbot posted it before
    is_plain = not (table or event.shown)
    blocks = () if is_plain else (*above, *(table.blocks if table else ()))
    message = Message(text="\n".join(parts), blocks=blocks)
    if parts and sweep.thread:
        await clients.slack.reply(sweep.requester.channel, sweep.thread, message, broadcast=event.loud)


async def post_files(sweep: SweepRecord, _: Event, clients: SweepClients) -> None:
    """Post the picture, results.csv, and best.yaml; nothing without a finite objective.

    A sweep that was extended meanwhile posts them at its next end.

    Raises RetryAfterError while MLflow's runs are read, and while the picture is drawn.
    """
    results = await posted_results(sweep, clients) if sweep.phase.final else None
    if results is None or not sweep.thread or all(trial.value is None for trial in results.trials):
        return
    left = (sweep.since + RUNS_TIMEOUT - clients.now()).total_seconds()
    if results.runs_pending and left > 0:
        raise RetryAfterError("MLflow's runs are being completed", left)
    picture = clients.pictures.get(results)
    if picture is None:
        raise PictureWaitError
    files = await asyncio.to_thread(_files, results, picture, sweep.request.repo)
    pictures = await best_pictures(sweep, results, clients)
    text = _comment(results, picture) + (" The best trial's last pictures are below." if pictures else "")
    await clients.slack.upload_files(sweep.requester.channel, sweep.thread, text, [*files, *pictures])
    clients.pictures.forget(results)


def _comment(results: SweepResults, picture: Picture) -> str:
    total = counted(len(results.trials) + results.omitted, "trial")
    by = f" by {code(results.space.metric)}" if results.front else ""
    again = f" {code('best.yaml')} is a space file that runs the best trial{by} again."
    best = again if results.best_trial else ""
    missing = "" if picture.png else f" {MISSING}"
    return f"Results of {code(results.sweep)}: {total} in {code('results.csv')}.{best}{missing}"


def _files(results: SweepResults, picture: Picture, repo: str | None) -> list[File]:
    files = [File(name=f"{results.sweep}.png", content=picture.png, alt=picture.alt)] if picture.png else []
    files.append(File(name="results.csv", content=csv_text(results)))
    if best := results.best_trial:
        space = best_yaml(results.space, best.parameters, *_about(results, repo))
        files.append(File(name=f"{BEST_SPACE}.yaml", content=space))
    return files


def _about(results: SweepResults, repo: str | None) -> list[str]:
    best, space = results.best_trial, results.space
    value = "" if best is None or best.value is None else f": {space.metric} {best.value!r}"
    size = f"profile={results.profile} gpus={results.gpus}" if results.profile else f"gpus={results.gpus}"
    size += f" nodes={results.nodes}" if results.nodes > 1 else ""
    size += f" repo={repo}" if repo else ""
    command = f"/sweep branch={results.branch} space={BEST_SPACE} {size}"
    return [
        f"Best trial of {results.sweep}{value}, commit {results.commit[:8]}.",
        f"Commit this file as sweeps/{BEST_SPACE}.yaml, then run: {command}",
    ]
