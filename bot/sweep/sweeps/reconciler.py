"""Reconcile one sweep: observe, apply its waiting commands in order, decide, save, change the cluster, post
messages; mask its errors, and the reason of its quarantine.

Every step is idempotent, because a worker can die at any call: objects have deterministic names, a stale save
is rejected, and an event leaves the outbox only after Slack has accepted it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile

from redis.exceptions import RedisError

from bot.core.commands import Action, Command
from bot.core.errors import PermanentError
from bot.core.ids import SWEEP_ID
from bot.core.record import LimitCheck, Phase, SweepRecord
from bot.core.stored_format import NewerFormatError
from bot.platform.registry.client import ImageMissingError
from bot.platform.registry.images import ImageRef
from bot.platform.runtime.audit import write_checked_again, write_new_entries
from bot.platform.slack.client import SlackBusyError
from bot.platform.storage import sweep_configmap
from bot.platform.storage.sweeps import OutdatedCheckError, StaleRecordError
from bot.platform.storage.work_queue import Lease, LeaseLostError
from bot.sweep.answers.replies import answer
from bot.sweep.answers.stored_answers import answer_about_newer_version, answer_without_record
from bot.sweep.builds.provenance import record
from bot.sweep.clients import SweepClients
from bot.sweep.decisions.advance import advance, apply_cancels, requeue_after
from bot.sweep.decisions.required_changes import needs_fresh_read, required_changes
from bot.sweep.feature_table import FEATURES, check_readable
from bot.sweep.lifecycle import texts
from bot.sweep.lifecycle.building import built
from bot.sweep.lifecycle.trials import submitted
from bot.sweep.lifecycle.trouble import quarantine, release, report_restored, resolve_trouble
from bot.sweep.model import engine
from bot.sweep.model.observation import Observation
from bot.sweep.sweeps.both import both
from bot.sweep.sweeps.durable_record import DurableRecord
from bot.sweep.sweeps.notifier import Notifier, open_thread, rename
from bot.sweep.sweeps.observe import observe
from bot.sweep.sweeps.transient_errors import TRANSIENT_ERRORS, is_final, report_error
from bot.sweep.sweeps.unconfirmed import CHECK_SECONDS
from bot.sweep.sweeps.unreachable import report_unreachable
from k8s.api.errors import ApiError, ClusterUnreachableError
from k8s.objects import BUILD_LABEL, Manifest

log = logging.getLogger(__name__)


async def handle(lease: Lease, clients: SweepClients) -> timedelta | None:
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


async def reconcile(lease: Lease, clients: SweepClients) -> timedelta | None:
    """Take the leased sweep one step further. Return when to requeue it; None: only when it is woken.

    Raises what a retry can fix; cancels are applied first, and an error that lasts is reported.
    """
    sweep, commands = await _find(lease.item.key, clients)
    if sweep is None:
        return await _reject_commands(lease, clients)
    check_readable(sweep)
    this = _Reconcile(lease, clients.of(sweep.cluster))
    try:
        return await this.run(sweep, commands)
    except ClusterUnreachableError as failure:
        return await report_unreachable(lease, failure, this.notifier, this.save, clients, this.respond)
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


async def report_quarantine(lease: Lease, clients: SweepClients) -> None:
    """Report that the sweep is no longer processed: its reconciles killed workers or hit a bug.

    Calls Slack and Redis only.
    """
    sweep = await clients.store.get(lease.item.key)
    if sweep is None:
        return
    this = _Reconcile(lease, clients)
    if not sweep.quarantined:
        sweep = await this.save(quarantine(sweep, clients.mask(lease.quarantined)))
    await this.notifier.update_parent(await this.notifier.post_outbox(sweep))
    if this.notifier.pause:
        raise SlackBusyError(this.notifier.pause.total_seconds())


async def _find(sweep_id: str, clients: SweepClients) -> tuple[SweepRecord | None, list[Command]]:
    """Return the record and its commands from Redis; if Redis lost it, restore it from its ConfigMap."""
    record, commands = await clients.store.with_commands(sweep_id)
    if record or not SWEEP_ID.fullmatch(sweep_id):  # it becomes part of a URL
        return record, commands
    found = await clients.cluster.get(sweep_configmap.ref(clients.settings.k8s_namespace, sweep_id))
    if restored := sweep_configmap.restorable(found):
        await clients.store.restore(report_restored(restored))
    return await clients.store.with_commands(sweep_id)


async def _reject_commands(lease: Lease, clients: SweepClients) -> timedelta | None:
    """Answer commands on a sweep that never existed, or whose record was deleted.

    Return when to look again for a sweep that `serve` can still restore. The commands are read first: a sweep
    that is stored after they are read can't be theirs.
    """
    sweep_id = lease.item.key
    commands = await clients.store.commands(sweep_id)
    is_kept = any(not each.action.is_question for each in commands)
    if is_kept and not await clients.store.is_unknown(sweep_id, lease):
        return timedelta(seconds=CHECK_SECONDS)
    for command in commands:
        await answer_without_record(command, sweep_id, clients)
        await clients.store.remove_commands(sweep_id, [command], lease)
    log.info("unknown sweep: %s", sweep_id)
    return None


def _first_cancels(sweep: SweepRecord, waiting: list[Command]) -> list[Command]:
    """Return the cancels to apply first: a cluster or git host that doesn't respond must not delay them.

    Of an ended sweep, one after an extension isn't, as it is about the trials that this would start.
    """
    if sweep.phase.final:
        waiting = [*takewhile(lambda each: each.action is not Action.EXTEND, waiting)]
    return [each for each in waiting if each.action is Action.CANCEL]


class _Reconcile:
    def __init__(self, lease: Lease, clients: SweepClients) -> None:
        self.lease, self.clients = lease, clients
        self.notifier = Notifier(clients, self.save)
        self.record = DurableRecord(clients, self.save)
        self.ahead: Observation | None = None  # of the build that follows the opened thread

    async def run(self, sweep: SweepRecord, waiting: list[Command]) -> timedelta | None:
        if sweep.quarantined:
            sweep = await self.save(release(sweep))
        cancels = _first_cancels(sweep, waiting)
        sweep = await self._apply_cancels(sweep, cancels)
        now = self.clients.now()
        questions = [command for command in waiting if command.action.is_read_only]
        commands = tuple(each for each in waiting if not (each.action.is_read_only or each in cancels))
        before, seen = await self._claim_and_observe(sweep, commands)
        if before.cluster != sweep.cluster:  # restored: these clients are of another cluster
            return timedelta(0)
        seen, sweep = await self._advanced(before, seen, commands, now)
        write_new_entries(before, sweep)
        if sweep != before:
            sweep = await self.save(sweep, seen.limit_checks)
        await self.clients.store.remove_commands(sweep.id, commands, self.lease)
        if sweep.phase is before.phase:  # else the observation is of another phase
            sweep = await self._act(sweep, seen)
        for question in questions:
            await self.respond(question, sweep, seen)
            await self.clients.store.remove_commands(sweep.id, [question], self.lease)
        await self.notifier.remove_stray_buttons(sweep, waiting)
        sweep = await self._open_results(await self.notifier.publish(sweep))
        sweep = await self.record.keep(sweep)
        if (resolved := resolve_trouble(sweep)) != sweep:
            sweep = await self.notifier.publish(await self.save(resolved))
        if self.ahead and sweep.phase is Phase.BUILDING:
            return await self.run(sweep, [])
        again = requeue_after(before, sweep, now, seen.observe_again_in)
        times = (self.notifier.pause, self.notifier.redraw, again)
        return min((each for each in times if each is not None), default=None)

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
        if self.ahead:
            seen, self.ahead = self.ahead, None
            return sweep, seen
        seeing = observe(sweep, commands, self.clients, fresh=bool(commands))
        claimed, seen = await both(self._claim(sweep), seeing)
        is_restored = sweep.phase is Phase.STOPPING and claimed is not sweep
        if claimed.phase is not sweep.phase or is_restored:  # renamed, refused, or restored
            seen = await observe(claimed, commands, self.clients, fresh=bool(commands))
        return claimed, seen

    async def _advanced(
        self, before: SweepRecord, seen: Observation, commands: tuple[Command, ...], now: datetime
    ) -> tuple[Observation, SweepRecord]:
        """Advance; if a change needs it, once more from a direct read of the API server."""
        reached = replace(before, unreachable=None) if before.unreachable else before
        after = advance(reached, seen, self.clients.config, now)
        if seen.cached and needs_fresh_read(before, after, seen, now):
            seen = await observe(before, commands, self.clients, fresh=True)
            after = advance(reached, seen, self.clients.config, now)
        return seen, after

    async def report_failure(self, error: Exception) -> None:
        """Report an error that lasts, and post what this reconcile saved before it failed."""
        sweep = await self.clients.store.get(self.lease.item.key)
        if sweep is None:
            return
        after = report_error(sweep, error, self.lease.failures, self.clients.mask, self.clients.now())
        if after != sweep:
            after = await self.save(after)
        if after.outbox or after.outage.what:
            await self.notifier.update_parent(await self.notifier.post_outbox(after))
        if self.notifier.redraw:
            await self.clients.wake(after.id, after=self.notifier.redraw)

    async def _apply_cancels(self, sweep: SweepRecord, cancels: list[Command]) -> SweepRecord:
        after = apply_cancels(sweep, cancels, self.clients.config, self.clients.now())
        write_new_entries(sweep, after)
        if after != sweep:
            after = await self.save(after)
        if cancels:  # also a second click, which changes nothing
            await self.clients.store.remove_commands(sweep.id, cancels, self.lease)
        return await self.record.keep(after) if after.phase is Phase.STOPPING else after

    async def save(self, sweep: SweepRecord, checks: Sequence[LimitCheck] = ()) -> SweepRecord:
        """Save the record. Texts of other systems in it were masked before they were cut and formatted."""
        if sweep.reason:
            sweep = replace(sweep, reason=self.clients.mask(sweep.reason))
        return await self.clients.store.save(sweep, self.lease, checks)

    async def _act(self, sweep: SweepRecord, seen: Observation) -> SweepRecord:
        if sweep.phase is Phase.OPENING and not sweep.thread:
            return await self._open(sweep)
        todo = required_changes(sweep, seen, self.clients.now())
        for patch in todo.patch:
            try:
                await self.clients.trials.merge(patch.ref, patch.body, subresource=patch.subresource)
            except ApiError as error:
                if patch.optional and error.permanent:
                    log.info("rejected patch of %s %s: %s", patch.ref.kind, patch.ref.name, error)
                    continue
                given_up = self._given_up(sweep, seen, error)
                if given_up is None:
                    raise
                return await self.save(given_up)
        for delete in todo.delete:
            at = self.clients.cluster if delete.build else self.clients.trials
            await at.delete(delete.ref, uid=delete.uid, wait=delete.wait)
        phase = sweep.phase
        for manifest in todo.create:
            if sweep.phase is phase:  # else the cluster rejected one, and the sweep stops
                sweep = await self._create(sweep, manifest)
        return await self._compose(sweep, *todo.compose) if todo.compose else sweep

    async def _open(self, sweep: SweepRecord) -> SweepRecord:
        """Open the thread while the registry and the builds are observed; the next step uses that."""
        opening = open_thread(sweep, self.clients, self.record, self.save)
        if sweep.holds:
            return await opening
        seeing = observe(replace(sweep, phase=Phase.BUILDING), (), self.clients)
        opened, seen = await asyncio.gather(opening, seeing, return_exceptions=True)
        if isinstance(opened, BaseException):
            raise opened
        self.ahead = None if isinstance(seen, BaseException) else seen  # the next reconcile raises it
        return opened

    def _given_up(self, sweep: SweepRecord, seen: Observation, error: ApiError) -> SweepRecord | None:
        """Return the record without what needed a patch that the cluster rejected; None: try it again."""
        now = self.clients.now()
        if not is_final(error, sweep, now):
            return None
        why = self.clients.mask(error.message)
        own = (each.rejected(sweep, seen, why, now) for each in FEATURES if each.rejected)
        return next((record for record in own if record), None)

    async def _claim(self, sweep: SweepRecord) -> SweepRecord:
        return await self.record.claim(sweep) or await rename(sweep, self.clients, self.save)

    async def _create(self, sweep: SweepRecord, manifest: Manifest) -> SweepRecord:
        is_build = BUILD_LABEL in manifest["metadata"].get("labels", {})
        if manifest["kind"] == engine.EXPERIMENT:
            await self.clients.results.ready(sweep)
        try:
            made = await (self.clients.cluster if is_build else self.clients.trials).create(manifest)
        except ApiError as error:
            if error.exists:
                return sweep  # created by an earlier reconcile or another sweep; observed next
            now = self.clients.now()
            if not is_final(error, sweep, now):
                raise
            event = texts.submit_refused(manifest["kind"], self.clients.mask(error.message))
            return await self.save(sweep.fail(f"The cluster rejected the {manifest['kind']}", now, event))
        if is_build:
            uids = {manifest["metadata"]["name"]: made["metadata"]["uid"]}
            return await self.save(built(sweep, uids=sweep.building.uids | uids))
        return await self.save(submitted(sweep)) if manifest["kind"] == engine.EXPERIMENT else sweep

    async def _compose(
        self, sweep: SweepRecord, to: ImageRef, below: ImageRef, above: ImageRef
    ) -> SweepRecord:
        try:
            digest = await self.clients.registry.compose(to, below, above)
            await record(to, digest, self.clients)
        except ImageMissingError:  # deleted since it was observed
            sweep = await self.save(built(sweep, digests={}))
        await self.clients.wake(sweep.id)
        return sweep

    async def _open_results(self, sweep: SweepRecord) -> SweepRecord:
        """Create the MLflow experiment before the first run needs it; the sweep continues without MLflow."""
        if sweep.results_url or sweep.phase not in {Phase.BUILDING, Phase.PENDING, Phase.RUNNING}:
            return sweep
        if url := await self.clients.results.open(sweep):
            return await self.notifier.update_parent(await self.save(replace(sweep, results_url=url)))
        return sweep
