"""Answer what the HTTP API asks a worker: results, logs, a plan, a comparison, or a space's history, or an
error with its status.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial

from bot.core.errors import UnknownNameError, UserError
from bot.core.record import SweepRecord
from bot.core.space import command_line
from bot.measure.gpus.snapshot_store import SnapshotStore
from bot.platform.pod_health.log_cause import find_cause
from bot.platform.repos.git_commands import GitUnavailableError
from bot.sweep.answers.sweep_log import read_log
from bot.sweep.clients import SweepClients
from bot.sweep.form.preview import facts
from bot.sweep.form.review import review
from bot.sweep.launch.command_line import parse
from bot.sweep.questions import models
from bot.sweep.questions.store import UNKNOWN, About, Answer, Question, Questions
from bot.sweep.reports.end_results import posted_results, stored_results
from bot.sweep.reports.past_sweeps import comparison_of
from bot.sweep.results.comparison import best_trial, comparable
from bot.sweep.results.csv_file import csv_text, ordered
from bot.sweep.results.history import past_sweep
from bot.sweep.results.models import SweepResults
from bot.sweep.results.table import STATES
from bot.sweep.spaces.describe import first_values, launch_flags
from bot.sweep.sweeps.observe import observe
from bot.text.masking import Mask
from bot.text.terminal import without_markup
from k8s.api.errors import ApiError, UnreachableError

log = logging.getLogger(__name__)

MAX_HISTORY = 200  # sweeps in one answer
NUMBER = re.compile(r"[+-]?[0-9.]{1,30}(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
OUTAGES = (GitUnavailableError, ApiError, UnreachableError)


class _DeniedError(Exception):
    """The person can't do this."""


async def answer(question_id: str, clients: SweepClients, questions: Questions, known: SnapshotStore) -> None:
    """Keep the answer, also if it is an error: the caller doesn't wait for a retry."""
    question = await questions.get(question_id)
    if question is None or await questions.answer(question_id):
        return
    answers: dict[About, Callable[[Question, SweepClients], Awaitable[bytes]]] = {
        About.RESULTS: _results,
        About.LOGS: _log,
        About.PLAN: partial(_plan, known=known),
        About.COMPARISON: _comparison,
        About.HISTORY: _history,
    }
    try:
        found = Answer(status=200, body=await answers[question.about](question, clients))
    except UserError as error:
        found = _refused(404 if isinstance(error, UnknownNameError) else 422, error, clients)
    except _DeniedError as error:
        found = _refused(403, error, clients)
    except OUTAGES as error:
        log.warning("can't answer a question about %s: %s", question.about, error)
        found = _refused(503, f"Can't answer now: {error}. Try again in a minute.", clients)
    await questions.put(question_id, found)


def _refused(status: int, error: object, clients: SweepClients) -> Answer:
    return Answer(status=status, body=clients.mask(str(error)).encode())


async def _results(question: Question, clients: SweepClients) -> bytes:
    sweep = await clients.store.get(question.subject)
    found = await (posted_results(sweep, clients) if sweep else stored_results(question.subject, clients))
    if not (found or sweep):
        raise UnknownNameError(UNKNOWN)
    if question.detail == "csv":
        return (await asyncio.to_thread(lambda: clients.mask(csv_text(found)))).encode() if found else b""
    return await asyncio.to_thread(_trials, found, clients.mask)


def _trials(results: SweepResults | None, mask: Mask) -> bytes:
    clean = cache(mask)  # of 20,000 trials, most have the same few texts
    trials = [
        models.Trial(
            name=each.name,
            state=STATES[each.state],
            value=each.value,
            parameters=_masked(each.parameters, clean),
            started=each.started,
            ended=each.ended,
        )
        for each in (ordered(results) if results else ())
    ]
    return models.dumped(models.Trials(trials=trials))


def _masked(parameters: Mapping[str, str], clean: Callable[[str], str]) -> dict[str, str]:
    """Return the parameters without secrets, which no number is."""
    return {name: text if NUMBER.fullmatch(text) else clean(text) for name, text in parameters.items()}


async def _log(question: Question, clients: SweepClients) -> bytes:
    sweep = await _record(question.subject, clients)
    there = clients.of(sweep.cluster)
    found = await read_log(sweep, await observe(sweep, (), there), question.detail, there)
    cause = await asyncio.to_thread(find_cause, found.shown)
    return models.dumped(
        models.Log(source=without_markup(found.source), cause=cause.text or None, log=found.whole)
    )


async def _record(sweep_id: str, clients: SweepClients) -> SweepRecord:
    if (sweep := await clients.store.get(sweep_id)) is None:
        raise UnknownNameError(UNKNOWN)
    return sweep


async def _plan(question: Question, clients: SweepClients, known: SnapshotStore) -> bytes:
    request = parse(question.subject, clients.config)
    if question.requester is None:
        raise ValueError("a question for a plan names who would launch it")
    found = await review(request, question.requester, question.id, clients, known)
    if found.refusal:
        raise _DeniedError(found.refusal)
    plan, space, mask = found.plan, found.plan.space, clients.mask
    shown = facts(request, plan, found.config, found.free, found.over)
    hours = space.trial_hours
    return models.dumped(
        models.Plan(
            branch=request.branch,
            commit=plan.pinned,
            subject=mask(plan.subject),
            cluster=plan.cluster,
            trials=space.max_trials,
            peak_gpus=space.parallel * plan.trial_gpus,
            gpu_hours=space.max_trials * plan.trial_gpus * hours if hours else None,
            facts=[models.Fact(name=name, text=mask(without_markup(text))) for name, text in shown],
            example=mask(command_line(space, first_values(space), **launch_flags(space))),
            notes=[*map(mask, space.notes)],
        )
    )


async def _comparison(question: Question, clients: SweepClients) -> bytes:
    sweeps, message = await comparison_of(question.subject.split(), clients, link=str)
    compared = [_compared(each, clients.mask) for each in sweeps]
    is_comparable = comparable(sweeps) and all(each.space.names_best for each in sweeps)
    text = clients.mask(without_markup(message.text))
    return models.dumped(models.Comparison(sweeps=compared, comparable=is_comparable, text=text))


def _compared(results: SweepResults, mask: Mask) -> models.ComparedSweep:
    best, space = best_trial(results), results.space
    return models.ComparedSweep(
        id=results.sweep,
        metric=space.metric,
        goal=space.goal,
        value=best.value if best else None,
        parameters=_masked(best.parameters, mask) if best else {},
        trials=len(results.trials) + results.omitted,
        branch=results.branch,
        commit=results.commit,
    )


async def _history(question: Question, clients: SweepClients) -> bytes:
    found = [past_sweep(each) async for each in clients.kept_results.of_space(question.subject)]
    latest = sorted((each for each in found if each), key=lambda each: each.ended, reverse=True)
    sweeps = [
        models.PastSweep(
            id=each.name,
            value=each.value,
            metric=each.objective[1],
            goal=each.objective[2],
            owner=each.owner,
            commit=each.commit,
            subject=clients.mask(each.subject),
            trials=each.trials,
            ended=each.ended,
        )
        for each in latest[:MAX_HISTORY]
    ]
    return models.dumped(models.History(sweeps=sweeps))
