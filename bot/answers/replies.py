"""Answer questions about one sweep from a worker: reading the cluster takes longer than Slack's 3 seconds.

Questions from the sweep's thread are answered there, visible to all; others privately, with files sent by
direct message.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from slack_sdk.errors import SlackApiError

from bot.answers import messages
from bot.answers.worker_logs import worker_logs
from bot.clients import Clients
from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.plan import SweepPlan
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.launch.command_line import changed
from bot.launch.create import start
from bot.launch.promote import promoted
from bot.lifecycle.commands import named
from bot.lifecycle.observation import Observation
from bot.reports.compare import compare
from bot.reports.curves import Picture, draw_curves
from bot.reports.end_results import current_results
from bot.results.combined_seeds import earlier_seeds
from bot.results.csv_file import csv_text
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.message import Message
from bot.slack.mrkdwn import MAX_CODE_SIZE, code, plain
from k8s import kaniko
from k8s.api.errors import ClusterUnreachableError
from k8s.api.logs import WHOLE_LOG
from k8s.katib.status import Trial, TrialState
from k8s.objects import BUILD_LABEL
from k8s.pods import read_pod

log = logging.getLogger(__name__)


async def answer(command: Command, sweep: SweepRecord, seen: Observation, clients: Clients) -> None:
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
    def __init__(self, command: Command, sweep: SweepRecord, seen: Observation, clients: Clients) -> None:
        self.command, self.sweep, self.seen, self.clients = command, sweep, seen, clients
        self.by_action: dict[Action, Callable[[], Awaitable[None]]] = {
            Action.STATUS: self.status,
            Action.LOGS: self.logs,
            Action.RESULTS: self.results,
            Action.TRIALS: self.trials,
            Action.CURVES: self.curves,
            Action.COMPARE: self.compare,
            Action.RERUN: self.rerun,
            Action.PROMOTE: self.promote,
        }

    async def send(self, message: Message | str, *, private: bool = False) -> None:
        command, sweep, slack = self.command, self.sweep, self.clients.slack
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
        picture = await draw_curves(self.sweep, self.seen, self.clients)
        await self._picture(picture, f"{self.sweep.id}-curves.png")

    async def _picture(self, picture: Picture, name: str) -> None:
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        if command.in_thread and sweep.thread:
            file = (picture.text, name, picture.png)
            await slack.upload(sweep.requester.channel, sweep.thread, *file, alt=picture.alt, at_once=True)
        else:
            await self.send(f"{picture.text}: picture sent by direct message.")
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
        message = messages.logs(source, whole)
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
        message = messages.logs(f"trial {code(trial.name)}, {found.shown}", found.log)
        await self._with_file(message, f"{found.title} of {trial.name}", f"{trial.name}.log", found.whole)

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
