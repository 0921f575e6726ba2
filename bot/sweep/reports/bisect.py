"""Find the commit that broke a trial: one sweep of one trial after another, each on the middle commit.

A step is a sweep like any other, with a thread of its own; its request says what it is a step of. At its end,
the job of a work item starts the next one, or answers in the thread of the sweep that was bisected.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from bot.core.commands import Command
from bot.core.errors import UserError
from bot.core.record import Phase, SweepRecord
from bot.core.request import Bisection, Notify, Requester, SweepRequest
from bot.core.space import SearchSpace, command_line
from bot.core.work_item import ItemKind, WorkItem
from bot.platform.pod_health.log_cause import LogCause, find_cause
from bot.platform.repos.git import Commit
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.mrkdwn import SHORT_COMMIT, code, commit_text, quoted
from bot.sweep.clients import SweepClients
from bot.sweep.launch.create import start
from bot.sweep.lifecycle.texts import RESULTS
from bot.sweep.model.observation import Observation
from bot.sweep.reports.end_results import current_results
from bot.sweep.results.models import TrialResult
from bot.sweep.spaces.describe import best_yaml
from bot.text.wording import counted
from k8s.katib.status import TrialState
from k8s.objects import SWEEP_LABEL
from k8s.pods import is_trial_pod, read_trial_pod

log = logging.getLogger(__name__)

NAME = "bisect"  # of the steps
END_DELAY = timedelta(seconds=5)  # until the end of a step is looked for again
LOG_LINES = 400
MAX_TRIED = 20  # earlier sweeps whose commit could be an ancestor
MAX_LINE = 200  # characters of a changed line
MAX_DIFF = 2_000  # lines of a file that are compared


def item(sweep_id: str) -> WorkItem:
    return WorkItem(ItemKind.BISECT, sweep_id)


async def begin(sweep: SweepRecord, seen: Observation, command: Command, clients: SweepClients) -> str:
    """Start the first step. Return what to answer. Raises UserError, ApiError, and GitUnavailableError."""
    plan, results = sweep.plan, await current_results(sweep, seen, clients)
    if plan is None or results is None or plan.space.image:
        why = "it uses a prebuilt image" if plan and plan.space.image else "it has no trials"
        raise UserError(f"`{sweep.id}` can't be bisected: {why}.")
    failed = next((each for each in results.trials if each.state is TrialState.FAILED), None)
    if failed is None:
        raise UserError(f"`{sweep.id}` has no failed trial to bisect.")
    url, commits = results.repo_url, list[Commit]()
    async for good in _worked(results.repo_url, plan.space, failed, plan.commit, clients):
        commits = await clients.git.commits(url, good, plan.commit)
        if commits:
            break
    else:
        raise UserError(
            f"No earlier sweep of space `{plan.space.name}` finished a trial with the same values on an "
            f"ancestor of {plan.commit[:SHORT_COMMIT]}. Run it on an older branch or tag first."
        )
    failure = await _failure(sweep, failed.name, clients)
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
    span = f"{counted(len(commits), 'commit')} after {good[:SHORT_COMMIT]}, whose trial finished"
    if len(commits) == 1:
        return await _culprit(bisection, commits, clients)
    step = await _start(base, bisection, commits, requester, sweep.namespace, command.request_id, clients)
    most = (len(commits) - 1).bit_length()
    return f"Bisecting {span}: up to {counted(most, 'trial')}, the first in `{step.id}`."


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
    worked = sweep.phase is Phase.SUCCEEDED and bool(sweep.progress.succeeded)
    if not worked and not (sweep.phase is Phase.FAILED and sweep.progress.failed):
        span = f"{bisection.good[:SHORT_COMMIT]} and {bisection.bad[:SHORT_COMMIT]}"
        text = f":warning: Bisect stopped: {code(sweep.id)} ran no trial of commit "
        text += f"{code(sweep.request.commit[:SHORT_COMMIT])}. The commit that fails is between {span}."
        await _answer(bisection, text, clients)
        return None
    if worked:
        bisection = replace(bisection, good=sweep.request.commit)
    else:
        cause = await _failure(sweep, "", clients)
        bisection = replace(bisection, bad=sweep.request.commit)
        if cause.path:
            bisection = replace(bisection, path=cause.path, row=cause.row)
    bisection = replace(bisection, trials=bisection.trials + 1)
    commits = await clients.git.commits(bisection.url, bisection.good, bisection.bad)
    if not commits:  # on another side of a merge
        good, bad = bisection.good[:SHORT_COMMIT], bisection.bad[:SHORT_COMMIT]
        text = (
            f":warning: Bisect stopped: commit {code(bad)} fails as well, but doesn't contain {code(good)}, "
        )
        await _answer(
            bisection, f"{text}whose trial finished. Run it on a commit that both contain.", clients
        )
    elif len(commits) > 1:
        begun_by = sweep.request_id.rpartition("/")[0]
        arguments = sweep.requester, sweep.namespace, begun_by, clients
        await _start(sweep.request, bisection, commits, *arguments)
    else:
        await _answer(bisection, await _culprit(bisection, commits, clients), clients)
    return None


async def _start(
    request: SweepRequest,
    bisection: Bisection,
    commits: list[Commit],
    requester: Requester,
    namespace: str,
    request_id: str,
    clients: SweepClients,
) -> SweepRecord:
    """Start the step in the middle: of 2 commits, the first. `request_id`: of the bisect."""
    middle = commits[(len(commits) - 1) // 2].name
    return await start(
        clients.store,
        clients.queue,
        replace(request, commit=middle, bisects=bisection),
        requester,
        namespace=namespace,
        request_id=f"{request_id}/{middle}",  # the same if the job is repeated
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


async def changed_line(bisection: Bisection, clients: SweepClients) -> tuple[str, str] | None:
    """Return place and text of a line that the commit changed in the file of the traceback; None without one.

    In a container, the path has directories above the repository's.
    """
    parts = PurePosixPath(bisection.path).parts[-6:]
    for start_at in range(len(parts)):
        path = "/".join(parts[start_at:]).lstrip("/")
        if not path or (after := await clients.git.read(bisection.url, bisection.bad, path)) is None:
            continue
        before = await clients.git.read(bisection.url, bisection.good, path) or ""
        return await asyncio.to_thread(_nearest_change, path, before, after, bisection.row)
    return None


def _nearest_change(path: str, before: str, after: str, row: int) -> tuple[str, str] | None:
    """Return the change nearest to a line of the later version."""
    old, new = before.splitlines()[:MAX_DIFF], after.splitlines()[:MAX_DIFF]
    found: list[tuple[int, str]] = []
    for kind, low, _, start_at, end_at in SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal":
            added = [(number + 1, f"+{new[number]}") for number in range(start_at, end_at)]
            found += added or [(start_at + 1, f"-{old[low]}")]
    if not found:
        return None
    place, line = min(found, key=lambda each: abs(each[0] - row))
    return f"{path}:{place}", line[:MAX_LINE]


async def _failure(sweep: SweepRecord, trial: str, clients: SweepClients) -> LogCause:
    """Return what the log of a trial names, "" for any failed one; an empty cause without a log."""
    there = clients.of(sweep.cluster)
    namespace = sweep.plan.experiment_ref.namespace if sweep.plan else sweep.namespace
    found = await there.trials.list("Pod", namespace, labels=f"{SWEEP_LABEL}={sweep.id}", only=is_trial_pod)
    pods = [pod for pod in map(read_trial_pod, found) if pod.exit and pod.exit[0] and trial in {"", pod.job}]
    if not pods:
        return LogCause()
    return await asyncio.to_thread(
        find_cause, await there.tail(namespace, pods[0].name, pods[0].container, LOG_LINES)
    )


async def _answer(bisection: Bisection, text: str, clients: SweepClients) -> None:
    try:
        await clients.slack.reply(bisection.channel, bisection.thread, text)
    except (NotInChannelError, MessageRejectedError) as error:
        log.warning("Slack rejected the result of bisecting %s: %s", bisection.sweep, error)
