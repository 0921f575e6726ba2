"""One turn of one sweep: look, decide, remember, act, speak.

Whatever a turn does may be done twice, and a worker may die at any call: objects have deterministic names, a
stale save is refused, and a message is struck off the record only after Slack has it.
"""

import logging
from dataclasses import replace
from datetime import timedelta

from aiohttp import ClientError
from redis.exceptions import RedisError
from slack_sdk.errors import SlackApiError

from bot.builds.provenance import record
from bot.clients import Clients
from bot.core.commands import Action, Command
from bot.core.errors import PermanentError
from bot.core.events import Event, EventKind
from bot.core.ids import SWEEP_ID
from bot.core.record import Newer, Phase, SweepRecord
from bot.registry.client import ImageMissingError, RegistryError
from bot.registry.images import Place
from bot.repos.git import GitUnavailableError
from bot.runtime.audit import write_new_entries
from bot.slack.client import SlackBusyError
from bot.slack.mrkdwn import code
from bot.storage import sweep_configmap
from bot.storage.sweeps import StaleRecordError
from bot.storage.work_queue import Lease, LeaseLostError
from bot.sweeps.durable_record import DurableRecord
from bot.sweeps.lifecycle import (
    advance,
    apply_cancels,
    fail,
    not_extended,
    quarantine,
    released,
    report_trouble,
    requeue_after,
    submitted,
    tell_restored,
    trouble_over,
)
from bot.sweeps.notifier import Notifier
from bot.sweeps.observation import Observation
from bot.sweeps.observe import observe
from bot.sweeps.open_thread import open_thread, rename
from bot.sweeps.replies import answer
from bot.sweeps.required_changes import required_changes
from k8s.errors import ApiError, UnreachableError
from k8s.objects import BUILD_LABEL, Manifest

log = logging.getLogger(__name__)

# Errors of the outside, which pass. Any other is a bug or an input that nobody thought of, and comes again.
PASSING = (
    ApiError,
    UnreachableError,
    RegistryError,
    GitUnavailableError,
    SlackApiError,
    SlackBusyError,
    ClientError,
    OSError,
    RedisError,
    Newer,
    StaleRecordError,
    LeaseLostError,
)
ADMITTED = 4  # failures in a row after which people are told; some seven seconds after the first


async def handle(lease: Lease, clients: Clients) -> timedelta | None:
    """Reconcile the leased sweep, or report its quarantine: the worker's handler of sweeps.

    Raises PermanentError, with its text masked, for whatever a retry is not expected to fix.
    """
    try:
        if lease.quarantined:
            await report_quarantine(lease, clients)
            return None
        return await reconcile(lease, clients)
    except PASSING:
        raise
    except Exception as error:
        raise PermanentError(clients.mask(f"{type(error).__name__}: {error}")) from error


async def reconcile(lease: Lease, clients: Clients) -> timedelta | None:
    """Take the leased sweep one step on. Return when to requeue it; None: only when it is woken.

    Raises whatever a retry may fix; even then cancels are applied and lasting trouble is reported.
    """
    sweep = await _find(lease.item.key, clients)
    if sweep is None:
        await _unknown(lease.item.key, clients)
        return None
    this = _Turn(lease, clients)
    try:
        return await this.run(sweep)
    except SlackBusyError as busy:
        return timedelta(seconds=busy.seconds)
    except (StaleRecordError, LeaseLostError, RedisError):
        raise
    except Exception as error:
        await this.report_failure(error)
        raise


async def report_quarantine(lease: Lease, clients: Clients) -> None:
    """Say that its runs killed their workers, or hit a bug, and that no more follow. No cluster call."""
    sweep = await clients.store.get(lease.item.key)
    if sweep is None:
        return
    this = _Turn(lease, clients)
    if not sweep.quarantined:
        sweep = await this.save(quarantine(sweep, lease.quarantined))
    await this.notifier.redraw(await this.notifier.speak(sweep))
    if this.notifier.pause:
        raise SlackBusyError(this.notifier.pause.total_seconds())


async def _find(sweep_id: str, clients: Clients) -> SweepRecord | None:
    if found := await clients.store.get(sweep_id):
        return found
    if not SWEEP_ID.fullmatch(sweep_id):  # it goes into a path of the API
        return None
    address = sweep_configmap.ref(clients.settings.k8s_namespace, sweep_id)
    kept = await clients.cluster.get(address)
    try:
        restored = sweep_configmap.read(kept) if kept and not sweep_configmap.is_retired(kept) else None
    except (KeyError, ValueError):
        log.exception("the ConfigMap %s holds no sweep that can be read", address.name)
        return None
    if restored:
        await clients.store.restore(tell_restored(restored))
    return await clients.store.get(sweep_id)


async def _unknown(sweep_id: str, clients: Clients) -> None:
    """Somebody asked for a sweep that never was, or whose record is gone."""
    commands = await clients.store.commands(sweep_id)
    for command in commands:
        text = f"There is no sweep {code(sweep_id)}; its name stands in the first line of its message."
        await clients.slack.post_ephemeral(command.user, text, command.response_url)
    await clients.store.remove_commands(sweep_id, commands)
    log.info("nobody knows sweep %s", sweep_id)


class _Turn:
    def __init__(self, lease: Lease, clients: Clients) -> None:
        self.lease, self.clients = lease, clients
        self.notifier = Notifier(clients, self.save)
        self.record = DurableRecord(clients, self.save)

    async def run(self, sweep: SweepRecord) -> timedelta | None:
        waiting = await self.clients.store.commands(sweep.id)
        if sweep.quarantined:
            sweep = await self.save(released(sweep))
        before = await self._claimed(await self._cancelled(sweep, waiting))
        now = self.clients.now()
        questions = [command for command in waiting if command.action.is_read_only]
        commands = tuple(
            command
            for command in waiting
            if not (command.action.is_read_only or command.action is Action.CANCEL)
        )
        seen = await observe(before, commands, self.clients)
        sweep = advance(before, seen, self.clients.config, now)
        write_new_entries(before, sweep)
        if sweep != before:
            sweep = await self.save(sweep)
        await self.clients.store.remove_commands(sweep.id, commands)
        if sweep.phase is before.phase:  # else what was seen answers the questions of another phase
            sweep = await self._act(sweep, seen)
        for question in questions:
            await answer(question, sweep, seen, self.clients)
            await self.clients.store.remove_commands(sweep.id, [question])
        await self.notifier.disarm(sweep, waiting)
        sweep = await self.record.keep(await self.notifier.all(sweep))
        if (better := trouble_over(sweep)) != sweep:
            sweep = await self.notifier.speak(await self.save(better))
        await self._results(sweep)
        soon, again = self.notifier.pause, requeue_after(before, sweep, seen.look_in)
        return min(soon, again) if soon and again is not None else soon or again

    async def report_failure(self, error: Exception) -> None:
        """Report an error that keeps coming back, and post what this turn saved before it failed."""
        sweep = await self.clients.store.get(self.lease.item.key)
        if sweep is None:
            return
        after = sweep
        if self.lease.failures >= ADMITTED and isinstance(error, PASSING):
            after = report_trouble(sweep, str(error) or type(error).__name__)
        if after != sweep:
            after = await self.save(after)
        if after.outbox:
            await self.notifier.redraw(await self.notifier.speak(after))

    async def _cancelled(self, sweep: SweepRecord, waiting: list[Command]) -> SweepRecord:
        """Apply cancels first: a cluster or a git host that does not answer must not delay them."""
        cancels = [command for command in waiting if command.action is Action.CANCEL]
        after = apply_cancels(sweep, cancels, self.clients.config, self.clients.now())
        write_new_entries(sweep, after)
        if after != sweep:
            after = await self.save(after)
        if cancels:  # also a second click, which changes nothing
            await self.clients.store.remove_commands(sweep.id, cancels)
        return await self.record.keep(after) if after.phase is Phase.STOPPING else after

    async def save(self, sweep: SweepRecord) -> SweepRecord:
        """Masked: what is said of an error may be the cluster's words, or a library's."""
        mask = self.clients.mask
        outbox = tuple(replace(each, text=mask(each.text), detail=mask(each.detail)) for each in sweep.outbox)
        sweep = replace(sweep, outbox=outbox, reason=mask(sweep.reason))
        return await self.clients.store.save(sweep, self.lease)

    async def _act(self, sweep: SweepRecord, seen: Observation) -> SweepRecord:
        if sweep.phase is Phase.OPENING:
            return await open_thread(sweep, self.clients, self.record, self.save)
        todo = required_changes(sweep, seen, self.clients.now())
        for patch in todo.patch:
            try:
                await self.clients.cluster.merge(patch.ref, patch.body, subresource=patch.subresource)
            except ApiError as error:
                if not (sweep.extending and error.permanent):
                    raise
                return await self.save(not_extended(sweep, error.message, self.clients.now()))
        for delete in todo.delete:
            await self.clients.cluster.delete(delete.ref, uid=delete.uid)
        phase = sweep.phase
        for manifest in todo.create:
            if sweep.phase is phase:  # else one was refused, and no other is wanted any more
                sweep = await self._create(sweep, manifest)
        return await self._compose(sweep, *todo.compose) if todo.compose else sweep

    async def _claimed(self, sweep: SweepRecord) -> SweepRecord:
        return await self.record.claim(sweep) or await rename(sweep, self.clients, self.save)

    async def _create(self, sweep: SweepRecord, manifest: Manifest) -> SweepRecord:
        if manifest["kind"] == "Experiment":
            await self.clients.results.ready(sweep)
        try:
            made = await self.clients.cluster.create(manifest)
        except ApiError as error:
            if error.exists:
                return sweep  # an earlier turn's, or the build of another sweep: the next look tells
            if not error.permanent:
                raise
            said = Event(kind=EventKind.SUBMIT_REFUSED, text=manifest["kind"], detail=error.message)
            return await self.save(
                fail(sweep, f"the cluster refused the {manifest['kind']}", self.clients.now(), said)
            )
        if BUILD_LABEL in manifest["metadata"].get("labels", {}):
            uids = {manifest["metadata"]["name"]: made["metadata"]["uid"]}
            return await self.save(replace(sweep, build_uids=sweep.build_uids | uids))
        return await self.save(submitted(sweep))

    async def _compose(self, sweep: SweepRecord, to: Place, below: Place, above: Place) -> SweepRecord:
        try:
            digest = await self.clients.registry.compose(to, below, above)
            await record(to, digest, self.clients)
        except ImageMissingError:  # somebody has deleted what an earlier look had found
            sweep = await self.save(replace(sweep, digests={}))
        await self.clients.wake(sweep.id)
        return sweep

    async def _results(self, sweep: SweepRecord) -> None:
        """The MLflow experiment exists before the first run needs it; without MLflow the sweep goes on."""
        if sweep.results_url or sweep.phase not in {Phase.BUILDING, Phase.PENDING, Phase.RUNNING}:
            return
        if url := await self.clients.results.open(sweep):
            await self.notifier.redraw(await self.save(replace(sweep, results_url=url)))
