"""Find the commit that broke a trial (`/sweep bisect`): one sweep of one trial after another, each on the
middle commit; its answers and refusals.

A step is a sweep like any other, with a thread of its own; its request says what it is a step of. At its end,
the job of a work item starts the next one, or answers in the thread of the sweep that was bisected.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from bot.core.commands import Command
from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.record import Phase, SweepRecord
from bot.core.request import Bisection, Notify, Requester, SweepRequest, is_team
from bot.core.space import SearchSpace, command_line
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.config.policy import muting
from bot.platform.repos.git import Commit
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.mrkdwn import SHORT_COMMIT, code, commit_text, plain, quoted, unmentioned
from bot.sweep.clients import SweepClients
from bot.sweep.launch.command_line import TABLE
from bot.sweep.launch.create import start
from bot.sweep.launch.options import BISECT
from bot.sweep.lifecycle.texts import RESULTS
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import with_owner
from bot.sweep.reports.bisect_evidence import cause_of, changed_line, is_lost, latest_pods
from bot.sweep.reports.end_results import current_results
from bot.sweep.results.models import TrialResult
from bot.sweep.spaces.describe import best_yaml
from bot.text.wording import counted, listed
from k8s.engine import TrialState

log = logging.getLogger(__name__)

NAME = "bisect"  # of the steps
STOPPED = ":warning: Bisect stopped"
END_DELAY = timedelta(seconds=5)  # until the end of a step is looked for again
MAX_TRIED = 20  # earlier sweeps whose commit could be an ancestor
MAX_LOST = 3  # runs of one commit that the cluster stopped
MAX_SKIPPED = 10  # commits that don't build


def item(sweep_id: str) -> WorkItem:
    return WorkItem(ItemKind.BISECT, sweep_id)


async def begin(sweep: SweepRecord, seen: Observation, command: Command, clients: SweepClients) -> str:
    """Start the first step. Return what to answer. Raises UserError, ApiError, and GitUnavailableError."""
    plan, results = sweep.plan, await current_results(sweep, seen, clients)
    if plan is None or results is None or plan.space.image:
        why = "it uses a prebuilt image" if plan and plan.space.image else "it has no trials"
        raise UserError(f"`{sweep.id}` can't be bisected: {why}.")
    if plan.branches:
        raise UserError(f"`{sweep.id}` can't be bisected: it ran several branches. Bisect a sweep of one.")
    failed = next((each for each in results.trials if each.state is TrialState.FAILED), None)
    if failed is None:
        raise UserError(f"`{sweep.id}` has no failed trial to bisect.")
    url, given = results.repo_url, TABLE.read(BISECT, command.changes).values().get("good", "")
    if given:
        good, commits = await clients.git.commits(url, given, plan.commit)
        if not commits:
            history = f"the history of {plan.commit[:SHORT_COMMIT]}, whose trial failed"
            raise UserError(f'good= must be an earlier commit in {history}; got "{given}".')
    else:
        good, commits = await _last_good(url, plan, failed, clients)
    failure = await cause_of(sweep, await latest_pods(sweep, failed.name, clients), clients)
    bisection = Bisection(
        sweep=sweep.id,
        channel=sweep.requester.channel,
        thread=sweep.thread or "",
        url=url,
        good=good,
        bad=plan.commit,
        path=failure.path,
        row=failure.row,
        parameters=failed.parameters,
        commits=len(commits),
    )
    requester = Requester(
        user=command.user, user_name=command.user_name, channel=bisection.channel, response_url=""
    )
    base = step_request(sweep.request, plan.space, failed.parameters)
    if len(commits) == 1:
        return await _culprit(bisection, commits, clients)
    middle = _middle(commits, bisection)
    step = await _start(base, bisection, middle, requester, sweep.namespace, command.request_id, clients)
    most = counted((len(commits) - 1).bit_length(), "trial")
    span = f"{counted(len(commits), 'commit')} after {code(good[:SHORT_COMMIT])}"
    known = "" if given else ", whose trial finished"
    return f"Bisecting {span}{known}: up to {most}, the first in `{step.id}`."


def step_request(request: SweepRequest, space: SearchSpace, parameters: dict[str, str]) -> SweepRequest:
    """Return the request for one trial with these parameters, on a commit to be set."""
    return SweepRequest(
        branch=request.branch,
        space=request.space,
        gpus=request.gpus,
        nodes=request.nodes,
        profile=request.profile,
        cluster=request.cluster,
        repo=request.repo,
        queue=request.queue,
        priority=request.priority,
        name=NAME,
        gate=False,
        notify=Notify.NONE,
        text=best_yaml(space, parameters),
    )


async def _last_good(
    url: str, plan: SweepPlan, failed: TrialResult, clients: SweepClients
) -> tuple[str, list[Commit]]:
    """Return the latest commit known to work, and those after it. Raises UserError if there is none."""
    async for good in _worked(url, plan.space, failed, plan.commit, clients):
        _, commits = await clients.git.commits(url, good, plan.commit)
        if commits:
            return good, commits
    raise UserError(
        f"No earlier sweep of space `{plan.space.name}` finished a trial with the same values on an ancestor "
        f"of {plan.commit[:SHORT_COMMIT]}. Name a commit that works, as in `bisect good=COMMIT`, or run the "
        "sweep on an older branch or tag first."
    )


async def _worked(
    url: str, space: SearchSpace, failed: TrialResult, commit: str, clients: SweepClients
) -> AsyncIterator[str]:
    """Yield the commits on which the same trial finished, the latest sweep's first."""
    found = []
    async for each in clients.kept_results.of_space(space.name):
        worked = any(
            t.state is TrialState.SUCCEEDED and t.parameters == failed.parameters for t in each.trials
        )
        same = each.repo_url == url and command_line(each.space, {}) == command_line(space, {})
        if worked and same and each.commit != commit:
            found.append((each.ended, each.commit))
    for _, good in sorted(found, reverse=True)[:MAX_TRIED]:
        yield good


async def follow(sweep_id: str, clients: SweepClients) -> timedelta | None:
    """Start the next step after one has ended, or answer. Return when to run again; None: no more.

    The end of the step comes first: while it waits for Slack, it queues this again. Raises ApiError and
    GitUnavailableError.
    """
    sweep = await clients.store.get(sweep_id)
    bisection = sweep.request.bisects if sweep else None
    if sweep is None or bisection is None or sweep.request.commit is None or not sweep.phase.final:
        return None
    if any(event.kind == RESULTS for event in sweep.outbox):
        return END_DELAY
    try:
        answer = await _next(sweep, bisection, sweep.request.commit, clients)
    except UserError as error:  # a force-push removed the commits
        answer = f"{STOPPED}: {plain(str(error))}"
    if answer:
        await _answer(sweep, bisection, answer, clients)
    return None


async def _next(sweep: SweepRecord, bisection: Bisection, commit: str, clients: SweepClients) -> str:
    """Start the next step, or return the answer. Raises UserError, ApiError, and GitUnavailableError."""
    tried = code(commit[:SHORT_COMMIT])
    span = f"{code(bisection.good[:SHORT_COMMIT])} and {code(bisection.bad[:SHORT_COMMIT])}"
    if sweep.phase is Phase.SUCCEEDED and sweep.progress.succeeded:
        bisection = replace(bisection, good=commit, trials=bisection.trials + 1, lost=0)
    elif sweep.phase is Phase.FAILED and sweep.progress.failed:
        pods = await latest_pods(sweep, "", clients)
        if is_lost(pods):
            bisection = replace(bisection, lost=bisection.lost + 1)
        else:
            cause = await cause_of(sweep, pods, clients)
            bisection = replace(bisection, bad=commit, trials=bisection.trials + 1, lost=0)
            bisection = replace(bisection, path=cause.path, row=cause.row) if cause.path else bisection
    elif sweep.phase is Phase.FAILED and sweep.image is None and sweep.building.started:  # else declined
        bisection = replace(bisection, skipped=(*bisection.skipped, commit))
    else:
        why = f": {quoted(sweep.reason)}" if sweep.reason else ""
        text = f"{STOPPED}: {code(sweep.id)} ran no trial of commit {tried}{why}."
        return f"{text} The commit that fails is between {span}."
    if bisection.lost >= MAX_LOST:
        text = f"{STOPPED}: the cluster stopped the trial of commit {tried} {MAX_LOST} times."
        return f"{text} The commit that fails is between {span}."
    _, commits = await clients.git.commits(bisection.url, bisection.good, bisection.bad)
    good, bad = code(bisection.good[:SHORT_COMMIT]), code(bisection.bad[:SHORT_COMMIT])
    if not commits:  # on another side of a merge
        text = f"{STOPPED}: commit {bad} fails as well, but doesn't contain {good}, whose trial finished."
        return f"{text} Run it on a commit that both contain."
    if len(commits) == 1:
        return await _culprit(bisection, commits, clients)
    if not (middle := _middle(commits, bisection)):
        skipped = [code(each.name[:SHORT_COMMIT]) for each in commits if each.name in bisection.skipped]
        text = f"{STOPPED}: the first failing commit is one of the {len(commits)} after {good} up to {bad}."
        return f"{text} No image could be built of {listed(skipped)}."
    begun_by = sweep.request_id.partition(f"/{commit}")[0]
    arguments = sweep.requester, sweep.namespace, begun_by, clients
    await _start(sweep.request, bisection, middle, *arguments)
    return ""


def _middle(commits: list[Commit], bisection: Bisection) -> str:
    """Return the commit to try, of 2 the first; "" if none is left that could be built."""
    left = [place for place, each in enumerate(commits[:-1]) if each.name not in bisection.skipped]
    if not left or len(bisection.skipped) >= MAX_SKIPPED:
        return ""
    return commits[min(left, key=lambda place: abs(place - (len(commits) - 1) // 2))].name


async def _start(
    request: SweepRequest,
    bisection: Bisection,
    commit: str,
    requester: Requester,
    namespace: str,
    request_id: str,
    clients: SweepClients,
) -> SweepRecord:
    """Start a step. `request_id`: of the bisect."""
    again = f"/{bisection.lost}" if bisection.lost else ""
    return await start(
        clients.store,
        clients.queue,
        replace(request, commit=commit, bisects=bisection),
        requester,
        namespace=namespace,
        request_id=f"{request_id}/{commit}{again}",  # the same if the job is repeated
        now=clients.now(),
    )


async def _culprit(bisection: Bisection, commits: list[Commit], clients: SweepClients) -> str:
    """Return the answer: the commit, its author, and what it changed in the file that fails."""
    commit = commits[-1]
    text = f":white_check_mark: First failing commit: {commit_text(commit.name, quoted(commit.subject))} by "
    text += f"*{quoted(commit.author, 80)}*, of {counted(bisection.commits, 'commit')}, found with "
    text += f"{counted(bisection.trials, 'trial')}. Its parent {code(bisection.good[:SHORT_COMMIT])} works."
    found = await changed_line(bisection, clients)
    return f"{text}\n{code(found[0])} {code(found[1])}" if found else text


async def _answer(sweep: SweepRecord, bisection: Bisection, answer: str, clients: SweepClients) -> None:
    """Reply in the thread of the bisected sweep, with a mention of who asked: it can have taken hours.

    If Slack rejects that, such as in an archived channel, they get the answer directly.
    """
    asked, muted = sweep.requester.user, muting(bisection.sweep, clients.config)
    text = unmentioned(with_owner(sweep, answer), muted)
    try:
        await clients.slack.reply(bisection.channel, bisection.thread, text)
    except (NotInChannelError, MessageRejectedError) as error:
        log.warning("Slack rejected the result of bisecting %s: %s", bisection.sweep, error)
        if is_team(asked) or asked in muted:
            return
        note = (
            f"Sweepbot can't post in the thread of {code(bisection.sweep)} (Slack error {code(str(error))})."
        )
        with suppress(NotInChannelError, MessageRejectedError):  # such as of a deactivated user
            await clients.slack.notify(asked, f"{answer}\n{note}")
