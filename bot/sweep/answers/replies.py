"""Answer `/sweep status`, `logs`, `results`, `curves`, `show`, and `compare`, in the thread or privately,
with files and links to the sweeps that are named; start the sweeps of `rerun`, `promote`, and `bisect`.

A worker answers: reading the cluster takes longer than Slack's 3 seconds. Questions from the sweep's thread
are answered there, visible to all; others privately, with files sent by direct message.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from slack_sdk.errors import SlackApiError

from bot.core.commands import Action, Command
from bot.core.errors import UserError
from bot.core.record import SweepRecord
from bot.core.request import Requester, SweepRequest
from bot.platform.slack.client import MessageRejectedError, NotInChannelError
from bot.platform.slack.message import File, Message
from bot.platform.slack.mrkdwn import MAX_CODE_SIZE, code, plain
from bot.sweep.answers import messages
from bot.sweep.answers.sweep_log import read_log, trial_of
from bot.sweep.clients import SweepClients
from bot.sweep.decisions.parent_message import summary
from bot.sweep.launch.command_line import changed
from bot.sweep.launch.create import start
from bot.sweep.launch.promote import promoted
from bot.sweep.lifecycle.seeds import earlier_seeds
from bot.sweep.model.observation import Observation
from bot.sweep.model.texts import linked
from bot.sweep.reports import bisect
from bot.sweep.reports.curves import Picture, also_logged, draw_curves
from bot.sweep.reports.end_results import current_results
from bot.sweep.reports.past_sweeps import compare
from bot.sweep.reports.trial_pictures import no_pictures, trial_pictures
from bot.sweep.results.csv_file import csv_text
from bot.sweep.results.log_curves import log_query
from k8s.api.errors import ClusterUnreachableError

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

    async def _send_files(
        self,
        text: str,
        files: Sequence[File],
        private: Message | str,
        *,
        above: Message | str = "",
        note: str = "",
    ) -> None:
        """Post files in the sweep's thread, below `above`; elsewhere, send them directly, after `private`."""
        command, sweep, slack = self.command, self.sweep, self.clients.slack
        if command.in_thread and sweep.thread:
            if above:
                await self.send(above)
            shown = f"{text}\n{note}".strip()
            await slack.upload_files(sweep.requester.channel, sweep.thread, shown, files, at_once=True)
        else:
            await self.send(messages.with_note(private, note))
            for file in files:
                await slack.send_file(command.user, text, file)

    async def _with_file(self, message: Message | str, text: str, name: str, content: str) -> None:
        private = messages.with_note(message, f"{text}: file sent by direct message.")
        await self._send_files(text, [File(name=name, content=content)], private, above=message)

    async def _picture(self, picture: Picture, name: str) -> None:
        file = File(name=name, content=picture.png, alt=picture.alt)
        private = f"{picture.text}: picture sent by direct message."
        await self._send_files(picture.text, [file], private, note=picture.note)

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
            await self.send(f"{summary(self.sweep)}\nKatib has no trials for this sweep.")

    async def curves(self) -> None:
        picture = await draw_curves(self.sweep, self.seen, self.clients, self.command.metric)
        await self._picture(picture, f"{self.sweep.id}-curves.png")

    async def show(self) -> None:
        plan = self.sweep.plan
        if plan is None or not self.seen.trials:
            raise UserError(f"`{self.sweep.id}` has no trials yet.")
        best = self.sweep.progress.best
        wanted = self.command.trial
        trial = best.trial if best and not wanted else trial_of(self.sweep, self.seen, wanted).name
        turn = self.clients.pictures.encoding
        files = await trial_pictures(trial, self.seen.pods, plan, self.clients.trials, turn)
        if not files:
            raise UserError(no_pictures(trial, plan, is_running=trial in self.seen.running))
        text = f"Pictures of trial {code(trial)}"
        await self._send_files(text, files, f"{text}: sent by direct message.")

    async def logs(self) -> None:
        found = await read_log(self.sweep, self.seen, self.command.trial, self.clients)
        message = messages.with_note(
            messages.logs(found.source, found.shown), await self._also_logged(found.trial)
        )
        if found.whole != found.shown or len(found.whole) > MAX_CODE_SIZE:
            await self._with_file(message, found.title, found.file, found.whole)
        else:
            await self.send(message)

    async def _also_logged(self, trial: str) -> str:
        """Return which other metrics the trial logs; "" if unknown."""
        plan = self.sweep.plan
        if plan is None or not plan.has_reader or not trial:
            return ""
        if not (query := log_query(plan, self.seen.pods, {trial}, self.clients.trials)):
            return ""
        found = await self.clients.live.logged(self.sweep.id, query)
        return also_logged(found[trial].names) if trial in found else ""

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
