"""Track warnings about GPUs, CPUs, and memory: what was posted, what to post now, when one repeats or joins a
group, and when an ignored one stops its trial. Pure.

    posted -> posted again (after twice and four times as long) -> busy again -> posted again
       `-> snoozed until a time -> posted again                        `-----> ended

There is one alert for each trial and kind. More than three new ones of a sweep at once become one group
alert, which later ones join. It is posted again for those that joined, at most once an hour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from bot.core.plan import HOME_CLUSTER
from bot.platform.config.idle_thresholds import IdleThresholds
from bot.watch.idle.detector import LOW_WINDOW, GpuAllocation, Kind, first_alert_after
from k8s.nodes.dcgm import NO_LOAD, Load
from k8s.trial_kinds import JOB

REPEAT_AT = (2, 4)  # times the first threshold: 60 and 120 minutes by default
MAX_SINGLE = 3  # new alerts of a sweep at once; more become one group alert
JOIN_INTERVAL = timedelta(hours=1)  # from one post of a group alert to the next for those that joined it
STOPPABLE = {Kind.UNUSED, Kind.IDLE}


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """The current state of one allocation, and where to warn about it."""

    allocation: GpuAllocation
    kind: Kind
    thresholds: IdleThresholds
    channel: str  # Slack channel id; empty: warn nowhere
    thread: str = ""
    calls: str = ""  # Slack user id to mention; "": no one
    container: str = JOB.container  # of a trial: the one that trains


@dataclass(frozen=True, kw_only=True)
class Snooze:
    """No new posts about one allocation until a time."""

    until: datetime
    by: str  # Slack user id
    name: str = ""  # the user's display name


@dataclass(frozen=True, kw_only=True)
class AlertItem:
    """One trial or pod of an alert."""

    key: str
    name: str
    nodes: tuple[str, ...]
    now: Kind
    since: datetime
    lasted: timedelta  # so far, rounded down: see `_rounded`; once it is over, the whole duration
    level: int  # 1, then 2 and 4 when it is posted again
    idle: int
    gpus: int
    mean: float | None = None
    load: Load = NO_LOAD  # per GPU
    recovered: bool = False  # ended, and was busy again before that
    ended: datetime | None = None  # when the condition was first seen to be over
    stop_after: timedelta = timedelta(0)  # after the warning; 0: never
    warned: datetime | None = None  # since when it is in the warning with that, and not snoozed
    joined: bool = False  # since the last post: it was only edited in, which notifies no one
    missing: datetime | None = None  # since when it isn't measured: it has ended, or its metrics were late
    what: str = ""  # as of its allocation


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One Slack message about one or more allocations with the same condition."""

    kind: Kind
    sweep: str = ""
    namespace: str
    team: str = ""
    owner: str = ""
    channel: str
    thread: str = ""
    calls: str = ""  # Slack user id to mention; "": no one
    asked_by: str = ""  # Slack user id; set: a direct message that asks the owner
    items: tuple[AlertItem, ...] = field(default=())
    ts: str = ""  # of the message
    level: int = 0  # the highest level posted; a higher one needs a new post, because edits notify no one
    posted: datetime | None = None  # first, or after a snooze; None: not yet
    last_post: datetime | None = None  # or the attempt
    replaces: str = ""  # ts of an older message that is still to be deleted
    fingerprint: str = ""  # of the message as Slack has it

    @property
    def id(self) -> str:
        return f"{'asked-' if self.asked_by else ''}{self.kind}/{self.items[0].key}"

    @property
    def about_gpus(self) -> bool:
        return not self.items[0].what

    @property
    def open(self) -> tuple[AlertItem, ...]:
        return tuple(item for item in self.items if item.now is self.kind)

    def due_level(self, snoozes: Mapping[str, Snooze], now: datetime) -> int:
        """Return the level to post; 0 if every open item is snoozed. A question repeats after a snooze."""
        levels = (
            1 if self.asked_by else item.level
            for item in self.open
            if not active_snooze(item.key, snoozes, now)
        )
        return max(levels, default=0)

    def due(self, snoozes: Mapping[str, Snooze], now: datetime) -> bool:
        """Return whether to post it now, again if it was posted: its level rose, or others have joined it."""
        last = self.last_post or self.posted
        if self.due_level(snoozes, now) > self.level or last is None:
            return self.due_level(snoozes, now) > self.level
        joined = any(item.joined and not active_snooze(item.key, snoozes, now) for item in self.open)
        return joined and now - last >= JOIN_INTERVAL

    def after_post(self, ts: str, now: datetime) -> "Alert":
        """Return it as posted: the time until those that joined are stopped starts now."""
        items = (replace(item, joined=False, warned=now) if item.joined else item for item in self.items)
        return replace(self, ts=ts, replaces=self.ts, items=tuple(items))

    def to_stop(
        self, current: Mapping[str, Assessment], snoozes: Mapping[str, Snooze], now: datetime
    ) -> list[AlertItem]:
        """Return the trials whose warning was ignored for long enough, and that are still measured as idle.

        Without a measurement, an item stays open: a busy trial must not stop because its metrics are late.
        """
        if not (self.sweep and self.ts and self.posted and self.level):  # level 0: it was snoozed
            return []
        return [
            item
            for item in self.open
            if item.stop_after
            and item.warned
            and not item.joined
            and max(self.posted, item.warned) + item.stop_after <= now
            and (each := current.get(item.key))
            and each.kind in STOPPABLE
            and not active_snooze(item.key, snoozes, now)
        ]

    @property
    def over(self) -> bool:
        return all(item.now is Kind.ENDED for item in self.items) or bool(self.asked_by and not self.open)


def cluster_of(alert_id: str) -> str:
    """Return the cluster of an alert, by its id (see GpuAllocation.key)."""
    cluster, colon, _ = alert_id.partition("/")[2].partition(":")
    return cluster if colon else HOME_CLUSTER


def update_alerts(
    sent: Iterable[Alert],
    current: Mapping[str, Assessment],
    snoozes: Mapping[str, Snooze],
    now: datetime,
) -> tuple[Alert, ...]:
    """Return all alerts as they should be shown now, the oldest first; `current` is by allocation key."""
    before = tuple(sent)
    flagged = {(alert.kind, item.key) for alert in before for item in alert.open}
    current = {key: _same_spell(each, flagged) for key, each in current.items()}
    current = {key: _not_yet_low(each, before, now) for key, each in current.items()}
    alerts = [
        replace(
            alert,
            items=tuple(
                _warned(item, _updated(item, current.get(item.key), alert.kind, now), snoozes, now)
                for item in alert.items
            ),
        )
        for alert in before
    ]
    known = {(alert.kind, item.key) for alert in alerts if not alert.asked_by for item in alert.items}
    new = [
        each
        for key, each in current.items()
        if each.kind.needs_alert
        and each.channel
        and (each.kind, key) not in known
        and not active_snooze(key, snoozes, now)
    ]
    for _, group in groupby(sorted(new, key=_group_key), key=_group_key):
        alerts = _with_new(alerts, list(group), now)
    return tuple(alerts)


def question(current: Assessment, asked_by: str, now: datetime) -> Alert:
    """Return the message, without a channel, that asks the owner of a pod outside sweeps if it is needed."""
    return replace(_empty_alert(current), asked_by=asked_by, items=(_item(current, now),))


def active_snooze(key: str, snoozes: Mapping[str, Snooze], now: datetime) -> Snooze | None:
    snooze = snoozes.get(key)
    return snooze if snooze and snooze.until > now else None


def _same_spell(current: Assessment, flagged: set[tuple[Kind, str]]) -> Assessment:
    """Keep UNUSED or IDLE when only the number of samples changed, which tells these two apart."""
    key = current.allocation.key
    if current.kind is Kind.IDLE and current.allocation.busy_ever is None and (Kind.UNUSED, key) in flagged:
        return replace(current, kind=Kind.UNUSED)
    if current.kind is Kind.UNUSED and (Kind.IDLE, key) in flagged:
        return replace(current, kind=Kind.IDLE)
    return current


def _not_yet_low(current: Assessment, sent: Iterable[Alert], now: datetime) -> Assessment:
    """Suppress a low mean while its window still contains an idle spell, which alone makes it low."""
    if not current.kind.over_two_hours:
        return current
    idle = [
        now if item.now is alert.kind else item.ended
        for alert in sent
        if alert.kind in {Kind.UNUSED, Kind.IDLE, Kind.PARTIAL}
        for item in alert.items
        if item.key == current.allocation.key
    ]
    recent = any(ended and now - ended < LOW_WINDOW for ended in idle)
    return replace(current, kind=Kind.MAYBE_LOW) if recent else current


def _updated(item: AlertItem, current: Assessment | None, kind: Kind, now: datetime) -> AlertItem:
    if current is None and item.missing is None and item.now is not Kind.ENDED:
        return replace(item, missing=now)  # a second check must confirm the end
    if current is None:
        return _ended(item, Kind.ENDED, kind, item.missing or now)
    item = replace(item, missing=None)
    if current.kind is Kind.UNKNOWN or (current.kind is Kind.MAYBE_LOW and kind.over_two_hours):
        return item
    if current.kind is not kind:
        return _ended(item, current.kind if current.kind.needs_alert else Kind.FINE, kind, now)
    # After a recovery the duration starts over.
    new = _item(current, now, item.since if item.now is kind else None)
    new = replace(new, joined=item.joined if item.now is kind else True)
    # The load varies with each measurement: shown as it was, it isn't edited every few minutes.
    return (
        replace(new, load=item.load, mean=item.mean) if item.now is kind and item.level == new.level else new
    )


def _warned(before: AlertItem, after: AlertItem, snoozes: Mapping[str, Snooze], now: datetime) -> AlertItem:
    """Count the time until a trial is stopped anew after a snooze, a recovery, and a change of that time."""
    is_same = (before.now, before.stop_after) == (after.now, after.stop_after)
    is_counting = is_same and not active_snooze(after.key, snoozes, now)
    return replace(after, warned=before.warned if is_counting else now)


def _ended(item: AlertItem, state: Kind, kind: Kind, now: datetime) -> AlertItem:
    """Fix the duration at the moment when the condition ended."""
    lasted = now - item.since if item.now is kind else item.lasted
    recovered = state is Kind.ENDED and (item.recovered or item.now is Kind.FINE)
    ended = now if item.now is kind else item.ended
    return replace(item, now=state, lasted=lasted, recovered=recovered, ended=ended)


def _item(current: Assessment, now: datetime, since: datetime | None = None) -> AlertItem:
    allocation, first = current.allocation, first_alert_after(current.kind, current.thresholds)
    began = allocation.began or now
    since = since or (began if current.kind is Kind.UNUSED else max(began, now - first))
    once = current.kind.over_two_hours or current.kind is Kind.FULL  # over a fixed time, and never repeated
    return AlertItem(
        key=allocation.key,
        name=allocation.name,
        nodes=allocation.nodes,
        now=current.kind,
        since=since,
        lasted=first if once else _rounded(now - since, first),
        level=1 if once else repeat_level(now - since, first),
        idle=allocation.idle,
        gpus=max(allocation.allocated, len(allocation.gpus)),
        mean=allocation.mean if current.kind.shows_share else None,
        load=allocation.load,
        stop_after=_stop_after(current),
        warned=now,
        what=allocation.what,
    )


def repeat_level(lasted: timedelta, first: timedelta) -> int:
    """Return 1, 2, or 4: the largest multiple of `first` that has passed and is worth a new post."""
    return max((each for each in REPEAT_AT if lasted >= first * each), default=1)


def _stop_after(current: Assessment) -> timedelta:
    """Idle CPUs cost little, and a trial can wait for something else: only GPUs are taken away."""
    is_unused = current.kind in STOPPABLE and current.allocation.sweep and not current.allocation.what
    return timedelta(minutes=current.thresholds.stop_minutes if is_unused else 0)


def _rounded(lasted: timedelta, first: timedelta) -> timedelta:
    """Return multiples of the first repeat's time, so that a message isn't edited at each check."""
    step = first * REPEAT_AT[0]
    return max(first, lasted // step * step)


def _group_key(current: Assessment) -> tuple[str, str, str, str]:
    allocation = current.allocation
    return current.channel, current.thread, allocation.sweep or allocation.team, current.kind


def _with_new(alerts: list[Alert], new: list[Assessment], now: datetime) -> list[Alert]:
    """Add new items of one group: to its open group alert, as a group alert, or one alert each."""
    alert, items = _empty_alert(new[0]), tuple(_item(each, now) for each in new)
    for at, one in enumerate(alerts):
        if _same_group(one, alert) and len(one.items) > 1 and one.open:
            joined = tuple(replace(item, joined=True) for item in items)
            return [*alerts[:at], replace(one, items=(*one.items, *joined)), *alerts[at + 1 :]]
    if len(new) > MAX_SINGLE:
        return [*alerts, replace(alert, items=items)]
    singles = [replace(_empty_alert(each), items=(item,)) for each, item in zip(new, items, strict=True)]
    return [*alerts, *singles]


def _same_group(one: Alert, other: Alert) -> bool:
    mine, others = ((e.kind, e.channel, e.thread, e.sweep or e.team) for e in (one, other))
    return mine == others


def _empty_alert(current: Assessment) -> Alert:
    allocation = current.allocation
    return Alert(
        kind=current.kind,
        sweep=allocation.sweep,
        namespace=allocation.namespace,
        team=allocation.team,
        owner=allocation.owner,
        channel=current.channel,
        thread=current.thread,
        calls=current.calls,
    )
