"""Questions about one sweep, answered in its turn: the cluster is asked, and a door has no time for it.

What was asked in the sweep's thread is answered there, for all to read; anything else privately, with a file
as a direct message.
"""

import logging
from collections.abc import Sequence

from slack_sdk.errors import SlackApiError

from bot.clients import WHOLE_LOG, Clients
from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.record import SweepRecord
from bot.core.request import Requester
from bot.launch.command_line import changed
from bot.slack.client import MessageRejectedError, NotInChannelError
from bot.slack.message import Message
from bot.slack.mrkdwn import CODE_LIMIT, code, plain
from bot.sweeps import reply_messages
from bot.sweeps.commands import named
from bot.sweeps.create import start
from bot.sweeps.observation import Observation
from k8s import kaniko
from k8s.katib.spec import MAIN
from k8s.katib.status import Trial, TrialState
from k8s.objects import BUILD_LABEL
from k8s.pods import Pod, read_pod

log = logging.getLogger(__name__)


async def answer(command: Command, sweep: SweepRecord, seen: Observation, clients: Clients) -> None:
    """Raises SlackBusyError, to be repeated; what Slack rejects is left out, for the sweep must go on."""
    this = _Answer(command, sweep, seen, clients)
    try:
        match command.action:
            case Action.STATUS:
                await this.tell(reply_messages.status(sweep))
            case Action.LOGS:
                await this.logs()
            case Action.RESULTS:
                await this.results()
            case Action.TRIALS:
                await this.trials()
            case Action.RERUN:
                await this.rerun()
    except UserError as error:
        await this.tell(plain(str(error)), private=True)
    except (NotInChannelError, MessageRejectedError, SlackApiError) as error:
        log.warning("an answer about %s is not taken by Slack: %s", sweep.id, error)


class _Answer:
    def __init__(self, command: Command, sweep: SweepRecord, seen: Observation, clients: Clients) -> None:
        self.command, self.sweep, self.seen, self.clients = command, sweep, seen, clients

    async def tell(self, message: Message | str, *, private: bool = False) -> None:
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        if not (command.in_thread and sweep.thread):
            await slack.post_ephemeral(command.user, message, command.response_url)
        elif private:
            await slack.post_ephemeral(command.user, message, "", sweep.requester.channel, sweep.thread)
        else:
            await slack.say(sweep.requester.channel, sweep.thread, message)

    async def _with_file(self, message: Message | str, text: str, name: str, content: str) -> None:
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        if command.in_thread and sweep.thread:
            await self.tell(message)
            await slack.share(sweep.requester.channel, sweep.thread, text, name, content, at_once=True)
        else:
            await self.tell(reply_messages.with_note(message, f"{text}: the file comes as a direct message."))
            await slack.hand(command.user, text, name, content)

    async def results(self) -> None:
        if self.sweep.plan is None:
            raise UserError(f"`{self.sweep.id}` has no trials.")
        message, sheet = reply_messages.results(self.sweep, self.sweep.plan.space, self.seen.trials)
        if sheet:
            text = f"All trials of `{self.sweep.id}`"
            await self._with_file(message, text, f"{self.sweep.id}.csv", sheet)
        else:
            await self.tell(message)

    async def logs(self) -> None:
        what, namespace, pod, container = await self._pod()
        if not pod:
            raise UserError(f"{what}: its pod is gone, and the log with it.")
        whole = await self.clients.tail(namespace, pod, container, WHOLE_LOG)
        message = reply_messages.logs(what, whole)
        if len(whole) > CODE_LIMIT:
            await self._with_file(message, f"The whole log of {what}", f"{pod}.log", whole)
        else:
            await self.tell(message)

    async def _pod(self) -> tuple[str, str, str, str]:
        """What has a log, in words; the namespace and the pod, if that is still there; and the container."""
        if not (self.seen.trials or self.command.trial):
            return await self._build_pod()
        trial = self._trial()
        pods = [pod for pod in self.seen.pods if pod.job == trial.name]
        plan = self.sweep.plan
        namespace = plan.experiment_ref.namespace if plan else ""
        return f"trial {code(trial.name)}", namespace, pods[-1].name if pods else "", MAIN

    def _trial(self) -> Trial:
        """The one that was named; else one that runs, or failed, or is the best, in this order."""
        found = named(self.seen.trials, self.command.trial)
        if self.command.trial:
            if len(found) != 1:
                names = ", ".join(f"`{t.name}`" for t in self.seen.trials[:10]) or "none"
                raise UserError(
                    f"`{self.command.trial}` is not one trial of `{self.sweep.id}`; there are: {names}."
                )
            return found[0]
        there = {pod.job for pod in self.seen.pods}
        running = {pod.job for pod in self.seen.pods if pod.running_since and not pod.finished}
        best = self.sweep.progress.best
        return max(
            self.seen.trials,
            key=lambda t: (
                t.name in there,
                t.name in running,
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
                pod = read_pod(pods[-1], kaniko.CONTAINER)
                container = pod.init_failed or kaniko.CONTAINER
                return f"the build of the {build.role.label}", build.ref.namespace, pod.name, container
        raise UserError(f"`{self.sweep.id}` has nothing yet that writes a log.")

    async def trials(self) -> None:
        view = reply_messages.running_trials(self.sweep, self.seen.live, _running(self.seen.pods))
        await self.clients.slack.update_view(self.command.view, view)

    async def rerun(self) -> None:
        command, sweep, clients = self.command, self.sweep, self.clients
        request = changed(sweep.request, command.changes, clients.config)
        requester = Requester(
            user=command.user,
            user_name=command.user_name,
            channel=command.channel or sweep.requester.channel,
            response_url=command.response_url,
        )
        made = await start(
            clients.store,
            clients.queue,
            request,
            requester,
            namespace=sweep.namespace,
            request_id=command.request_id,
            now=clients.now(),
        )
        await self.tell(f"On it: `{made.id}` does again what `{sweep.id}` did.", private=True)


def _running(pods: Sequence[Pod]) -> set[str]:
    return {pod.job for pod in pods if pod.running_since and not pod.finished}
