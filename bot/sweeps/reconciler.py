"""Reconcile one sweep: observe, decide, save, change the cluster, post messages.

Every step is idempotent, because a worker can die at any call: objects have deterministic names, a stale save
is rejected, and an event leaves the outbox only after Slack has accepted it.
"""

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from redis.exceptions import RedisError

from bot.answers.newer_version import answer_about_newer_version
from bot.answers.replies import answer
from bot.answers.stored_answers import answer_without_record
from bot.builds.provenance import record
from bot.clients import Clients
from bot.core.both import both
from bot.core.commands import Action, Command
from bot.core.errors import PermanentError
from bot.core.events import Event, EventKind
from bot.core.ids import SWEEP_ID
from bot.core.limit_check import LimitCheck
from bot.core.record import Phase, SweepRecord
from bot.core.stored_format import NewerFormatError
from bot.lifecycle.disruptions import with_disruptions
from bot.lifecycle.freshness import needs_fresh_read
from bot.lifecycle.observation import Observation
from bot.lifecycle.phases import (
    advance,
    apply_cancels,
    extension_refused,
    fail,
    requeue_after,
    submitted,
)
from bot.lifecycle.required_changes import required_changes
from bot.lifecycle.trouble import quarantine, release, report_restored, resolve_trouble
from bot.registry.client import ImageMissingError
from bot.registry.images import ImageRef
from bot.runtime.audit import write_checked_again, write_new_entries
from bot.slack.client import SlackBusyError
from bot.storage import sweep_configmap
from bot.storage.sweeps import OutdatedCheckError, StaleRecordError
from bot.storage.work_queue import Lease, LeaseLostError
from bot.sweeps.durable_record import DurableRecord
from bot.sweeps.notifier import Notifier
from bot.sweeps.observe import observe
from bot.sweeps.observe_capacity import observe_capacity
from bot.sweeps.observe_gate import observe_gate
from bot.sweeps.observe_live import observe_live
from bot.sweeps.observe_nodes import observe_nodes
from bot.sweeps.observe_queue import observe_queue
from bot.sweeps.open_thread import open_thread, rename
from bot.sweeps.transient_errors import TRANSIENT_ERRORS, report_error
from bot.sweeps.unreachable import report_unreachable, seen_again
from k8s.api.errors import ApiError, ClusterUnreachableError
from k8s.objects import BUILD_LABEL, Manifest

log = logging.getLogger(__name__)


async def handle(lease: Lease, clients: Clients) -> timedelta | None:
    """Reconcile the leased sweep, or report its quarantine: the worker's handler of sweeps.

    Raises PermanentError, with its text masked, for errors that a retry isn't expected to fix.
    """
    try:
        if lease.quarantined:
            await report_quarantine(lease, clients)
            return None
        return await reconcile(lease, clients)
    except NewerFormatError:
        await answer_about_newer_version(lease, clients)
        raise
    except TRANSIENT_ERRORS:
        raise
    except Exception as error:
        raise PermanentError(clients.mask(f"{type(error).__name__}: {error}")) from error


async def reconcile(lease: Lease, clients: Clients) -> timedelta | None:
    """Take the leased sweep one step further. Return when to requeue it; None: only when it is woken.

    Raises what a retry can fix; cancels are applied first, and an error that lasts is reported.
    """
    sweep = await _find(lease.item.key, clients)
    if sweep is None:
        await _reject_commands(lease.item.key, clients)
        return None
    this = _Reconcile(lease, clients.of(sweep.cluster))
    try:
        return await this.run(sweep)
    except ClusterUnreachableError as failure:
        return await report_unreachable(sweep.id, failure, this.notifier, this.save, clients, this.respond)
    except SlackBusyError as busy:
        return timedelta(seconds=busy.seconds)
    except OutdatedCheckError:
        write_checked_again(sweep.id)
        return timedelta(0)
    except (NewerFormatError, StaleRecordError, LeaseLostError, RedisError):
        raise
    except Exception as error:
        await this.report_failure(error)
        raise


async def report_quarantine(lease: Lease, clients: Clients) -> None:
    """Report that the sweep is no longer processed: its reconciles killed workers or hit a bug.

    Calls Slack and Redis only.
    """
    sweep = await clients.store.get(lease.item.key)
    if sweep is None:
        return
    this = _Reconcile(lease, clients)
    if not sweep.quarantined:
        sweep = await this.save(quarantine(sweep, lease.quarantined))
    await this.notifier.update_parent(await this.notifier.post_outbox(sweep))
    if this.notifier.pause:
        raise SlackBusyError(this.notifier.pause.total_seconds())


async def _find(sweep_id: str, clients: Clients) -> SweepRecord | None:
    """Return the record from Redis; if Redis lost it, restore it from its ConfigMap."""
    if record := await clients.store.get(sweep_id):
        return record
    if not SWEEP_ID.fullmatch(sweep_id):  # it becomes part of a URL
        return None
    found = await clients.cluster.get(sweep_configmap.ref(clients.settings.k8s_namespace, sweep_id))
    if restored := sweep_configmap.restorable(found):
        await clients.store.restore(report_restored(restored))
    return await clients.store.get(sweep_id)


async def _reject_commands(sweep_id: str, clients: Clients) -> None:
    """Answer commands on a sweep that never existed, or whose record was deleted."""
    commands = await clients.store.commands(sweep_id)
    for command in commands:
        await answer_without_record(command, sweep_id, clients)
        await clients.store.remove_commands(sweep_id, [command])
    log.info("unknown sweep: %s", sweep_id)


class _Reconcile:
    def __init__(self, lease: Lease, clients: Clients) -> None:
        self.lease, self.clients = lease, clients
        self.notifier = Notifier(clients, self.save)
        self.record = DurableRecord(clients, self.save)

    async def run(self, sweep: SweepRecord) -> timedelta | None:
        waiting = await self.clients.store.commands(sweep.id)
        if sweep.quarantined:
            sweep = await self.save(release(sweep))
        sweep = await self._apply_cancels(sweep, waiting)
        now = self.clients.now()
        questions = [command for command in waiting if command.action.is_read_only]
        commands = tuple(
            command
            for command in waiting
            if not (command.action.is_read_only or command.action is Action.CANCEL)
        )
        before, seen = await self._claim_and_observe(sweep, commands)
        seen, sweep = await self._advanced(before, seen, commands, now)
        write_new_entries(before, sweep)
        if sweep != before:
            sweep = await self.save(sweep, seen.limit_check)
        await self.clients.store.remove_commands(sweep.id, commands)
        if sweep.phase is before.phase:  # else the observation is of another phase
            sweep = await self._act(sweep, seen)
        for question in questions:
            await self.respond(question, sweep, seen)
            await self.clients.store.remove_commands(sweep.id, [question])
        await self.notifier.remove_stray_buttons(sweep, waiting)
        sweep = await self.record.keep(await self.notifier.publish(sweep))
        if (resolved := resolve_trouble(sweep)) != sweep:
            sweep = await self.notifier.publish(await self.save(resolved))
        await self._open_results(sweep)
        soon, again = self.notifier.pause, requeue_after(before, sweep, now, seen.observe_again_in)
        return min(soon, again) if soon and again is not None else soon or again

    async def respond(self, question: Command, sweep: SweepRecord, seen: Observation) -> None:
        """Answer a question. A bug in an answer is reported to who asked: it must not stop the sweep."""
        try:
            await answer(question, sweep, seen, self.clients)
        except TRANSIENT_ERRORS:
            raise
        except Exception:
            log.exception("can't answer %s about %s", question.action, sweep.id)
            text = (
                f"Couldn't answer about `{sweep.id}`: internal error. *Fix:* Ask an admin to check the log."
            )
            await self.clients.slack.post_ephemeral(question.user, text, question.response_url)

    async def _claim_and_observe(
        self, sweep: SweepRecord, commands: tuple[Command, ...]
    ) -> tuple[SweepRecord, Observation]:
        """Claim the name while git is read, which changes nothing."""
        seeing = self._observe(sweep, commands, fresh=bool(commands))
        claimed, seen = await both(self._claim(sweep), seeing)
        if claimed.phase is not sweep.phase:  # renamed, refused, or restored
            seen = await self._observe(claimed, commands, fresh=bool(commands))
        return claimed, seen

    async def _advanced(
        self, before: SweepRecord, seen: Observation, commands: tuple[Command, ...], now: datetime
    ) -> tuple[Observation, SweepRecord]:
        """Advance; if a change needs it, once more from a direct read of the API server."""
        after = advance(seen_again(before), seen, self.clients.config, now)
        if seen.cached and needs_fresh_read(before, after, seen, now):
            seen = await self._observe(before, commands, fresh=True)
            after = advance(seen_again(before), seen, self.clients.config, now)
        return seen, after

    async def _observe(
        self, sweep: SweepRecord, commands: tuple[Command, ...], *, fresh: bool
    ) -> Observation:
        seen = await observe(sweep, commands, self.clients, fresh=fresh)
        seen = await observe_gate(sweep, await observe_live(sweep, seen, self.clients), self.clients)
        seen = with_disruptions(sweep, await observe_queue(sweep, seen, self.clients))
        seen = await observe_nodes(sweep, seen, self.clients)
        return await observe_capacity(sweep, seen, self.clients)

    async def report_failure(self, error: Exception) -> None:
        """Report an error that lasts, and post what this reconcile saved before it failed."""
        sweep = await self.clients.store.get(self.lease.item.key)
        if sweep is None:
            return
        after = report_error(sweep, error, self.lease.failures, self.clients.mask)
        if after != sweep:
            after = await self.save(after)
        if after.outbox or after.unavailable:
            await self.notifier.update_parent(await self.notifier.post_outbox(after))

    async def _apply_cancels(self, sweep: SweepRecord, waiting: list[Command]) -> SweepRecord:
        """Apply cancels first: a cluster or git host that doesn't respond must not delay them."""
        cancels = [command for command in waiting if command.action is Action.CANCEL]
        after = apply_cancels(sweep, cancels, self.clients.config, self.clients.now())
        write_new_entries(sweep, after)
        if after != sweep:
            after = await self.save(after)
        if cancels:  # also a second click, which changes nothing
            await self.clients.store.remove_commands(sweep.id, cancels)
        return await self.record.keep(after) if after.phase is Phase.STOPPING else after

    async def save(self, sweep: SweepRecord, check: LimitCheck | None = None) -> SweepRecord:
        """Save the record with masked texts: an error can quote the cluster or a library."""
        mask = self.clients.mask
        outbox = tuple(replace(each, text=mask(each.text), detail=mask(each.detail)) for each in sweep.outbox)
        sweep = replace(sweep, outbox=outbox, reason=mask(sweep.reason))
        return await self.clients.store.save(sweep, self.lease, check)

    async def _act(self, sweep: SweepRecord, seen: Observation) -> SweepRecord:
        if sweep.phase is Phase.OPENING:
            return await open_thread(sweep, self.clients, self.record, self.save)
        todo = required_changes(sweep, seen, self.clients.now())
        for patch in todo.patch:
            try:
                await self.clients.trials.merge(patch.ref, patch.body, subresource=patch.subresource)
            except ApiError as error:
                if patch.optional and error.permanent:
                    log.info("rejected patch of %s %s: %s", patch.ref.kind, patch.ref.name, error)
                    continue
                if seen.open or not (sweep.extending and error.permanent):
                    raise  # a gate's first trial can fail just before it opens: observed next
                return await self.save(extension_refused(sweep, error.message, self.clients.now()))
        for delete in todo.delete:
            at = self.clients.cluster if delete.build else self.clients.trials
            await at.delete(delete.ref, uid=delete.uid, wait=delete.wait)
        phase = sweep.phase
        for manifest in todo.create:
            if sweep.phase is phase:  # else the cluster rejected one, and the sweep stops
                sweep = await self._create(sweep, manifest)
        return await self._compose(sweep, *todo.compose) if todo.compose else sweep

    async def _claim(self, sweep: SweepRecord) -> SweepRecord:
        return await self.record.claim(sweep) or await rename(sweep, self.clients, self.save)

    async def _create(self, sweep: SweepRecord, manifest: Manifest) -> SweepRecord:
        is_build = BUILD_LABEL in manifest["metadata"].get("labels", {})
        if manifest["kind"] == "Experiment":
            await self.clients.results.ready(sweep)
        try:
            made = await (self.clients.cluster if is_build else self.clients.trials).create(manifest)
        except ApiError as error:
            if error.exists:
                return sweep  # created by an earlier reconcile or another sweep; observed next
            if not error.permanent:
                raise
            event = Event(kind=EventKind.SUBMIT_REFUSED, text=manifest["kind"], detail=error.message)
            return await self.save(
                fail(sweep, f"the cluster rejected the {manifest['kind']}", self.clients.now(), event)
            )
        if is_build:
            uids = {manifest["metadata"]["name"]: made["metadata"]["uid"]}
            return await self.save(replace(sweep, build_uids=sweep.build_uids | uids))
        return await self.save(submitted(sweep)) if manifest["kind"] == "Experiment" else sweep

    async def _compose(
        self, sweep: SweepRecord, to: ImageRef, below: ImageRef, above: ImageRef
    ) -> SweepRecord:
        try:
            digest = await self.clients.registry.compose(to, below, above)
            await record(to, digest, self.clients)
        except ImageMissingError:  # deleted since it was observed
            sweep = await self.save(replace(sweep, digests={}))
        await self.clients.wake(sweep.id)
        return sweep

    async def _open_results(self, sweep: SweepRecord) -> None:
        """Create the MLflow experiment before the first run needs it; the sweep continues without MLflow."""
        if sweep.results_url or sweep.phase not in {Phase.BUILDING, Phase.PENDING, Phase.RUNNING}:
            return
        if url := await self.clients.results.open(sweep):
            await self.notifier.update_parent(await self.save(replace(sweep, results_url=url)))
