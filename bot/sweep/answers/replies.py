"""Answer questions about one sweep from a worker: reading the cluster takes longer than Slack's 3 seconds.

Questions from the sweep's thread are answered there, visible to all; others privately, with files sent by
direct message.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from slack_sdk.errors import SlackApiError

from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.platform.clients import Clients
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.message import Message
from bot.platform.slack.mrkdwn import MAX_CODE_SIZE, code, plain
from bot.sweep.answers import messages
from bot.sweep.clients import SweepClients
from bot.sweep.decisions.commands import named
from bot.sweep.launch.command_line import changed
from bot.sweep.launch.create import start
from bot.sweep.launch.promote import promoted
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import linked
from bot.sweep.reports import bisect
from bot.sweep.reports.compare import compare
from bot.sweep.reports.curves import Picture, also_logged, draw_curves
from bot.sweep.reports.end_results import current_results
from bot.sweep.reports.trial_pictures import no_pictures, trial_pictures
from bot.sweep.results.combined_seeds import earlier_seeds
from bot.sweep.results.csv_file import csv_text
from bot.sweep.results.log_curves import log_query
from k8s import kaniko
from k8s.api.errors import ClusterUnreachableError
from k8s.api.logs import WHOLE_LOG
from k8s.engine import Trial, TrialState
from k8s.objects import BUILD_LABEL
from k8s.pods import Pod, read_pod

log = logging.getLogger(__name__)


async def answer(command: Command, sweep: SweepRecord, seen: Observation, clients: SweepClients) -> None:
    """Post the answer; one that Slack rejects is only logged, because the sweep must continue.

    Raises SlackBusyError: answer again later.
    """
    reply = _Reply(command, sweep, seen, clients)
    try:
        await reply.by_action[command.action]()
    except UserError as error:
        await reply.send(plain(str(error)), private=True)
    except ClusterUnreachableError as failure:  # perhaps of another sweep that the question is about
        await reply.send(f"Can't answer now: {plain(str(failure))}. Try again later.", private=True)
    except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
        log.warning("Slack rejected an answer about %s: %s", sweep.id, error)


class _Reply:
    def __init__(
        self, command: Command, sweep: SweepRecord, seen: Observation, clients: SweepClients
    ) -> None:
        self.command, self.sweep, self.seen, self.clients = command, sweep, seen, clients
        self.by_action: dict[Action, Callable[[], Awaitable[None]]] = {
            Action.STATUS: self.status,
            Action.LOGS: self.logs,
            Action.RESULTS: self.results,
            Action.TRIALS: self.trials,
            Action.CURVES: self.curves,
            Action.SHOW: self.show,
            Action.COMPARE: self.compare,
            Action.RERUN: self.rerun,
            Action.PROMOTE: self.promote,
            Action.BISECT: self.bisect,
        }

    async def send(self, message: Message | str, *, private: bool = False) -> None:
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        if isinstance(message, str):
            message = linked(message, await self.clients.store.listed())
        if not (command.in_thread and sweep.thread):
            await slack.post_ephemeral(command.user, message, command.response_url)
        elif private:
            await slack.post_ephemeral(command.user, message, "", sweep.requester.channel, sweep.thread)
        else:
            await slack.reply(sweep.requester.channel, sweep.thread, message)

    async def _with_file(self, message: Message | str, text: str, name: str, content: str) -> None:
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        if command.in_thread and sweep.thread:
            await self.send(message)
            await slack.upload(sweep.requester.channel, sweep.thread, text, name, content, at_once=True)
        else:
            await self.send(messages.with_note(message, f"{text}: file sent by direct message."))
            await slack.send_file(command.user, text, name, content)

    async def status(self) -> None:
        await self.send(messages.status(self.sweep))

    async def results(self) -> None:
        if self.sweep.plan is None:
            raise UserError(f"`{self.sweep.id}` has no trials.")
        found = await current_results(self.sweep, self.seen, self.clients)
        if found:
            message, sheet = messages.results(self.sweep, found), await asyncio.to_thread(csv_text, found)
            text = f"All trials of `{self.sweep.id}`"
            await self._with_file(message, text, f"{self.sweep.id}.csv", sheet)
        else:
            await self.send(messages.no_results(self.sweep))

    async def curves(self) -> None:
        picture = await draw_curves(self.sweep, self.seen, self.clients, self.command.metric)
        await self._picture(picture, f"{self.sweep.id}-curves.png")

    async def show(self) -> None:
        plan = self.sweep.plan
        if plan is None or not self.seen.trials:
            raise UserError(f"`{self.sweep.id}` has no trials yet.")
        best = self.sweep.progress.best
        trial = best.trial if best and not self.command.trial else self._trial().name
        turn = self.clients.pictures.encoding
        files = await trial_pictures(trial, self.seen.pods, plan, self.clients.trials, turn)
        if not files:
            raise UserError(no_pictures(trial, plan, is_running=trial in self.seen.running))
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        text = f"Pictures of trial {code(trial)}"
        if command.in_thread and sweep.thread:
            await slack.upload_files(sweep.requester.channel, sweep.thread, text, files, at_once=True)
        else:
            await self.send(f"{text}: sent by direct message.")
            for file in files:
                await slack.send_file(command.user, text, file.name, file.content, alt=file.alt)

    async def _picture(self, picture: Picture, name: str) -> None:
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        if command.in_thread and sweep.thread:
            file = (f"{picture.text}\n{picture.note}".strip(), name, picture.png)
            await slack.upload(sweep.requester.channel, sweep.thread, *file, alt=picture.alt, at_once=True)
        else:
            sent = f"{picture.text}: picture sent by direct message."
            await self.send(messages.with_note(sent, picture.note))
            await slack.send_file(command.user, picture.text, name, picture.png, alt=picture.alt)

    async def logs(self) -> None:
        if self.sweep.plan and self.sweep.plan.nodes > 1 and (self.seen.trials or self.command.trial):
            await self._worker_logs(self.sweep.plan)
            return
        source, namespace, pod, container = await self._pod()
        if not pod:
            raise UserError(f"No log for {source}: its pod was deleted.")
        clients = self.clients.home if self._is_about_build else self.clients
        whole = await clients.tail(namespace, pod, container, WHOLE_LOG)
        message = messages.with_note(messages.logs(source, whole), await self._also_logged())
        if len(whole) > MAX_CODE_SIZE:
            await self._with_file(message, f"Full log of {source}", f"{pod}.log", whole)
        else:
            await self.send(message)

    async def _worker_logs(self, plan: SweepPlan) -> None:
        trial = self._trial()
        pods = [pod for pod in self.seen.pods if pod.job == trial.name]
        if not pods:
            raise UserError(f"No log for trial {code(trial.name)}: its pods were deleted.")
        found = await worker_logs(pods, plan.experiment_ref.namespace, plan.nodes, self.clients)
        log = messages.logs(f"trial {code(trial.name)}, {found.shown}", found.log)
        message = messages.with_note(log, await self._also_logged())
        await self._with_file(message, f"{found.title} of {trial.name}", f"{trial.name}.log", found.whole)

    async def _also_logged(self) -> str:
        """Return which other metrics the trial logs; "" if unknown."""
        plan = self.sweep.plan
        if plan is None or not plan.has_reader or self._is_about_build:
            return ""
        trial = self._trial().name
        if not (query := log_query(plan, self.seen.pods, {trial})):
            return ""
        query = replace(query, cluster=self.clients.trials)
        found = await self.clients.live.logged(self.sweep.id, query)
        return also_logged(found[trial].names) if trial in found else ""

    async def _pod(self) -> tuple[str, str, str, str]:
        """Return what the log is of, for users; its namespace; its pod, "" if deleted; and its container."""
        if self._is_about_build:
            return await self._build_pod()
        trial = self._trial()
        pods = [pod for pod in self.seen.pods if pod.job == trial.name]
        plan = self.sweep.plan
        namespace = plan.experiment_ref.namespace if plan else ""
        what = f"trial {code(trial.name)}"
        return (what, namespace, pods[-1].name, pods[-1].container) if pods else (what, namespace, "", "")

    @property
    def _is_about_build(self) -> bool:
        return not (self.seen.trials or self.command.trial)

    def _trial(self) -> Trial:
        """Return the named trial; else one with a pod, preferring running, then failed, then the best."""
        found = named(self.seen.trials, self.command.trial)
        if self.command.trial:
            if len(found) != 1:
                names = ", ".join(f"`{t.name}`" for t in self.seen.trials[:10]) or "none"
                where = f"exactly one trial of `{self.sweep.id}`"
                raise UserError(f"`{self.command.trial}` doesn't match {where}. Trials: {names}.")
            return found[0]
        with_pod = {pod.job for pod in self.seen.pods}
        best = self.sweep.progress.best
        return max(
            self.seen.trials,
            key=lambda t: (
                t.name in with_pod,
                t.name in self.seen.running,
                t.state is TrialState.FAILED,
                best is not None and t.name == best.trial,
            ),
        )

    async def _build_pod(self) -> tuple[str, str, str, str]:
        builds = self.sweep.plan.builds if self.sweep.plan else ()
        for build in reversed(builds):
            labels = f"{BUILD_LABEL}={build.ref.name}"
            pods = await self.clients.cluster.list("Pod", build.ref.namespace, labels=labels)
            if pods:
                pod = read_pod(pods[-1], kaniko.BUILD_CONTAINER)
                container = pod.init_failed or kaniko.BUILD_CONTAINER
                return f"the build of the {build.role.label}", build.ref.namespace, pod.name, container
        raise UserError(f"`{self.sweep.id}` has no logs yet.")

    async def trials(self) -> None:
        view = messages.running_trials(self.sweep, self.seen)
        await self.clients.slack.update_view(self.command.view, view)

    async def compare(self) -> None:
        message, picture = await compare([self.sweep.id, *self.command.changes.split()], self.clients)
        await self.send(message)
        if picture:
            await self._picture(picture, "comparison.png")

    async def rerun(self) -> None:
        request = changed(self.sweep.request, self.command.changes, self.clients.config)
        await self._start(request, "rerun")

    async def promote(self) -> None:
        request = promoted(self.sweep, self.command.changes, self.clients.config)
        await self._start(request, "promotion")

    async def bisect(self) -> None:
        await self.send(await bisect.begin(self.sweep, self.seen, self.command, self.clients))

    async def _start(self, request: SweepRequest, what: str) -> None:
        command, sweep, clients = self.command, self.sweep, self.clients
        requester = Requester(
            user=command.user,
            user_name=command.user_name,
            channel=command.channel or sweep.requester.channel,
            response_url=command.response_url,
        )
        new = await start(
            clients.store,
            clients.queue,
            request,
            requester,
            namespace=sweep.namespace,
            request_id=command.request_id,
            now=clients.now(),
            earlier_seeds=earlier_seeds(sweep, request),
        )
        await self.send(f"Sweep `{new.id}` queued: a {what} of `{sweep.id}`.", private=True)


# The Job and the Training Operator delete pods that still run when the trial ends.
NO_POD = "(no log: the pod doesn't exist; Kubernetes deletes pods that are still running when the trial ends)"


@dataclass(frozen=True, kw_only=True)
class WorkerLogs:
    shown: str  # `worker 3 of 4`: the one that failed first, else the first
    log: str  # its log
    title: str  # of `whole`: whose logs it has
    whole: str  # of all workers, each below a heading; NO_POD for those without a pod


async def worker_logs(pods: Sequence[Pod], namespace: str, nodes: int, clients: Clients) -> WorkerLogs:
    """Return the ends of the logs, together as long as one whole log. `pods`: of one trial, at least one."""
    latest = {pod.index: pod for pod in pods}
    found = [latest[index] for index in sorted(latest)]
    lines = max(WHOLE_LOG // nodes, 1)
    tails = (clients.tail(namespace, pod.name, pod.container, lines) for pod in found)
    logs = dict(zip(sorted(latest), await asyncio.gather(*tails), strict=True))
    shown = _failed_first(found) or found[0]
    return WorkerLogs(
        shown=f"worker {shown.index + 1} of {nodes}",
        log=logs[shown.index],
        title=f"Logs of {f'{len(found)} of {nodes}' if len(found) < nodes else 'all'} workers",
        whole="\n\n".join(
            f"==> {_name(index, nodes, latest)} <==\n{logs.get(index, NO_POD)}" for index in range(nodes)
        ),
    )


def _name(index: int, nodes: int, pods: Mapping[int, Pod]) -> str:
    pod = f", {pods[index].name}" if index in pods else ""
    return f"Worker {index + 1} of {nodes}{pod}"


def _failed_first(pods: Sequence[Pod]) -> Pod | None:
    failed = [pod for pod in pods if pod.exit and pod.exit[0] and pod.ended and not pod.deleted]
    return min(failed, key=lambda pod: str(pod.ended), default=None)
