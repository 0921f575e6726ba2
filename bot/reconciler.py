"""One turn of one sweep: look, decide, remember, act, speak.

Whatever a turn does may be done twice, and a worker may die at any call: objects have deterministic names, a
stale save is refused, and a message is struck off the record only after Slack has it.
"""

import logging
from dataclasses import replace
from datetime import timedelta

from bot import durable
from bot.chores import chores
from bot.identity import candidates
from bot.lifecycle import advance, fail, look_again, not_extended, refuse
from bot.messages import Links, event, parent
from bot.models import Event, EventKind, Phase, SweepRecord
from bot.mrkdwn import code
from bot.observation import Observation
from bot.observing import observe
from bot.outside import Outside
from bot.queue import Lease
from bot.slack import NotInChannel
from k8s.cluster import ApiError
from k8s.katib import ui_link
from k8s.objects import BUILD_LABEL, Manifest, ref_of

log = logging.getLogger(__name__)

REDRAW_EVERY = timedelta(seconds=2)  # at most; a change of phase is shown at once
NOT_THERE = "I'm not in that channel. Type `/invite @sweepbot` there (or the name it has here) and try again."


async def turn(lease: Lease, outside: Outside) -> timedelta | None:
    """Take the sweep `lease.item` one step on; when to look again without being woken."""
    sweep = await _find(lease.item, outside)
    if sweep is None:
        await _unknown(lease.item, outside)
        return None
    return await _Turn(lease, outside).run(sweep)


async def _find(sweep_id: str, outside: Outside) -> SweepRecord | None:
    if found := await outside.store.get(sweep_id):
        return found
    address = durable.ref(outside.settings.k8s_namespace, sweep_id)
    if kept := await outside.cluster.get(address):
        await outside.store.restore(durable.read(kept))
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
        self.lease = lease
        self.outside = outside

    async def run(self, before: SweepRecord) -> timedelta | None:
        now = self.outside.now()
        seen = await observe(before, self.outside)
        sweep = advance(before, seen, self.outside.config, now)
        if sweep != before:
            sweep = await self._save(sweep)
        await self.outside.store.answered(sweep.id, seen.asks)
        if sweep.phase is before.phase:  # else what was seen answers the questions of another phase
            sweep = await self._act(sweep, seen)
        sweep = await self._speak(await self._results(await self._keep(sweep)))
        return look_again(before, sweep)

    async def _save(self, sweep: SweepRecord) -> SweepRecord:
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
                return await self._save(not_extended(sweep, error.message, self.outside.now()))
        for delete in todo.delete:
            await self.outside.cluster.delete(delete.ref, uid=delete.uid)
        return await self._create(sweep, todo.create) if todo.create else sweep

    async def _open(self, sweep: SweepRecord) -> SweepRecord:
        """The durable record claims the name, then the thread is opened; only after both is anything made."""
        try:
            if not await self._claim(sweep):
                return await self._rename(sweep)
            ts = await self.outside.slack.open_thread(sweep.asker.channel, parent(sweep, Links()))
        except NotInChannel:
            return await self._save(refuse(sweep, NOT_THERE, self.outside.now()))
        except ApiError as error:
            if not error.permanent:
                raise
            why = f"The cluster refused to keep the sweep's record; an administrator has to look: {error}"
            return await self._save(refuse(sweep, why, self.outside.now()))
        return await self._save(replace(sweep, thread=ts))

    async def _claim(self, sweep: SweepRecord) -> bool:
        try:
            await self.outside.cluster.create(durable.config_map(sweep))
        except ApiError as error:
            if not error.exists:
                raise
            kept = await self.outside.cluster.get(durable.ref(sweep.namespace, sweep.id))
            return kept is not None and durable.read(kept).delivery == sweep.delivery
        return True

    async def _rename(self, sweep: SweepRecord) -> SweepRecord:
        """An older sweep has this name, which Redis had forgotten: the same request under another one."""
        head = sweep.request.name or sweep.request.space
        now = self.outside.now()

        def again(sweep_id: str) -> SweepRecord:
            return replace(sweep, id=sweep_id, phase=Phase.RECEIVED, plan=None, unsaid=(), version=0)

        ids = candidates(head, f"{sweep.delivery}/{sweep.id}")
        other, _ = await self.outside.store.create(again, ids, f"{sweep.delivery}/{sweep.id}")
        await self.outside.wake(other.id)
        return await self._save(sweep.to(Phase.REFUSED, now, reason=f"goes on as {other.id}"))

    async def _create(self, sweep: SweepRecord, manifest: Manifest) -> SweepRecord:
        try:
            made = await self.outside.cluster.create(manifest)
        except ApiError as error:
            if error.exists:
                return sweep  # an earlier turn's, or the build of another sweep: the next look tells
            if not error.permanent:
                raise
            said = Event(kind=EventKind.SUBMIT_REFUSED, text=manifest["kind"], detail=error.message)
            return await self._save(
                fail(sweep, f"the cluster refused the {manifest['kind']}", self.outside.now(), said)
            )
        if BUILD_LABEL in manifest["metadata"].get("labels", {}):
            return await self._save(replace(sweep, build_uid=made["metadata"]["uid"]))
        return sweep

    async def _keep(self, sweep: SweepRecord) -> SweepRecord:
        """The durable record follows each change of phase, from the opening on."""
        if sweep.plan is None or sweep.kept is sweep.phase:
            return sweep
        sweep = replace(sweep, kept=sweep.phase)
        kept = durable.config_map(sweep)
        try:
            await self.outside.cluster.merge(ref_of(kept), kept)
        except ApiError as error:
            if not error.absent:
                raise
            await self.outside.cluster.create(kept)
        return await self._save(sweep)

    async def _results(self, sweep: SweepRecord) -> SweepRecord:
        """The MLflow experiment exists before the first run needs it; without MLflow the sweep goes on."""
        if sweep.results_url or sweep.phase not in {Phase.PROVING, Phase.RUNNING}:
            return sweep
        url = await self.outside.results.open(sweep)
        return await self._save(replace(sweep, results_url=url)) if url else sweep

    async def _speak(self, sweep: SweepRecord) -> SweepRecord:
        while sweep.unsaid:
            await self._say(sweep, sweep.unsaid[0])
            sweep = await self._save(replace(sweep, unsaid=sweep.unsaid[1:]))
        return await self._redraw(sweep)

    async def _say(self, sweep: SweepRecord, happened: Event) -> None:
        text = event(sweep, happened)
        if happened.to_user:
            await self.outside.slack.whisper(happened.to_user, text, happened.response_url)
        elif sweep.thread:
            await self.outside.slack.say(sweep.asker.channel, sweep.thread, text)

    async def _redraw(self, sweep: SweepRecord) -> SweepRecord:
        if sweep.thread is None or sweep.phase is Phase.REFUSED:
            return sweep
        message = parent(sweep, self._links(sweep))
        if message.fingerprint == sweep.shown:
            return sweep
        now = self.outside.now()
        if sweep.shown_at and now - sweep.shown_at < REDRAW_EVERY and not sweep.phase.final:
            await self.outside.wake(sweep.id, after=REDRAW_EVERY)
            return sweep
        await self.outside.slack.redraw(sweep.asker.channel, sweep.thread, message)
        return await self._save(replace(sweep, shown=message.fingerprint, shown_at=now))

    def _links(self, sweep: SweepRecord) -> Links:
        base = self.outside.settings.katib_ui_url
        katib = ui_link(base, sweep.plan.experiment_ref) if base and sweep.plan else ""
        return Links(katib=katib, mlflow=sweep.results_url or "")
