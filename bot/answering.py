"""Questions about one sweep, answered in its turn: the cluster is asked, and a door has no time for it.

What was asked in the sweep's thread is answered there, for all to read; anything else privately, with a file
as a direct message.
"""

import logging
from collections.abc import Sequence

from slack_sdk.errors import SlackApiError

from bot import answers
from bot.asks import named
from bot.messages import Message
from bot.models import Act, Ask, Asker, SweepRecord, UserError
from bot.mrkdwn import CODE_LIMIT, code, plain
from bot.observation import Observation
from bot.outside import WHOLE_LOG, Outside
from bot.request import changed
from bot.slack import NotInChannel, NotTaken
from bot.starting import start
from k8s import kaniko
from k8s.katib import MAIN, Trial, TrialState
from k8s.objects import BUILD_LABEL
from k8s.pods import Pod, read_pod

log = logging.getLogger(__name__)


async def answer(ask: Ask, sweep: SweepRecord, seen: Observation, outside: Outside) -> None:
    """Raises Busy, to be asked again; what Slack does not take is left out, for the sweep must go on."""
    this = _Answer(ask, sweep, seen, outside)
    try:
        match ask.act:
            case Act.STATUS:
                await this.tell(answers.status(sweep))
            case Act.LOGS:
                await this.logs()
            case Act.RESULTS:
                await this.results()
            case Act.TRIALS:
                await this.trials()
            case Act.RERUN:
                await this.rerun()
    except UserError as error:
        await this.tell(plain(str(error)), private=True)
    except (NotInChannel, NotTaken, SlackApiError) as error:
        log.warning("an answer about %s is not taken by Slack: %s", sweep.id, error)


class _Answer:
    def __init__(self, ask: Ask, sweep: SweepRecord, seen: Observation, outside: Outside) -> None:
        self.ask, self.sweep, self.seen, self.outside = ask, sweep, seen, outside

    async def tell(self, message: Message | str, *, private: bool = False) -> None:
        ask, sweep, slack = self.ask, self.sweep, self.outside.slack
        if not (ask.in_thread and sweep.thread):
            await slack.whisper(ask.user, message, ask.response_url)
        elif private:
            await slack.whisper(ask.user, message, "", sweep.asker.channel, sweep.thread)
        else:
            await slack.say(sweep.asker.channel, sweep.thread, message)

    async def _with_file(self, message: Message | str, text: str, name: str, content: str) -> None:
        ask, sweep, slack = self.ask, self.sweep, self.outside.slack
        if ask.in_thread and sweep.thread:
            await self.tell(message)
            await slack.share(sweep.asker.channel, sweep.thread, text, name, content, at_once=True)
        else:
            await self.tell(answers.with_note(message, f"{text}: the file comes as a direct message."))
            await slack.hand(ask.user, text, name, content)

    async def results(self) -> None:
        if self.sweep.plan is None:
            raise UserError(f"`{self.sweep.id}` has no trials.")
        message, sheet = answers.results(self.sweep, self.sweep.plan.space, self.seen.trials)
        if sheet:
            text = f"All trials of `{self.sweep.id}`"
            await self._with_file(message, text, f"{self.sweep.id}.csv", sheet)
        else:
            await self.tell(message)

    async def logs(self) -> None:
        what, namespace, pod, container = await self._pod()
        if not pod:
            raise UserError(f"{what}: its pod is gone, and the log with it.")
        whole = await self.outside.tail(namespace, pod, container, WHOLE_LOG)
        message = answers.logs(what, whole)
        if len(whole) > CODE_LIMIT:
            await self._with_file(message, f"The whole log of {what}", f"{pod}.log", whole)
        else:
            await self.tell(message)

    async def _pod(self) -> tuple[str, str, str, str]:
        """What has a log, in words; the namespace and the pod, if that is still there; and the container."""
        if not (self.seen.trials or self.ask.trial):
            return await self._build_pod()
        trial = self._trial()
        pods = [pod for pod in self.seen.pods if pod.job == trial.name]
        plan = self.sweep.plan
        namespace = plan.experiment_ref.namespace if plan else ""
        return f"trial {code(trial.name)}", namespace, pods[-1].name if pods else "", MAIN

    def _trial(self) -> Trial:
        """The one that was named; else one that runs, or failed, or is the best, in this order."""
        found = named(self.seen.trials, self.ask.trial)
        if self.ask.trial:
            if len(found) != 1:
                names = ", ".join(f"`{t.name}`" for t in self.seen.trials[:10]) or "none"
                raise UserError(
                    f"`{self.ask.trial}` is not one trial of `{self.sweep.id}`; there are: {names}."
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
            pods = await self.outside.cluster.list("Pod", build.ref.namespace, labels=labels)
            if pods:
                pod = read_pod(pods[-1], kaniko.CONTAINER)
                container = pod.init_failed or kaniko.CONTAINER
                return f"the build of the {build.role}", build.ref.namespace, pod.name, container
        raise UserError(f"`{self.sweep.id}` has nothing yet that writes a log.")

    async def trials(self) -> None:
        view = answers.running_trials(self.sweep, self.seen.live, _running(self.seen.pods))
        await self.outside.slack.update_view(self.ask.view, view)

    async def rerun(self) -> None:
        ask, sweep, outside = self.ask, self.sweep, self.outside
        request = changed(sweep.request, ask.changes, outside.config)
        asker = Asker(
            user=ask.user,
            user_name=ask.user_name,
            channel=ask.channel or sweep.asker.channel,
            response_url=ask.response_url,
        )
        made = await start(
            outside.store,
            outside.queue,
            request,
            asker,
            namespace=sweep.namespace,
            delivery=ask.delivery,
            now=outside.now(),
        )
        await self.tell(f"On it: `{made.id}` does again what `{sweep.id}` did.", private=True)


def _running(pods: Sequence[Pod]) -> set[str]:
    return {pod.job for pod in pods if pod.running_since and not pod.finished}
