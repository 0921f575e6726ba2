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

from bot import durable
from bot.answering import answer
from bot.audit import tell_new
from bot.chores import chores
from bot.git import GitUnavailable
from bot.identity import SWEEP_ID, candidates
from bot.lifecycle import (
    advance,
    fail,
    hear_cancels,
    look_again,
    not_extended,
    quarantine,
    refuse,
    released,
    submitted,
    tell_restored,
    tell_trouble,
    trouble_over,
)
from bot.messages import Links, parent
from bot.models import Act, Ask, Event, EventKind, Newer, Phase, SweepRecord
from bot.mrkdwn import code
from bot.observation import Observation
from bot.observing import observe
from bot.outside import Outside
from bot.provenance import record
from bot.queue import Lease, LeaseLost
from bot.slack import Busy, NotInChannel
from bot.speaking import Speaking
from bot.store import Stale
from k8s.cluster import ApiError, Unreachable
from k8s.images import Place
from k8s.objects import BUILD_LABEL, Manifest, ref_of
from k8s.registry import Missing, RegistryError

log = logging.getLogger(__name__)

# Errors of the outside, which pass. Any other is a bug or an input that nobody thought of, and comes again.
PASSING = (
    ApiError,
    Unreachable,
    RegistryError,
    GitUnavailable,
    SlackApiError,
    Busy,
    ClientError,
    OSError,
    RedisError,
    Newer,
    Stale,
    LeaseLost,
)
ADMITTED = 4  # failures in a row after which people are told; some seven seconds after the first
CLAIMING = {Phase.RECEIVED, Phase.OPENING}  # the second: records of before the first phase claimed
NOT_THERE = "I'm not in that channel. Type `/invite @sweepbot` there (or the name it has here) and try again."


async def turn(lease: Lease, outside: Outside) -> timedelta | None:
    """Take the sweep `lease.item` one step on; when to look again without being woken.

    Raises what a repetition may mend. Even then a cancel is heard, and trouble that lasts is told.
    """
    sweep = await _find(lease.item, outside)
    if sweep is None:
        await _unknown(lease.item, outside)
        return None
    this = _Turn(lease, outside)
    try:
        return await this.run(sweep)
    except Busy as busy:
        return timedelta(seconds=busy.seconds)
    except (Stale, LeaseLost, RedisError):
        raise
    except Exception as error:
        await this.admit(error)
        raise


async def tell_quarantined(lease: Lease, outside: Outside) -> None:
    """Its turns killed their workers, or failed of a bug, and no more are taken. Asks the cluster nothing."""
    sweep = await outside.store.get(lease.item)
    if sweep is None:
        return
    this = _Turn(lease, outside)
    if not sweep.quarantined:
        sweep = await this.save(quarantine(sweep, lease.quarantined))
    await this.voice.redraw(await this.voice.speak(sweep))
    if this.voice.pause:
        raise Busy(this.voice.pause.total_seconds())


async def _find(sweep_id: str, outside: Outside) -> SweepRecord | None:
    if found := await outside.store.get(sweep_id):
        return found
    if not SWEEP_ID.fullmatch(sweep_id):  # it goes into a path of the API
        return None
    address = durable.ref(outside.settings.k8s_namespace, sweep_id)
    kept = await outside.cluster.get(address)
    try:
        restored = durable.read(kept) if kept and not durable.is_retired(kept) else None
    except (KeyError, ValueError):
        log.exception("the ConfigMap %s holds no sweep that can be read", address.name)
        return None
    if restored:
        await outside.store.restore(tell_restored(restored))
    return await outside.store.get(sweep_id)


async def _unknown(sweep_id: str, outside: Outside) -> None:
    """Somebody asked for a sweep that never was, or whose record is gone."""
    asks = await outside.store.asks(sweep_id)
    for ask in asks:
        text = f"There is no sweep {code(sweep_id)}; its name stands in the first line of its message."
        await outside.slack.whisper(ask.user, text, ask.response_url)
    await outside.store.answered(sweep_id, asks)
    log.info("nobody knows sweep %s", sweep_id)


class _Turn:
    def __init__(self, lease: Lease, outside: Outside) -> None:
        self.lease, self.outside = lease, outside
        self.voice = Speaking(outside, self.save)

    async def run(self, sweep: SweepRecord) -> timedelta | None:
        waiting = await self.outside.store.asks(sweep.id)
        if sweep.quarantined:
            sweep = await self.save(released(sweep))
        before = await self._claimed(await self._cancelled(sweep, waiting))
        now = self.outside.now()
        questions = [ask for ask in waiting if ask.act.leaves_alone]
        asks = tuple(ask for ask in waiting if not (ask.act.leaves_alone or ask.act is Act.CANCEL))
        seen = await observe(before, asks, self.outside)
        sweep = advance(before, seen, self.outside.config, now)
        tell_new(before, sweep)
        if sweep != before:
            sweep = await self.save(sweep)
        await self.outside.store.answered(sweep.id, asks)
        if sweep.phase is before.phase:  # else what was seen answers the questions of another phase
            sweep = await self._act(sweep, seen)
        for question in questions:
            await answer(question, sweep, seen, self.outside)
            await self.outside.store.answered(sweep.id, [question])
        await self.voice.disarm(sweep, waiting)
        sweep = await self._keep(await self.voice.all(sweep))
        if (better := trouble_over(sweep)) != sweep:
            sweep = await self.voice.speak(await self.save(better))
        await self._results(sweep)
        soon, again = self.voice.pause, look_again(before, sweep, seen.look_in)
        return min(soon, again) if soon and again is not None else soon or again

    async def admit(self, error: Exception) -> None:
        """Report an error that keeps coming back, and post what this turn saved before it failed."""
        sweep = await self.outside.store.get(self.lease.item)
        if sweep is None:
            return
        after = sweep
        if self.lease.failures >= ADMITTED and isinstance(error, PASSING):
            after = tell_trouble(sweep, str(error) or type(error).__name__)
        if after != sweep:
            after = await self.save(after)
        if after.unsaid:
            await self.voice.redraw(await self.voice.speak(after))

    async def _cancelled(self, sweep: SweepRecord, waiting: list[Ask]) -> SweepRecord:
        """Apply cancels first: a cluster or a git host that does not answer must not delay them."""
        cancels = [ask for ask in waiting if ask.act is Act.CANCEL]
        after = hear_cancels(sweep, cancels, self.outside.config, self.outside.now())
        tell_new(sweep, after)
        if after != sweep:
            after = await self.save(after)
        if cancels:  # also a second click, which changes nothing
            await self.outside.store.answered(sweep.id, cancels)
        return await self._keep(after) if after.phase is Phase.STOPPING else after

    async def save(self, sweep: SweepRecord) -> SweepRecord:
        """Masked: what is said of an error may be the cluster's words, or a library's."""
        mask = self.outside.mask
        unsaid = tuple(replace(each, text=mask(each.text), detail=mask(each.detail)) for each in sweep.unsaid)
        sweep = replace(sweep, unsaid=unsaid, reason=mask(sweep.reason))
        return await self.outside.store.save(sweep, self.lease)

    async def _act(self, sweep: SweepRecord, seen: Observation) -> SweepRecord:
        if sweep.phase is Phase.OPENING:
            return await self._open(sweep)
        todo = chores(sweep, seen, self.outside.now())
        for patch in todo.patch:
            try:
                await self.outside.cluster.merge(patch.ref, patch.body, subresource=patch.subresource)
            except ApiError as error:
                if not (sweep.extending and error.permanent):
                    raise
                return await self.save(not_extended(sweep, error.message, self.outside.now()))
        for delete in todo.delete:
            await self.outside.cluster.delete(delete.ref, uid=delete.uid)
        phase = sweep.phase
        for manifest in todo.create:
            if sweep.phase is phase:  # else one was refused, and no other is wanted any more
                sweep = await self._create(sweep, manifest)
        return await self._compose(sweep, *todo.compose) if todo.compose else sweep

    async def _claimed(self, sweep: SweepRecord) -> SweepRecord:
        """Create the durable record before anything else: from here on a lost Redis loses nothing.

        Saved at once, so that whatever ends the sweep also closes that record.
        """
        if sweep.kept or sweep.phase not in CLAIMING:
            return sweep
        ours = replace(sweep, kept=sweep.phase)
        try:
            found = await self._create_record(ours)
        except ApiError as error:
            if not error.permanent:
                raise
            return await self.save(self._not_kept(sweep, error))
        if found is None:
            return await self._rename(sweep)
        known = found if found.phase is sweep.phase else tell_restored(found)
        return await self.save(replace(known, version=sweep.version))

    async def _create_record(self, sweep: SweepRecord) -> SweepRecord | None:
        """Return what the ConfigMap of this name holds now; None if it belongs to another sweep.

        One of the same delivery was created by a call whose answer was lost, or is further on than a Redis
        that lost its data.
        """
        try:
            await self.outside.cluster.create(durable.config_map(sweep))
        except ApiError as error:
            if not error.exists:
                raise
            kept = await self.outside.cluster.get(durable.ref(sweep.namespace, sweep.id))
            return durable.own(kept, sweep) if kept else None
        return sweep

    def _not_kept(self, sweep: SweepRecord, error: ApiError) -> SweepRecord:
        why = f"The cluster refused to keep the sweep's record; an administrator has to look: {error}"
        return refuse(sweep, why, self.outside.now())

    async def _open(self, sweep: SweepRecord) -> SweepRecord:
        """The plan is kept, then the thread is opened; only after both is anything made."""
        sweep = await self._keep(sweep)
        if sweep.phase is not Phase.OPENING:
            return sweep
        try:
            ts = await self.outside.slack.open_thread(sweep.asker.channel, parent(sweep, Links()))
        except NotInChannel:
            return await self.save(refuse(sweep, NOT_THERE, self.outside.now()))
        # So that the end of this turn keeps it again: without its thread, a second one would be opened.
        return await self.save(replace(sweep, thread=ts, kept=Phase.RECEIVED))

    async def _rename(self, sweep: SweepRecord) -> SweepRecord:
        """An older sweep has this name, which Redis had forgotten: the same request under another one."""
        head = sweep.request.name or sweep.request.space
        now = self.outside.now()

        def again(sweep_id: str) -> SweepRecord:
            return replace(sweep, id=sweep_id, phase=Phase.RECEIVED, plan=None, unsaid=(), version=0)

        ids = candidates(head, f"{sweep.delivery}/{sweep.id}")
        other, _ = await self.outside.store.create(again, ids, f"{sweep.delivery}/{sweep.id}")
        await self.outside.wake(other.id)
        return await self.save(sweep.to(Phase.REFUSED, now, reason=f"goes on as {other.id}"))

    async def _create(self, sweep: SweepRecord, manifest: Manifest) -> SweepRecord:
        try:
            made = await self.outside.cluster.create(manifest)
        except ApiError as error:
            if error.exists:
                return sweep  # an earlier turn's, or the build of another sweep: the next look tells
            if not error.permanent:
                raise
            said = Event(kind=EventKind.SUBMIT_REFUSED, text=manifest["kind"], detail=error.message)
            return await self.save(
                fail(sweep, f"the cluster refused the {manifest['kind']}", self.outside.now(), said)
            )
        if BUILD_LABEL in manifest["metadata"].get("labels", {}):
            uids = {manifest["metadata"]["name"]: made["metadata"]["uid"]}
            return await self.save(replace(sweep, build_uids=sweep.build_uids | uids))
        return await self.save(submitted(sweep))

    async def _compose(self, sweep: SweepRecord, to: Place, below: Place, above: Place) -> SweepRecord:
        try:
            digest = await self.outside.registry.compose(to, below, above)
            await record(to, digest, self.outside)
        except Missing:  # somebody has deleted what an earlier look had found
            sweep = await self.save(replace(sweep, digests={}))
        await self.outside.wake(sweep.id)
        return sweep

    async def _keep(self, sweep: SweepRecord) -> SweepRecord:
        """The durable record follows each change of phase, once everything of it was said.

        A cancel at once: a Redis that lost it would let the sweep run on. Never before the name was claimed:
        it may be an older sweep's record that has it.
        """
        if sweep.unsaid and sweep.phase is not Phase.STOPPING:
            return sweep
        try:
            if sweep.phase.final:
                return await self._close(sweep)
            if sweep.kept in {None, sweep.phase}:
                return sweep
            return await self._write(sweep)
        except ApiError as error:
            if not error.permanent:
                raise
            return await self._without_record(sweep, error)

    async def _close(self, sweep: SweepRecord) -> SweepRecord:
        """Looked at in every turn of an ended sweep: a record left active would train again one day.

        Left so by a claim whose answer was lost, or by a paused worker that wrote late. Where there is none
        it is created closed, so that a claim still under way finds the name taken.
        """
        ended = replace(sweep, kept=sweep.phase)
        kept = await self.outside.cluster.get(durable.ref(sweep.namespace, sweep.id))
        if kept is None:
            kept_now = await self._create_record(ended)
        else:
            kept_now = durable.own(kept, sweep)
        if kept_now is None:
            return sweep
        if kept_now.phase is not sweep.phase:
            return await self._write(sweep)
        return await self.save(ended) if sweep.kept is not sweep.phase else sweep

    async def _write(self, sweep: SweepRecord) -> SweepRecord:
        sweep = replace(sweep, kept=sweep.phase)
        kept = durable.config_map(sweep)
        try:
            await self.outside.cluster.merge(ref_of(kept), kept)
        except ApiError as error:
            if not error.absent:
                raise
            await self.outside.cluster.create(kept)
        return await self.save(sweep)

    async def _without_record(self, sweep: SweepRecord, error: ApiError) -> SweepRecord:
        """Nothing was made yet: refused. Later the sweep goes on, and each turn tries to write it again."""
        if sweep.phase is Phase.OPENING:
            return await self.save(self._not_kept(sweep, error))
        log.error("the record of %s can't be kept: %s", sweep.id, error)
        return sweep

    async def _results(self, sweep: SweepRecord) -> None:
        """The MLflow experiment exists before the first run needs it; without MLflow the sweep goes on."""
        if sweep.results_url or not sweep.submitted or sweep.phase not in {Phase.PROVING, Phase.RUNNING}:
            return
        if url := await self.outside.results.open(sweep):
            await self.voice.redraw(await self.save(replace(sweep, results_url=url)))
